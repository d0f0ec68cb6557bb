#include "chat/text_network.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace pelton::chat {

std::shared_ptr<const TurnGrammar> text_network(
    std::shared_ptr<const grammar::TokenGrammar> grammar, const std::vector<TokenId>& ends) {
  // The grammar outlives its trie's other users; the network keeps both.
  TurnGrammar::Parts parts;
  parts.trie = std::shared_ptr<const grammar::TokenTrie>(grammar, &grammar->trie());
  auto& text = parts.segments.emplace_back();
  text.text = TurnGrammar::Segment::Text::kGrammar;
  text.grammar = std::move(grammar);
  for (const TokenId end : ends) {
    CHECK(end >= 0 && end < grammar::kExitTokenMax, "an end that is no token");
    parts.vocab_size = std::max(parts.vocab_size, end + 1);
    text.exits.push_back({end, {}});
  }
  parts.starts = {0};
  return std::make_shared<const TurnGrammar>(std::move(parts));
}

}  // namespace pelton::chat
