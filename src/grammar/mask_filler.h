// Computes the tokens that may come next at a position: by what is cached for the like of each top,
// then by walks over the vocabulary's tree for the tokens that no top has allowed yet. In an
// ambiguous grammar most ways allow the same tokens, so most are never walked over twice.
// Scratch, for one call.
#pragma once

#include <bitset>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "grammar/machine.h"
#include "grammar/mask_cache.h"
#include "grammar/matcher.h"
#include "grammar/token_trie.h"

namespace pelton::grammar {

class MaskFiller {
 public:
  MaskFiller(const TokenGrammar& grammar, WorkBudget& budget);

  // Sets the bits of what may come; clears none. Some are missing if the budget is exhausted.
  void fill(const Position& position, std::span<uint64_t> mask);

 private:
  struct Build;  // of an entry
  using Entry = std::shared_ptr<const MaskEntry>;
  // What is left to do for a top when all entries are added.
  struct Walk {
    uint32_t top = 0;
    Entry entry;                     // its rests
    const ByteTrie* trie = nullptr;  // without an entry: these tokens
  };

  // Adds what needs no walk, and notes the walks that are left.
  void note_top(uint32_t top);
  void note_text(uint32_t top);     // a string
  void note_watched(uint32_t top);  // a string whose value counts
  void note_key(uint32_t top);
  void note_probed(uint32_t top);  // by the entry of its like
  void note_walk(const ByteTrie& trie, uint32_t top) {
    walks_.push_back({.top = top, .entry = nullptr, .trie = &trie});
  }
  void note_rests(uint32_t top, const Entry& entry);
  void count_visit(uint64_t& visited);  // of a node
  Entry find(MaskCache& cache, const MaskKey& key);
  void fill_by_walk(const ByteTrie& trie, std::span<const uint32_t> tops);
  void add_entry(const MaskEntry& entry);
  void add_inside(const MaskEntry& entry);  // only tokens without a quotation mark
  void add_rests(const MaskEntry& entry, uint32_t top);

  // The tokens that stay in a text of `dfa` from there on, or end it.
  Entry text_entry(const StringDfa& dfa, const Frame& frame, uint64_t need, uint64_t room);
  Entry build_text(const StringSpec& spec, const Frame& frame);
  void walk_text(Build& build, const StringSpec& spec, const Frame& frame);
  Entry probed_entry(const Frame& frame);
  Entry lexeme_entry(const Frame& frame);
  void walk_lexeme(Build& build, const Frame& frame, std::vector<uint32_t>& ends);
  void walk_after(Build& build, uint32_t top, std::span<const uint32_t> ends);
  // Some nodes of a tree, the first of which is a child of the place where `tops` stand.
  struct Nodes {
    const ByteTrie& trie;
    uint32_t begin = 0;
    uint32_t end = 0;
  };
  void walk_probe(Build& build, const Nodes& nodes, std::span<const uint32_t> tops);
  std::vector<uint64_t> mask_of(std::span<const TokenId> tokens) const;
  Entry finish(Build& build);
  const ByteTrie& tokens();  // TokenGrammar::tokens()
  // Null: the budget is exhausted, and what was built of it is not all.
  Entry keep(MaskCache& cache, const MaskKey& key, Entry entry);

  const TokenGrammar& grammar_;
  WorkBudget& budget_;
  Machine machine_;
  const TokenTrie& trie_;
  MaskCache& cache_;
  std::span<uint64_t> mask_;
  const ByteTrie* tokens_ = nullptr;  // once asked for
  std::vector<Walk> walks_;
  std::vector<std::vector<uint32_t>> levels_;  // tops by depth
  std::vector<Machine::Mark> marks_;
  std::bitset<256> after_number_;  // bytes that may follow one
};

}  // namespace pelton::grammar
