// Which tokens go to which expert in one step: assignment numbers (token * k + j) sorted by expert,
// so that an expert's weights are read once for all its tokens. Owned by the kernels; their thread.
//
// Two tokens, k = 2, choose {3, 1} and {1, 0}: the assignments 0 to 3 go to the experts 3, 1, 1, 0.
// Sorted (by counting): assignments() is {3, 1, 2, 0}; active() is expert 0 with one from place 0
// on, expert 1 with two from 1 on, expert 3 with one from 3 on. Assignment 2 is of token 2 / k = 1.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/kernels.h"

namespace pelton::kernels {

struct ActiveExpert {
  int expert;
  int begin;  // into ExpertGroups::assignments
  int count;
};

class ExpertGroups {
 public:
  void reserve(const StepCapacity& shape);
  int64_t bytes() const;

  // choices: (tokens, k), of which those that other ranks compute are left out. dealt: null, or
  // which of `experts` each is.
  void group(const ExpertChoice* choices, int tokens, int k, int experts, RowExchange* dealt);

  // By rising expert; within one, by rising token.
  const std::vector<int>& assignments() const { return assignments_; }
  // The experts that somebody chose, and where theirs lie.
  const std::vector<ActiveExpert>& active() const { return active_; }

 private:
  std::vector<int> counts_;
  std::vector<int> assignments_;
  std::vector<ActiveExpert> active_;
};

}  // namespace pelton::kernels
