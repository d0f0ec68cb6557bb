// OpenAI's error object and its status: where an Error of ours becomes an answer. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace pelton::api {

// What does not fit: the numbers that each protocol says in words of its own.
struct ContextLength {
  // What OpenAI's words call it: a conversation, the input of a response, or a text.
  enum class Prompt { kMessages, kResponseInput, kText };
  Prompt prompt = Prompt::kMessages;
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;  // asked for; 0: the prompt alone is too long
  int64_t context_max = 0;
};

struct ApiError {
  int status = 500;
  std::string message;
  std::string_view type;                             // "invalid_request_error"
  std::string param;                                 // the field's path; empty: null
  std::string_view code;                             // "model_not_found"; empty: null
  int retry_after_s = 0;                             // 0: no Retry-After header
  std::optional<ContextLength> context_length = {};  // of a context_length_exceeded
};

// What any room's Error means to a client. An internal error's words stay in the log.
ApiError api_error(const Error& error);

ApiError model_not_found(std::string_view model);
// A request that names no model, where there are several: `names`, "'a', 'b'".
ApiError model_missing(std::string_view names);
ApiError not_found(std::string_view method, std::string_view path);
ApiError method_not_allowed(std::string_view method, std::string_view path);
ApiError bad_api_key();
// A key that is one, of nobody who may do this.
ApiError not_admin_key();
// To what is kept nothing can be added, and nothing taken away.
ApiError not_written();
// The host that the request is addressed to; as net refuses it over HTTP.
ApiError forbidden_host();
// A body that says it is something else than JSON.
ApiError not_json(std::string_view content_type);

// In OpenAI's words, which clients parse to retry with what fits; message_error_body has
// Anthropic's.
ApiError context_length_exceeded(const ContextLength& length, std::string_view param);

// {"error":{"message":…,"type":…,"param":…,"code":…}}, all four keys always.
std::string error_body(const ApiError& error);
// Over a WebSocket: {"type":"error","status":…, and what is in the error's body, an object}.
std::string error_event(int status, std::string_view error_body);
// {"error":"…"}
std::string plain_error_body(const ApiError& error);

}  // namespace pelton::api
