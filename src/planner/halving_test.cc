#include "planner/halving.h"

#include <cmath>

#include <gtest/gtest.h>

#include "base/random.h"

namespace pelton::planner {
namespace {

// A hill over 2 000 points whose heights are less certain the shorter one looks.
class Hill {
 public:
  explicit Hill(uint64_t seed) : seed_(seed) {
    for (size_t i = 0; i < 4; ++i) top_[i] = base::random_unit(seed, i);
  }
  double height(size_t number) const {
    double drop = 0;
    size_t left = number;
    for (size_t i = 0; i < kAxes.size(); ++i) {
      const double at = static_cast<double>(left % kAxes[i]) / static_cast<double>(kAxes[i] - 1);
      left /= kAxes[i];
      drop += (at - top_[i]) * (at - top_[i]);
    }
    return 1000 / (1 + 2 * drop);
  }
  Result<double> play(size_t number, double share) const {
    const double noise = base::random_unit(seed_, 1000 + number) - 0.5;
    return height(number) * (1 + 0.2 * noise * (1 - share));
  }
  double highest() const {
    double best = 0;
    for (size_t i = 0; i < 2000; ++i) best = std::max(best, height(i));
    return best;
  }
  static inline const std::vector<size_t> kAxes = {10, 10, 5, 4};

 private:
  uint64_t seed_;
  double top_[4] = {};
};

TEST(Halving, IsNearTheOptimumForATenthOfTheWork) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const Hill hill(seed);
    const HalvingResult found =
        *search_halving({.axes = Hill::kAxes},
                        [&](size_t number, double share) { return hill.play(number, share); });
    EXPECT_EQ(found.combinations, 2000u);
    EXPECT_LE(found.work, 200) << seed;
    EXPECT_GE(hill.height(found.best), 0.97 * hill.highest()) << seed;
  }
}

TEST(Halving, OneCombinationIsPlayedWhole) {
  int plays = 0;
  const HalvingResult found = *search_halving({.axes = {}}, [&](size_t, double) -> Result<double> {
    ++plays;
    return 1.0;
  });
  EXPECT_EQ(found.best, 0u);
  EXPECT_EQ(found.scores.size(), 1u);
  EXPECT_EQ(plays, 3);
}

TEST(Halving, ThePlayersErrorEndsIt) {
  EXPECT_FALSE(search_halving({.axes = {4}}, [](size_t, double) -> Result<double> {
                 return Error{ErrorCode::kInvalidArgument, "no", "x"};
               }).ok());
}

}  // namespace
}  // namespace pelton::planner
