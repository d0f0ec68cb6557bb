// The best of many combinations at a part of the price of playing all: successive halving (Jamieson
// and Talwalkar 2016), then local search. All are played shortly, the better eighth of them eight
// times as long, and so on to the whole length; from the best its neighbours are tried until none
// is better. Whoever plays uses the same random numbers for all, so that what differs is the
// setting. Pure.
//
// Example: 2 000 combinations: all at 1/64 of the length, 250 at 1/8, 32 whole, and neighbours:
// about 95 whole plays' work.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <vector>

#include "base/result.h"

namespace pelton::planner {

struct Halving {
  // Values of each axis; a combination's number counts the first axis fastest.
  std::vector<size_t> axes;
  size_t factor = 8;
  double share_least = 1.0 / 64;  // of the whole length, for the first round
};

// Higher is better; `share` of the whole length.
using PlayCombination = std::function<Result<double>(size_t number, double share)>;

struct HalvingResult {
  size_t best = 0;
  std::map<size_t, double> scores;  // of those that were played at the whole length
  double work = 0;                  // in plays of the whole length
  size_t combinations = 0;
};

// Errors: the player's.
Result<HalvingResult> search_halving(const Halving& options, const PlayCombination& play);

}  // namespace pelton::planner
