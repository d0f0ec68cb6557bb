// Prompt lookup (Saxena 2023): proposes what followed the latest earlier place of the sequence's
// last n tokens, for the largest n between two bounds for which there is one. A table by slot from
// the hash of n tokens to where they stood last; what it says is compared with the text, so a
// collision costs a guess at most.
#pragma once

#include <vector>

#include "speculative/proposer.h"

namespace pelton::speculative {

class NGram final : public Proposer {
 public:
  static constexpr int kLengthMax = 16;

  struct Options {
    int slot_count = 0;
    int shortest = 5;  // prompt_lookup_min, 1 to longest
    int longest = 5;   // prompt_lookup_max, at most kLengthMax
  };

  explicit NGram(const Options& options);
  static int64_t bytes_for(const Options& options);

  std::string_view name() const override { return "ngram"; }
  void begin(const NewSequence& sequence) override;
  void append(int slot, std::span<const TokenId> tokens, size_t first_new) override;
  Result<void> draft(std::span<DraftRequest> requests) override;
  int64_t bytes() const override;

 private:
  // Entries of a slot's table: places of that many n-grams, the latest ones.
  static constexpr size_t kPlaces = size_t{1} << 15;

  struct Slot {
    std::vector<int32_t> places;  // tokens up to and with the last one of an n-gram; 0: none
    int32_t earlier[kLengthMax + 1] = {};  // by n: where the last n tokens stood before; 0: nowhere
  };

  const Options options_;
  std::vector<Slot> slots_;
};

}  // namespace pelton::speculative
