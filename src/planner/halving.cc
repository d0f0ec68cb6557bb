#include "planner/halving.h"

#include <algorithm>
#include <utility>

namespace pelton::planner {
namespace {

using Scored = std::vector<std::pair<double, size_t>>;

// Those that differ by one place in one axis.
std::vector<size_t> neighbours(const std::vector<size_t>& axes, size_t number) {
  std::vector<size_t> all;
  size_t stride = 1;
  for (const size_t values : axes) {
    const size_t place = number / stride % values;
    if (place > 0) all.push_back(number - stride);
    if (place + 1 < values) all.push_back(number + stride);
    stride *= values;
  }
  return all;
}

Result<Scored> play_all(const std::vector<size_t>& numbers, double share,
                        const PlayCombination& play, HalvingResult& result) {
  Scored scored;
  for (const size_t number : numbers) {
    TRY_ASSIGN(const double score, play(number, share));
    scored.emplace_back(score, number);
    result.work += share;
    if (share >= 1) result.scores[number] = score;
  }
  // Of equals the first.
  std::ranges::stable_sort(scored, [](const auto& a, const auto& b) { return a.first > b.first; });
  return scored;
}

Result<void> climb(const Halving& options, const PlayCombination& play, HalvingResult& result) {
  for (bool climbs = true; climbs;) {
    climbs = false;
    for (const size_t number : neighbours(options.axes, result.best)) {
      if (result.scores.contains(number)) continue;
      TRY_ASSIGN(const double score, play(number, 1));
      result.work += 1;
      result.scores[number] = score;
    }
    for (const auto& [number, score] : result.scores) {
      if (score <= result.scores[result.best]) continue;
      result.best = number;
      climbs = true;
    }
  }
  return {};
}

}  // namespace

Result<HalvingResult> search_halving(const Halving& options, const PlayCombination& play) {
  HalvingResult result;
  result.combinations = 1;
  for (const size_t values : options.axes) result.combinations *= values;
  std::vector<size_t> alive(result.combinations);
  for (size_t i = 0; i < alive.size(); ++i) alive[i] = i;
  double share = std::min(options.share_least, 1.0);
  for (;;) {
    TRY_ASSIGN(const Scored scored, play_all(alive, share, play, result));
    result.best = scored.front().second;
    if (share >= 1) break;
    const size_t kept = std::max<size_t>((scored.size() + options.factor - 1) / options.factor, 1);
    alive.clear();
    for (size_t i = 0; i < std::min(kept, scored.size()); ++i) alive.push_back(scored[i].second);
    share = std::min(share * static_cast<double>(options.factor), 1.0);
  }
  TRY(climb(options, play, result));
  return result;
}

}  // namespace pelton::planner
