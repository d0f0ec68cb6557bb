// Bodies of Ollama's clients are foreign bytes: what is made of one is JSON that the other
// endpoint's parser reads or refuses, or an error with words.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "api/chat_request.h"
#include "api/completion_request.h"
#include "api/ollama_request.h"
#include "base/check.h"
#include "base/json.h"

namespace {

template <typename Parsed>
void check(const Parsed& parsed) {
  using namespace pelton;
  if (!parsed.ok()) {
    CHECK(!parsed.error().message.empty());
    return;
  }
  CHECK(Json::parse(parsed->body).ok());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pelton;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto chat = api::parse_ollama_chat(text, {.vocab_size = 1000});
  check(chat);
  if (chat.ok() && chat->is_chat) {
    static_cast<void>(api::parse_chat_request(chat->body, {.vocab_size = 1000}));
  }
  for (const bool has_chat : {false, true}) {
    const auto text_request = api::parse_ollama_generate(text, {.vocab_size = 1000}, has_chat);
    check(text_request);
    if (text_request.ok() && !text_request->is_chat) {
      static_cast<void>(api::parse_completion_request(text_request->body, {.vocab_size = 1000}));
    }
  }
  check(api::parse_ollama_embed(text, {.vocab_size = 1000}));
  static_cast<void>(api::parse_ollama_show(text, {}));
  return 0;
}
