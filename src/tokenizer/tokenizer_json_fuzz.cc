// A tokenizer.json is an Error or a tokenizer, which gives text back if it is one of bytes.
#include <cstdint>
#include <string>

#include "base/check.h"
#include "base/random.h"
#include "base/utf8.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_json.h"

// Making a tokenizer takes a hundred times as long as reading the file; so only some files that are
// accepted, always the same ones, go on.
constexpr uint64_t kOneIn = 16;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using pelton::tokenizer::Tokenizer;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto parts = pelton::tokenizer::read_tokenizer_json(text, "fuzz");
  if (!parts.ok()) {
    CHECK(parts.error().message.starts_with("fuzz: "));
    return 0;
  }
  if (pelton::base::fnv1a64(text) % kOneIn != 0) return 0;
  const pelton::Result<Tokenizer> tokenizer = Tokenizer::from_json(text, "fuzz");
  if (!tokenizer.ok()) {
    CHECK(tokenizer.error().message.starts_with("fuzz: "));
    return 0;
  }
  // The file itself will do as a text.
  const std::string_view sample = text.substr(0, 1000);
  bool is_of_bytes = !parts->sentence_pieces && !parts->word_pieces;
  for (const auto& token : parts->added) {
    is_of_bytes = is_of_bytes && !token.strips_left && !token.strips_right;
  }
  if (!is_of_bytes) {
    for (const auto id : tokenizer->encode_with_special(sample)) {
      CHECK(!tokenizer->bytes(id).empty());
    }
    return 0;
  }
  CHECK(tokenizer->decode(tokenizer->encode(sample)) == pelton::base::replace_invalid_utf8(sample));
  CHECK(tokenizer->decode(tokenizer->encode_with_special(sample)) ==
        pelton::base::replace_invalid_utf8(sample));
  return 0;
}
