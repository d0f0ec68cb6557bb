// Any text is a grammar that compiles within its limits, or an Error with words; and what compiles
// runs: the machine's way through some bytes neither ends nor grows oddly.
#include <cstdint>

#include "base/check.h"
#include "grammar/ebnf.h"
#include "grammar/matcher.h"
#include "grammar/token_trie.h"

namespace pelton::grammar {
namespace {

std::shared_ptr<const TokenTrie> byte_tokens() {
  std::vector<std::string> texts;
  for (int byte = 0; byte < 256; ++byte) texts.emplace_back(1, static_cast<char>(byte));
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  return std::make_shared<const TokenTrie>(views);
}

void check(std::string_view text) {
  static const std::shared_ptr<const TokenTrie> trie = byte_tokens();
  const Result<std::shared_ptr<const Grammar>> grammar = compile_ebnf(text);
  if (!grammar.ok()) {
    CHECK(!grammar.error().message.empty());
    return;
  }
  const auto tokens = TokenGrammar::make(*grammar, trie);
  CHECK(tokens.ok());
  Matcher matcher(*tokens);
  std::vector<uint64_t> mask((*tokens)->trie().mask_words());
  const auto is_allowed = [&](int byte) {
    return (mask[static_cast<size_t>(byte) / 64] >> (byte % 64) & 1) != 0;
  };
  // A text of the grammar's own: always the allowed byte after the one chosen by the text itself.
  for (size_t i = 0; i < 24; ++i) {
    matcher.fill_mask(mask);
    const int wanted = i < text.size() ? static_cast<uint8_t>(text[text.size() - 1 - i]) : 0;
    CHECK(is_allowed(wanted) == matcher.allows(wanted));
    int byte = -1;
    for (int step = 0; step < 256 && byte < 0; ++step) {
      if (is_allowed((wanted + step) % 256)) byte = (wanted + step) % 256;
    }
    CHECK(byte >= 0 || matcher.can_end() || matcher.is_stuck());
    if (byte < 0) break;
    CHECK(matcher.accept(byte));
  }
}

}  // namespace
}  // namespace pelton::grammar

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  pelton::grammar::check({reinterpret_cast<const char*>(data), size});
  return 0;
}
