// Bodies of all endpoints: any bytes give a request or a complaint that can be sent. The first byte
// chooses the endpoint, so that one input costs one parse.
#include <cstdint>
#include <string>
#include <string_view>

#include "api/chat_request.h"
#include "api/completion_request.h"
#include "api/embedding_request.h"
#include "api/error.h"
#include "api/generate_request.h"
#include "api/load_model_request.h"
#include "api/messages_request.h"
#include "api/response_request.h"
#include "api/tokenize_request.h"
#include "base/check.h"

namespace {

void check_complaint(const pelton::Error& complaint) {
  const pelton::api::ApiError error = pelton::api::api_error(complaint);
  CHECK(error.status == 400 && !error.message.empty());
  CHECK(pelton::Json::parse(pelton::api::error_body(error)).ok());
}

template <typename T>
void check(const pelton::Result<T>& request) {
  if (!request.ok()) return check_complaint(request.error());
  CHECK(request->generation.min_tokens >= 0);
  CHECK(request->generation.n >= 1 && request->generation.n <= pelton::api::kChoicesMax);
}

constexpr pelton::api::RequestLimits kLimits{.vocab_size = 1000};

template <typename T>
void check_plain(const pelton::Result<T>& request) {
  if (!request.ok()) check_complaint(request.error());
}

void check_messages(std::string_view body, pelton::api::MessagesUse use) {
  const auto message = pelton::api::parse_messages_request(body, kLimits, use);
  if (!message.ok()) return check_complaint(message.error());
  CHECK(message->chat.generation.n == 1 && !message->chat.messages.empty());
}

void check_embedding(std::string_view body) {
  const auto embedding = pelton::api::parse_embedding_request(body, kLimits);
  if (!embedding.ok()) return check_complaint(embedding.error());
  CHECK(!embedding->inputs.empty());
}

void check_response(std::string_view body) {
  const auto json = pelton::Json::parse(body);
  if (!json.ok()) return;
  const auto response = pelton::api::parse_response_request(*json, kLimits);
  check(response);
  if (!response.ok()) return;
  const std::string echo = pelton::api::response_echo(*json, {.temperature = 1, .top_p = 1});
  CHECK(pelton::Json::parse("{" + echo + "}").ok());
  if (const pelton::Json* input = json->find("input")) {
    const pelton::Json listed = pelton::api::listed_items(
        *input, [](std::string_view prefix) { return std::string(prefix); });
    CHECK(pelton::api::parse_response_items(listed).ok());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pelton::api;  // NOLINT: a program of its own
  if (size < 1) return 0;
  const std::string_view body(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0]) {
    case 'c':
      check(parse_chat_request(body, kLimits));
      break;
    case 't':
      check(parse_completion_request(body, kLimits));
      break;
    case 'g':
      check(parse_generate_request(body, kLimits));
      break;
    case 'm':
      check_messages(body, MessagesUse::kGenerate);
      break;
    case 'n':
      check_messages(body, MessagesUse::kCount);
      break;
    case 'e':
      check_embedding(body);
      break;
    case 'r':
      check_response(body);
      break;
    case 'k':
      check_plain(parse_rerank_request(body, kLimits));
      break;
    case 's':
      check_plain(parse_score_request(body, kLimits));
      break;
    case 'i':
      check_plain(parse_tokenize_request(body, kLimits));
      break;
    case 'd':
      check_plain(parse_detokenize_request(body, kLimits));
      break;
    case 'l':
      check_plain(parse_load_model_request(body));
      break;
    default:
      break;
  }
  return 0;
}
