// Any bytes encode under o200k and decode to themselves; pieces are those of the pattern.
#include <cstdint>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/utf8.h"
#include "tokenizer/o200k_splitter.h"
#include "tokenizer/regex_splitter.h"
#include "tokenizer/tokenizer.h"

namespace pelton::tokenizer {
namespace {

std::vector<size_t> ends(const Splitter& splitter, std::string_view text) {
  std::vector<size_t> out;
  splitter.split(text, [&](std::string_view piece) {
    out.push_back(static_cast<size_t>(piece.data() + piece.size() - text.data()));
  });
  return out;
}

void check(std::string_view text) {
  static const Tokenizer tokenizer =
      Tokenizer::load(PELTON_SOURCE_DIR "/testdata/tokenizer/o200k_base.tiktoken").value();
  static const std::unique_ptr<RegexSplitter> by_pattern =
      RegexSplitter::compile({std::string(kO200kPattern)}).value();
  const std::string repaired = base::replace_invalid_utf8(text);
  const std::vector<TokenId> ids = tokenizer.encode(text);
  CHECK(tokenizer.decode(ids) == repaired);
  for (const TokenId id : ids) CHECK(!tokenizer.is_special(id));
  CHECK(tokenizer.decode(tokenizer.encode_with_special(text)) == repaired);
  CHECK(ends(O200kSplitter(), repaired) == ends(*by_pattern, repaired));
}

}  // namespace
}  // namespace pelton::tokenizer

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  pelton::tokenizer::check({reinterpret_cast<const char*>(data), size});
  return 0;
}
