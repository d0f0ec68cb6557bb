// Computes the tokens that may come next at a position: one top after the other, each by what is
// cached for its like, or by a walk over the vocabulary's tree. Scratch, for one call.
#pragma once

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
  explicit MaskFiller(const TokenGrammar& grammar);

  // Sets the bits of what may come; clears none.
  void fill(const Position& position, std::span<uint64_t> mask);

 private:
  struct Build;  // of an entry

  void fill_top(uint32_t top);
  void fill_text(uint32_t top);     // a string
  void fill_watched(uint32_t top);  // a string whose value counts
  void fill_key(uint32_t top);
  void fill_probed(uint32_t top);  // by the entry of its like
  void fill_by_walk(const ByteTrie& trie, std::span<const uint32_t> tops);
  void add_entry(const MaskEntry& entry);
  void add_inside(const MaskEntry& entry);  // only tokens without a quotation mark
  void add_rests(const MaskEntry& entry, uint32_t top);

  // The tokens that stay in a text of `dfa` from there on, or end it.
  std::shared_ptr<const MaskEntry> text_entry(const StringDfa& dfa, const Frame& frame,
                                              uint64_t need, uint64_t room);
  std::shared_ptr<const MaskEntry> build_text(const StringSpec& spec, const Frame& frame);
  void walk_text(Build& build, const StringSpec& spec, const Frame& frame);
  std::shared_ptr<const MaskEntry> probed_entry(const Frame& frame);
  std::shared_ptr<const MaskEntry> lexeme_entry(const Frame& frame);
  void walk_lexeme(Build& build, const Frame& frame, std::vector<uint32_t>& ends);
  void walk_probe(Build& build, uint32_t begin, uint32_t end, std::span<const uint32_t> tops);
  void leave_at(Build& build, uint32_t node);
  void drop_allowed(Build& build);
  std::shared_ptr<const MaskEntry> finish(Build& build);

  const TokenGrammar& grammar_;
  Machine machine_;
  const TokenTrie& trie_;
  MaskCache& cache_;
  std::span<uint64_t> mask_;
  std::vector<std::vector<uint32_t>> levels_;  // tops by depth
  std::vector<Machine::Mark> marks_;
};

}  // namespace pelton::grammar
