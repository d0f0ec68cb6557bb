// A rank file is an Error or a tokenizer that gives text back.
#include <cstdint>
#include <string>

#include "base/check.h"
#include "base/random.h"
#include "base/utf8.h"
#include "tokenizer/tiktoken_file.h"
#include "tokenizer/tokenizer.h"

// Making a tokenizer takes a hundred times as long as reading the file; so only some files that are
// accepted, always the same ones, go on.
constexpr uint64_t kOneIn = 16;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using pelton::tokenizer::Tokenizer;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto parts = pelton::tokenizer::read_tiktoken(text, "fuzz");
  if (!parts.ok()) {
    CHECK(parts.error().message.starts_with("fuzz: "));
    return 0;
  }
  if (pelton::base::fnv1a64(text) % kOneIn != 0) return 0;
  const pelton::Result<Tokenizer> tokenizer = Tokenizer::from_tiktoken(text, "fuzz");
  if (!tokenizer.ok()) {
    CHECK(tokenizer.error().message.starts_with("fuzz: "));
    return 0;
  }
  CHECK(tokenizer->decode(tokenizer->encode(text)) == pelton::base::replace_invalid_utf8(text));
  return 0;
}
