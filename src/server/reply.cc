#include "server/reply.h"

#include <utility>

#include <fmt/format.h>

#include "api/messages_response.h"
#include "net/json_response.h"
#include "server/adapter_registry.h"

namespace pelton::server {

net::HttpResponse text_reply(std::string_view content_type, std::string body) {
  net::HttpResponse response;
  response.headers.add("Content-Type", std::string(content_type));
  response.body = std::move(body);
  return response;
}

net::HttpResponse json_reply(std::string body) {
  return net::json_response(std::move(body));
}

namespace {

net::HttpResponse with_status(const api::ApiError& error, std::string body) {
  net::HttpResponse response = json_reply(std::move(body));
  response.status = error.status;
  if (error.retry_after_s > 0) {
    response.headers.add("Retry-After", std::to_string(error.retry_after_s));
  }
  return response;
}

}  // namespace

api::ApiError not_ready(std::string_view why) {
  return api::api_error({ErrorCode::kUnavailable, std::string(why), ""});
}

api::ApiError adapter_not_loaded(std::string_view name, const Error& error) {
  api::ApiError shown =
      not_ready(fmt::format("The adapter '{}' could not be loaded: {}", name, error.message));
  shown.code = kAdapterUnavailable;
  if (!is_lasting_refusal(error)) return shown;
  return {.status = 400,
          .message = std::move(shown.message),
          .type = "invalid_request_error",
          .param = "model",
          .code = "adapter_refused"};
}

api::ApiError numbers_in_doubt(std::string_view model) {
  return {.status = 503,
          .message = fmt::format(
              "Too many requests to '{}' have just ended with numbers that are not finite", model),
          .type = "service_unavailable",
          .param = {},
          .code = "numerical_errors",
          .retry_after_s = 60};
}

api::ApiError damaged_weights(std::string_view model) {
  return {.status = 503,
          .message = fmt::format("The weights of '{}' are not what they were when they were loaded",
                                 model),
          .type = "service_unavailable",
          .param = {},
          .code = "weights_damaged",
          .retry_after_s = 60};
}

net::HttpResponse error_reply(const api::ApiError& error) {
  return with_status(error, api::error_body(error));
}

net::HttpResponse ollama_error_reply(const api::ApiError& error) {
  return with_status(error, api::plain_error_body(error));
}

net::HttpResponse message_error_reply(const api::ApiError& error, std::string_view request_id) {
  return with_status(error, api::message_error_body(error, request_id));
}

}  // namespace pelton::server
