#include "rpc/grpc_status.h"

#include <charconv>
#include <optional>
#include <utility>

#include "base/json.h"

namespace pelton::rpc {

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

CallError call_error(const net::HttpResponse& answer) {
  CallError error{.code = grpc_code(answer.status), .object = answer.body};
  const Result<Json> body = Json::parse(answer.body);
  const Json* object = body.ok() ? body->find("error") : nullptr;
  if (object == nullptr) return error;
  if (auto message = object->string("message")) error.message = *std::move(message);
  return error;
}

CallError call_error(std::string_view frame) {
  net::HttpResponse answer;
  const char* const end = frame.data() + frame.size();
  const auto status = std::from_chars(frame.data(), end, answer.status);
  if (status.ec != std::errc() || status.ptr == end) return {};
  answer.body.assign(status.ptr + 1, end);
  return call_error(answer);
}

grpc::Status grpc_status(grpc::CallbackServerContext& context, const CallError& error) {
  // Binary, because a field's path may be anything a client has written.
  if (!error.object.empty()) context.AddTrailingMetadata("pelton-error-bin", error.object);
  return grpc::Status(error.code, error.message);
}

}  // namespace pelton::rpc
