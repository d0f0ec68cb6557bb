// Trees of what is left of tokens: subtrees of other trees (byte_trie.h) laid upon each other.
// Bytes that a grammar does not distinguish become one, so a tree over a small alphabet is small,
// however large the vocabulary: under [a-z], "the" and "cat" are one path. Pure; any thread.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <span>
#include <vector>

#include "grammar/byte_trie.h"
#include "grammar/work_budget.h"

namespace pelton::grammar {

struct RuleNetwork;

// By byte: the first byte that the grammar does not distinguish from it.
using ByteAliases = std::array<uint8_t, 256>;

ByteAliases every_byte_itself();
// Of rules alone, without JSON beside them.
ByteAliases aliases_of(const RuleNetwork& rules);
int alias_count(const ByteAliases& aliases);

// What lies below one node: the texts that are left of its tokens.
struct TrieRest {
  const ByteTrie* trie = nullptr;
  uint32_t node = 0;
  const std::bitset<256>* first = nullptr;  // null: they may begin with any byte
};

// Nodes and tokens are gone over faster than the machine steps: so many for one step of work.
inline constexpr uint64_t kNodesAStep = 8;

// The rests' tokens, without those that `dropped` (a mask; empty: none) has, and without tokens of
// which nothing is left. Some are missing if the budget is exhausted.
ByteTrie merge_rests(std::span<const TrieRest> rests, const ByteAliases& aliases,
                     std::span<const uint64_t> dropped, WorkBudget& budget);

}  // namespace pelton::grammar
