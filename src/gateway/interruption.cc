#include "gateway/interruption.h"

#include "api/messages_response.h"
#include "api/realtime_session.h"
#include "base/json.h"
#include "base/json_writer.h"
#include "gateway/asked.h"
#include "net/json_response.h"
#include "net/sse.h"
#include "rpc/grpc_frame.h"

namespace pelton::gateway {
namespace {

bool is_anthropic(std::string_view path) {
  return path.starts_with("/v1/messages");
}

// Ollama's streams are lines of JSON: {"error":"…"}.
bool is_ollama(std::string_view path) {
  return path.starts_with("/api/");
}

std::string ollama_error_body(std::string_view message) {
  std::string out;
  base::JsonWriter(out).begin_object().key("error").string(message).end_object();
  return out;
}

// {"type":"error","sequence_number":…,"code":…,"message":…,"param":null}, as the Responses API has
// it.
std::string response_error_event(const api::ApiError& error, int64_t number) {
  std::string out = "event: error\ndata: ";
  base::JsonWriter(out)
      .begin_object()
      .key("type")
      .string("error")
      .key("sequence_number")
      .integer(number)
      .key("code")
      .string(error.code)
      .key("message")
      .string(error.message)
      .key("param")
      .null()
      .end_object();
  return out + "\n\n";
}

}  // namespace

net::HttpResponse error_answer(std::string_view path, const api::ApiError& error,
                               std::string_view request_id) {
  net::HttpResponse response = net::json_response({}, error.status);
  if (!request_id.empty()) response.headers.add("x-request-id", std::string(request_id));
  if (error.retry_after_s > 0) {
    response.headers.add("Retry-After", std::to_string(error.retry_after_s));
  }
  response.body = is_anthropic(path) ? api::message_error_body(error, request_id)
                  : is_ollama(path)  ? ollama_error_body(error.message)
                                     : api::error_body(error);
  return response;
}

std::string live_session_error(const api::ApiError& error) {
  return api::realtime_error(error, "event_of_gateway", {});
}

std::string interruption_event(std::string_view path, const api::ApiError& error, int64_t number) {
  if (rpc::is_grpc_method(path)) {
    // UNAVAILABLE: it may be tried again.
    const int status = error.code == "stream_interrupted" ? 503 : error.status;
    const std::string bytes = std::to_string(status) + " " + api::error_body(error);
    std::string out;
    rpc::append_grpc_frame({.kind = rpc::GrpcFrame::Kind::kError, .bytes = bytes}, out);
    return out;
  }
  if (path == "/v1/responses") return response_error_event(error, number);
  if (is_live_path(path)) return live_session_error(error) + "\n";
  if (is_anthropic(path)) {
    return "event: error\ndata: " + api::message_error_body(error, "") + "\n\n";
  }
  if (is_ollama(path)) return ollama_error_body(error.message) + "\n";
  return "data: " + api::error_body(error) + "\n\n";
}

std::string error_event(std::string_view path, std::string_view body) {
  std::string out;
  if (path == "/v1/responses") {
    const Result<Json> json = Json::parse(body);
    const Json* said = json.ok() ? json->find("error") : nullptr;
    const std::string code = said == nullptr ? "" : said->string("code").value_or("");
    const std::string message = said == nullptr ? "" : said->string("message").value_or("");
    return response_error_event({.message = message, .code = code}, 0);
  }
  if (is_ollama(path)) return std::string(body) + "\n";
  if (is_anthropic(path)) {
    net::append_sse_event(out, "error", body);
  } else {
    net::append_sse_data(out, body);
  }
  return out;
}

}  // namespace pelton::gateway
