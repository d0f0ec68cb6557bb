// A tokenizer.model is an Error or a tokenizer whose tokens all have bytes.
#include <cstdint>
#include <string>

#include "base/check.h"
#include "tokenizer/sentencepiece_file.h"
#include "tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using pelton::tokenizer::Tokenizer;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const pelton::Result<Tokenizer> tokenizer = Tokenizer::from_sentencepiece(bytes, "fuzz");
  if (!tokenizer.ok()) {
    CHECK(tokenizer.error().message.starts_with("fuzz: "));
    return 0;
  }
  for (const auto id : tokenizer->encode_with_special(bytes.substr(0, 1000))) {
    CHECK(!tokenizer->bytes(id).empty());
  }
  return 0;
}
