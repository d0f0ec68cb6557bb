// The letters of a regular expression: the coarsest classes of code points that none of its sets
// distinguishes. An automaton over letters becomes one over UTF-8 bytes at the end. Immutable; any
// thread.
//
// Of the sets 0 = [a-z] and 1 = [aeiou]: letter 0 is what neither has, 1 the vowels, 2 the other
// letters from a to z; runs() are 0: 0, a: 1, b: 2, e: 1, f: 2, ... v: 2, {: 0; of_set(0) is 1
// and 2, of_set(1) is 1.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "grammar/byte_dfa.h"
#include "grammar/code_point_set.h"

namespace pelton::grammar {

inline constexpr uint32_t kNoLetter = UINT32_MAX;

class Letters {
 public:
  // Code points from `first` to the next run's have this letter; the last run goes to 10FFFF.
  struct Run {
    uint32_t first;
    uint32_t letter;
  };

  // Error: kDoesNotFit for more than work_max pieces of sets.
  static Result<Letters> of_sets(std::span<const CodePointSet> sets, uint64_t work_max);

  uint32_t count() const { return count_; }
  std::span<const Run> runs() const { return runs_; }
  // The letters that set number `set` consists of.
  std::span<const uint32_t> of_set(uint32_t set) const { return of_set_[set]; }

  // The texts, in UTF-8, whose letters `table` accepts. Surrogates are in no text.
  Result<ByteDfa> to_bytes(const DfaTable& table, const DfaLimits& limits) const;

 private:
  uint32_t count_ = 0;
  std::vector<Run> runs_;
  std::vector<std::vector<uint32_t>> of_set_;
};

}  // namespace pelton::grammar
