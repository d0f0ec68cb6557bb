// Bodies of llama.cpp's, TGI's and SGLang's clients are foreign bytes: what is made of one is JSON
// that a completion's parser reads or refuses, or an error with words.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "api/completion_request.h"
#include "api/text_request.h"
#include "base/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pelton;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const auto parse : {api::parse_llama_completion, api::parse_any_generate}) {
    const auto request = parse(text, {.vocab_size = 1000});
    if (!request.ok()) {
      CHECK(!request.error().message.empty());
      continue;
    }
    const auto completion = api::parse_completion_request(request->body, {.vocab_size = 1000});
    if (!completion.ok()) static_cast<void>(api::named_as_given(*request, completion.error()));
  }
  return 0;
}
