// A tekken.json is an Error or a tokenizer that gives text back.
#include <cstdint>
#include <string>

#include "base/check.h"
#include "base/utf8.h"
#include "tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using pelton::tokenizer::Tokenizer;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const pelton::Result<Tokenizer> tokenizer = Tokenizer::from_tekken(text, "fuzz");
  if (!tokenizer.ok()) {
    CHECK(tokenizer.error().message.starts_with("fuzz: "));
    return 0;
  }
  const std::string_view sample = text.substr(0, 1000);
  CHECK(tokenizer->decode(tokenizer->encode(sample)) == pelton::base::replace_invalid_utf8(sample));
  return 0;
}
