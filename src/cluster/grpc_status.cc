#include "cluster/grpc_status.h"

#include <charconv>
#include <optional>

#include "base/json.h"

namespace pelton::cluster {

grpc::StatusCode grpc_code(int http_status) {
  switch (http_status) {
    case 401:
      return grpc::StatusCode::UNAUTHENTICATED;
    case 403:
      return grpc::StatusCode::PERMISSION_DENIED;
    case 404:
      return grpc::StatusCode::NOT_FOUND;
    case 408:
      return grpc::StatusCode::DEADLINE_EXCEEDED;
    case 413:
    case 429:
      return grpc::StatusCode::RESOURCE_EXHAUSTED;
    case 499:
      return grpc::StatusCode::CANCELLED;
    case 503:
      return grpc::StatusCode::UNAVAILABLE;
    default:
      return http_status < 500 ? grpc::StatusCode::INVALID_ARGUMENT : grpc::StatusCode::INTERNAL;
  }
}

grpc::Status grpc_status(grpc::CallbackServerContext& context, const net::HttpResponse& answer) {
  const Result<Json> body = Json::parse(answer.body);
  const Json* error = body.ok() ? body->find("error") : nullptr;
  const auto message = error == nullptr ? std::nullopt : error->string("message");
  // Binary, because a field's path may be anything a client has written.
  context.AddTrailingMetadata("pelton-error-bin", answer.body);
  return grpc::Status(grpc_code(answer.status), message.value_or("an error without words"));
}

grpc::Status grpc_status(grpc::CallbackServerContext& context, std::string_view frame) {
  net::HttpResponse answer;
  const char* const end = frame.data() + frame.size();
  const auto status = std::from_chars(frame.data(), end, answer.status);
  if (status.ec != std::errc() || status.ptr == end) {
    return grpc::Status(grpc::StatusCode::INTERNAL, "an error without words");
  }
  answer.body.assign(status.ptr + 1, end);
  return grpc_status(context, answer);
}

}  // namespace pelton::cluster
