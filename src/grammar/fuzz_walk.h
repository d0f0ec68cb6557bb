// What the fuzz targets of compiled grammars do with one: walk through it by drawn tokens. It must
// not crash, disagree with itself, or lead where the matcher does not say that it is stuck.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <vector>

#include "grammar/test_vocabulary.h"

namespace pelton::grammar {

inline void walk_by_drawn_tokens(std::shared_ptr<const Grammar> grammar, uint64_t seed) {
  Matcher matcher = matcher_of(std::move(grammar));
  const int vocab_size = matcher.grammar().trie().vocab_size();
  std::vector<uint64_t> mask(matcher.grammar().trie().mask_words());
  const auto is_allowed = [&](TokenId token) {
    return (mask[static_cast<size_t>(token) / 64] >> (token % 64) & 1) != 0;
  };
  uint64_t random = seed * 0x9e3779b97f4a7c15 + 1;
  for (int step = 0; step < 24; ++step) {
    matcher.fill_mask(mask);
    std::vector<TokenId> allowed;
    for (TokenId token = 0; token < vocab_size; ++token) {
      if (is_allowed(token)) allowed.push_back(token);
    }
    if (allowed.empty()) return;
    random = random * 6364136223846793005 + 1442695040888963407;
    const auto drawn = static_cast<TokenId>((random >> 33) % static_cast<uint64_t>(vocab_size));
    if (is_allowed(drawn) != matcher.allows(drawn)) std::abort();
    if (!matcher.accept(allowed[(random >> 17) % allowed.size()])) std::abort();
  }
}

}  // namespace pelton::grammar
