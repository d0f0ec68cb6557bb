#include "planner/load_share.h"

#include <gtest/gtest.h>

namespace pelton::planner {
namespace {

TEST(LoadWords, SayHowMuchOfWhatCanBeAnswered) {
  EXPECT_EQ(load_words(std::nullopt, 1), "all that could be asked at once");
  EXPECT_EQ(load_words(LoadShare{.computed = 0.5}, 1),
            "50 % of what it can answer in the long run");
  EXPECT_EQ(load_words(LoadShare{.computed = 1.2, .with_cache = 0.9}, 2),
            "120 % of what they can answer in the long run (90 % with the prefix cache as here)");
}

TEST(LoadShare, OfALoadThatComesAllAtOnceIsNotKnown) {
  const workload::OfferedLoad at_once{.requests_per_s = 0};
  EXPECT_EQ(load_share({}, {.load = at_once}), std::nullopt);
}

}  // namespace
}  // namespace pelton::planner
