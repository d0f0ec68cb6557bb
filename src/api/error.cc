#include "api/error.h"

#include <fmt/format.h>

#include "base/json_writer.h"

namespace pelton::api {
namespace {

constexpr std::string_view kInvalidRequest = "invalid_request_error";

// Word for word OpenAI's messages: clients find the numbers by regular expressions.
std::string context_message(const ContextLength& length) {
  using Prompt = ContextLength::Prompt;
  const int64_t requested = length.prompt_tokens + length.output_tokens;
  if (length.prompt == Prompt::kText) {
    return fmt::format(
        "This model's maximum context length is {} tokens, however you requested {} tokens ({} in "
        "your prompt; {} for the completion). Please reduce your prompt; or completion length.",
        length.context_max, requested, length.prompt_tokens, length.output_tokens);
  }
  if (length.output_tokens > 0) {
    return fmt::format(
        "This model's maximum context length is {} tokens. However, you requested {} tokens ({} in "
        "the messages, {} in the completion). Please reduce the length of the messages or "
        "completion.",
        length.context_max, requested, length.prompt_tokens, length.output_tokens);
  }
  if (length.prompt == Prompt::kResponseInput) {
    return fmt::format(
        "Your input exceeds the context window of this model. Please adjust your input and try "
        "again. This model's maximum context length is {} tokens, and the input has {}.",
        length.context_max, length.prompt_tokens);
  }
  return fmt::format(
      "This model's maximum context length is {} tokens. However, your messages resulted in {} "
      "tokens. Please reduce the length of the messages.",
      length.context_max, length.prompt_tokens);
}

}  // namespace

ApiError api_error(const Error& error) {
  switch (error.code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kUnsupported:
      return {.status = 400,
              .message = error.message,
              .type = kInvalidRequest,
              .param = error.field,
              .code = error.code == ErrorCode::kUnsupported ? "unsupported" : "invalid_value"};
    case ErrorCode::kDoesNotFit:
      return {.status = 400,
              .message = error.message,
              .type = kInvalidRequest,
              .param = error.field,
              .code = "context_length_exceeded"};
    case ErrorCode::kNotFound:
      return {.status = 404,
              .message = error.message,
              .type = kInvalidRequest,
              .param = error.field,
              .code = "not_found"};
    case ErrorCode::kOverloaded:
      return {.status = 429,
              .message = "The server is busy: " + error.message,
              .type = "rate_limit_error",
              .param = {},
              .code = "overloaded",
              .retry_after_s = 1};
    case ErrorCode::kUnavailable:
    case ErrorCode::kCancelled:
      return {.status = 503,
              .message = error.message,
              .type = "service_unavailable",
              .param = {},
              .code = "unavailable",
              .retry_after_s = 2};
    case ErrorCode::kDeadline:
      return {.status = 408,
              .message = error.message,
              .type = kInvalidRequest,
              .param = {},
              .code = "deadline_exceeded"};
    case ErrorCode::kBadCheckpoint:
      // While a request runs this means that its logits are NaN or infinite.
      return {.status = 500,
              .message =
                  "The model computed numbers that are not finite for this request; its "
                  "weights may be damaged (see 'pelton verify').",
              .type = "server_error",
              .param = {},
              .code = "numerical_error"};
    case ErrorCode::kBadConfig:
    case ErrorCode::kAddressInUse:
    case ErrorCode::kIo:
    case ErrorCode::kInternal:
      break;
  }
  return {.status = 500,
          .message = "The server failed while it worked on this request; its log says why.",
          .type = "server_error",
          .param = {},
          .code = "internal_error"};
}

ApiError model_not_found(std::string_view model) {
  return {
      .status = 404,
      .message = fmt::format("The model '{}' does not exist here; GET /v1/models lists what does",
                             model.substr(0, 200)),
      .type = kInvalidRequest,
      .param = "model",
      .code = "model_not_found"};
}

ApiError model_missing(std::string_view names) {
  return {.status = 400,
          .message = fmt::format("You must provide a model parameter: this server has {}", names),
          .type = kInvalidRequest,
          .param = "model",
          .code = "model_missing"};
}

ApiError not_found(std::string_view method, std::string_view path) {
  return {.status = 404,
          .message =
              fmt::format("Unknown request URL: {} {}", method.substr(0, 20), path.substr(0, 200)),
          .type = kInvalidRequest,
          .param = {},
          .code = "unknown_url"};
}

ApiError method_not_allowed(std::string_view method, std::string_view path) {
  return {
      .status = 405,
      .message = fmt::format("{} is not allowed on {}", method.substr(0, 20), path.substr(0, 200)),
      .type = kInvalidRequest,
      .param = {},
      .code = "method_not_allowed"};
}

ApiError bad_api_key() {
  return {.status = 401,
          .message =
              "Missing or wrong API key, or more than one: send it once, as "
              "'Authorization: Bearer KEY'",
          .type = "authentication_error",
          .param = {},
          .code = "invalid_api_key"};
}

ApiError not_admin_key() {
  return {.status = 403,
          .message =
              "This asks for an operator's key: one of --admin-api-key, or one with role=admin in "
              "--api-key-file. A gateway's clients have none: ask the worker itself",
          .type = "permission_error",
          .param = {},
          .code = "admin_key_required"};
}

ApiError not_written() {
  return {.status = 507,
          .message =
              "The response store cannot be written just now, as if its disk were full; the "
              "server's log says why",
          .type = "server_error",
          .param = {},
          .code = "insufficient_storage"};
}

ApiError forbidden_host() {
  return {.status = 403,
          .message =
              "The server does not answer to the host name of this call; a name that is its "
              "own is given with --allowed-host",
          .type = kInvalidRequest,
          .param = {},
          .code = "forbidden_host"};
}

ApiError not_json(std::string_view content_type) {
  return {.status = 415,
          .message = fmt::format("The body is said to be '{}'; send JSON with the header "
                                 "'Content-Type: application/json', or without that header",
                                 content_type.substr(0, 100)),
          .type = kInvalidRequest,
          .param = {},
          .code = "unsupported_media_type"};
}

ApiError context_length_exceeded(const ContextLength& length, std::string_view param) {
  return {.status = 400,
          .message = context_message(length),
          .type = kInvalidRequest,
          .param = std::string(param),
          .code = "context_length_exceeded",
          .context_length = length};
}

std::string error_event(int status, std::string_view error_body) {
  const bool is_object = error_body.starts_with('{') && error_body != "{}";
  return fmt::format("{{\"type\":\"error\",\"status\":{}{}{}", status, is_object ? "," : "",
                     is_object ? error_body.substr(1) : "}");
}

std::string plain_error_body(const ApiError& error) {
  std::string body;
  base::JsonWriter(body).begin_object().key("error").string(error.message).end_object();
  return body;
}

std::string error_body(const ApiError& error) {
  std::string body;
  base::JsonWriter writer(body);
  const auto text_or_null = [&](std::string_view key, std::string_view value) {
    writer.key(key);
    if (value.empty()) {
      writer.null();
    } else {
      writer.string(value);
    }
  };
  writer.begin_object().key("error").begin_object();
  writer.key("message").string(error.message);
  writer.key("type").string(error.type);
  text_or_null("param", error.param);
  text_or_null("code", error.code);
  writer.end_object().end_object();
  return body;
}

}  // namespace pelton::api
