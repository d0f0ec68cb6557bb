#include "gateway/router.h"

#include <map>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"

namespace pelton::gateway {
namespace {

TEST(Router, TakesTheLeastLoadedForItsSize) {
  const std::vector<Candidate> two = {{.slots = 8, .running = 4}, {.slots = 64, .running = 8}};
  for (uint64_t draw = 0; draw < 10; ++draw) EXPECT_EQ(choose_worker(two, draw), 1u);
}

TEST(Router, CountsWhatTheReportDoesNotHaveYet) {
  std::vector<Candidate> three(3, Candidate{.slots = 4});
  std::map<size_t, int> chosen;
  for (uint64_t i = 0; i < 300; ++i) {
    const size_t one = *choose_worker(three, base::random_bits(1, i));
    ++three[one].uncounted;
    ++chosen[one];
  }
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(chosen[i], 100, 1);
}

TEST(Router, EqualsAreDrawn) {
  const std::vector<Candidate> four(4, Candidate{.slots = 4, .running = 2});
  std::map<size_t, int> chosen;
  for (uint64_t i = 0; i < 4000; ++i) ++chosen[*choose_worker(four, base::random_bits(2, i))];
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(chosen[i], 1000, 120);
}

TEST(Router, NobodyUsableIsNobody) {
  EXPECT_FALSE(choose_worker({}, 0).has_value());
  const std::vector<Candidate> one = {{.usable = false}};
  EXPECT_FALSE(choose_worker(one, 0).has_value());
  const std::vector<Candidate> without_slots = {{.slots = 0, .running = 5}};
  EXPECT_EQ(choose_worker(without_slots, 7), 0u);
}

}  // namespace
}  // namespace pelton::gateway
