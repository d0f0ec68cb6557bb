#include "grammar/trie_merge.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "grammar/rules.h"

namespace pelton::grammar {
namespace {

constexpr int kBytes = 256;

// How many of a tree's tokens are not dropped, by their place: whether a subtree has any is a
// difference.
class KeptTokens {
 public:
  KeptTokens(const ByteTrie& trie, std::span<const uint64_t> dropped) : begin_(all(trie).data()) {
    if (dropped.empty()) return;
    before_.reserve(all(trie).size() + 1);
    before_.push_back(0);
    for (const TokenId token : all(trie)) {
      const uint64_t bit = dropped[static_cast<size_t>(token) / 64] >> (token % 64) & 1;
      before_.push_back(before_.back() + (bit == 0 ? 1 : 0));
    }
  }

  bool any(std::span<const TokenId> tokens) const {
    if (before_.empty()) return !tokens.empty();
    const auto first = static_cast<size_t>(tokens.data() - begin_);
    return before_[first + tokens.size()] > before_[first];
  }
  bool keeps(const TokenId* token) const { return any({token, 1}); }

 private:
  static std::span<const TokenId> all(const ByteTrie& trie) { return trie.tokens_below(0); }

  const TokenId* begin_;
  std::vector<uint32_t> before_;  // empty: all are kept
};

// Lays the subtrees upon each other, level by level: of all nodes at one depth those whose bytes
// are aliases become one. Of the tokens the (1), cat (2) and at (3) under [a-z], where all letters
// are aliases of a: the root's children a, c and t become node 1; theirs, t, a and h, node 2 with
// token 3; theirs, t and e, node 3 with tokens 1 and 2. Three nodes are walked instead of eight.
// With 3 dropped, node 2 has no token.
class Merge {
 public:
  Merge(const ByteAliases& aliases, std::span<const uint64_t> dropped, WorkBudget& budget)
      : aliases_(aliases), dropped_(dropped), budget_(budget) {}

  ByteTrie run(std::span<const TrieRest> rests) {
    open(0, 0);
    for (const TrieRest& rest : rests) add_children(rest, levels_[0]);
    levels_[0].sort();
    for (size_t depth = 0;;) {
      Level& level = levels_[depth];
      if (level.next == level.children.size()) {
        close(level);
        if (depth == 0) break;
        --depth;
        continue;
      }
      descend(depth);
      ++depth;
    }
    budget_.spend(visited_ / kNodesAStep);
    return {std::move(nodes_), std::move(tokens_)};
  }

 private:
  struct Child {
    uint8_t byte = 0;
    uint32_t node = 0;
    const ByteTrie* trie = nullptr;
    const KeptTokens* kept = nullptr;
  };
  // A node of the result, and what lies below it in the trees that it is made of.
  struct Level {
    size_t node = 0;
    std::vector<Child> children;
    size_t next = 0;
    void sort() {
      std::stable_sort(children.begin(), children.end(),
                       [](const Child& a, const Child& b) { return a.byte < b.byte; });
    }
  };

  Level& open(size_t depth, uint8_t byte) {
    if (levels_.size() == depth) levels_.emplace_back();
    Level& level = levels_[depth];
    level.node = nodes_.size();
    level.children.clear();
    level.next = 0;
    nodes_.push_back({.byte = byte,
                      .depth = static_cast<uint16_t>(depth),
                      .token_begin = static_cast<uint32_t>(tokens_.size())});
    return level;
  }

  // The children of a level that are alike become one node. Nothing is below it once the budget is
  // exhausted.
  void descend(size_t depth) {
    const size_t begin = levels_[depth].next;
    const uint8_t byte = levels_[depth].children[begin].byte;
    Level& below = open(depth + 1, byte);
    Level& level = levels_[depth];  // where it is now
    size_t end = begin;
    for (; end < level.children.size() && level.children[end].byte == byte; ++end) {
      const Child& child = level.children[end];
      for (const TokenId& token : child.trie->tokens_of(child.node)) {
        if (child.kept->keeps(&token)) tokens_.push_back(token);
      }
      if (!budget_.exhausted()) add_children({.trie = child.trie, .node = child.node}, below);
    }
    level.next = end;
    below.sort();
  }

  void add_children(const TrieRest& rest, Level& level) {
    if (visited_ >= kVisitsALook) {
      budget_.spend(visited_ / kNodesAStep);
      visited_ %= kNodesAStep;
    }
    const KeptTokens& kept = kept_of(*rest.trie);
    const ByteTrie::Node* const nodes = rest.trie->nodes();
    ++visited_;
    for (uint32_t child = rest.node + 1; child < nodes[rest.node].subtree_end;
         child = nodes[child].subtree_end) {
      ++visited_;
      const uint8_t byte = nodes[child].byte;
      if (rest.first != nullptr && !(*rest.first)[byte]) continue;
      if (!kept.any(rest.trie->tokens_below(child))) continue;
      level.children.push_back(
          {.byte = aliases_[byte], .node = child, .trie = rest.trie, .kept = &kept});
    }
  }

  void close(const Level& level) {
    nodes_[level.node].subtree_end = static_cast<uint32_t>(nodes_.size());
  }

  const KeptTokens& kept_of(const ByteTrie& trie) {
    const auto found = kept_.find(&trie);
    if (found != kept_.end()) return found->second;
    if (!dropped_.empty()) visited_ += trie.tokens_below(0).size() / 4;
    return kept_.emplace(&trie, KeptTokens(trie, dropped_)).first->second;
  }

  static constexpr uint64_t kVisitsALook = 1024;

  const ByteAliases& aliases_;
  std::span<const uint64_t> dropped_;
  WorkBudget& budget_;
  std::map<const ByteTrie*, KeptTokens> kept_;
  std::vector<Level> levels_;
  std::vector<ByteTrie::Node> nodes_;
  std::vector<TokenId> tokens_;
  uint64_t visited_ = 0;  // that the budget does not know of yet
};

// Bytes of different classes are no longer alike.
template <typename ClassOf>
void part(ByteAliases& aliases, const ClassOf& class_of) {
  std::unordered_map<int, uint8_t> first;  // by alias so far and class
  for (int byte = 0; byte < 256; ++byte) {
    uint8_t& alias = aliases[static_cast<size_t>(byte)];
    const int both = alias << 8 | static_cast<int>(class_of(byte));
    alias = first.try_emplace(both, static_cast<uint8_t>(byte)).first->second;
  }
}

}  // namespace

ByteAliases every_byte_itself() {
  ByteAliases aliases{};
  for (size_t byte = 0; byte < 256; ++byte) aliases[byte] = static_cast<uint8_t>(byte);
  return aliases;
}

ByteAliases aliases_of(const RuleNetwork& rules) {
  ByteAliases aliases{};
  std::bitset<1 << 16> seen;  // ranges
  for (const RuleNetwork::State& state : rules.states) {
    for (const RuleNetwork::ByteEdge& edge : state.bytes) {
      const size_t range = size_t{edge.low} << 8 | edge.high;
      if (seen[range]) continue;
      seen[range] = true;
      if (alias_count(aliases) == kBytes) return aliases;
      part(aliases, [&](int byte) { return byte >= edge.low && byte <= edge.high; });
    }
  }
  for (const ByteDfa& dfa : rules.dfas) {
    if (alias_count(aliases) == kBytes) return aliases;
    part(aliases, [&](int byte) { return dfa.class_of(static_cast<uint8_t>(byte)); });
  }
  return aliases;
}

int alias_count(const ByteAliases& aliases) {
  std::bitset<256> used;
  for (const uint8_t alias : aliases) used[alias] = true;
  return static_cast<int>(used.count());
}

ByteTrie merge_rests(std::span<const TrieRest> rests, const ByteAliases& aliases,
                     std::span<const uint64_t> dropped, WorkBudget& budget) {
  return Merge(aliases, dropped, budget).run(rests);
}

}  // namespace pelton::grammar
