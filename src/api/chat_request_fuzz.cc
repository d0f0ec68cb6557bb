// Bodies of all endpoints: any bytes give a request or a complaint that can be sent.
#include <cstdint>
#include <string_view>

#include "api/chat_request.h"
#include "api/completion_request.h"
#include "api/embedding_request.h"
#include "api/error.h"
#include "api/generate_request.h"
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

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  const pelton::api::RequestLimits limits{.vocab_size = 1000};
  check(pelton::api::parse_chat_request(body, limits));
  check(pelton::api::parse_completion_request(body, limits));
  check(pelton::api::parse_generate_request(body, limits));
  for (const auto use : {pelton::api::MessagesUse::kGenerate, pelton::api::MessagesUse::kCount}) {
    const auto message = pelton::api::parse_messages_request(body, limits, use);
    if (!message.ok()) check_complaint(message.error());
    if (message.ok()) CHECK(message->chat.generation.n == 1 && !message->chat.messages.empty());
  }
  const auto embedding = pelton::api::parse_embedding_request(body, limits);
  if (!embedding.ok()) check_complaint(embedding.error());
  if (embedding.ok()) CHECK(!embedding->inputs.empty());
  const auto rerank = pelton::api::parse_rerank_request(body, limits);
  if (!rerank.ok()) check_complaint(rerank.error());
  const auto score = pelton::api::parse_score_request(body, limits);
  if (!score.ok()) check_complaint(score.error());
  if (const auto json = pelton::Json::parse(body); json.ok()) {
    const auto response = pelton::api::parse_response_request(*json, limits);
    check(response);
    if (response.ok()) {
      const std::string echo = pelton::api::response_echo(*json, {.temperature = 1, .top_p = 1});
      CHECK(pelton::Json::parse("{" + echo + "}").ok());
      if (const pelton::Json* input = json->find("input")) {
        const pelton::Json listed = pelton::api::listed_items(
            *input, [](std::string_view prefix) { return std::string(prefix); });
        CHECK(pelton::api::parse_response_items(listed).ok());
      }
    }
  }
  const auto tokenize = pelton::api::parse_tokenize_request(body, limits);
  if (!tokenize.ok()) check_complaint(tokenize.error());
  const auto detokenize = pelton::api::parse_detokenize_request(body, limits);
  if (!detokenize.ok()) check_complaint(detokenize.error());
  return 0;
}
