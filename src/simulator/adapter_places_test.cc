#include "simulator/adapter_places.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pelton::simulator {
namespace {

using Answer = AdapterPlaces::Answer;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr int64_t kMs = 1'000'000;

class AdapterPlacesTest : public testing::Test {
 protected:
  // What begins when the next thing happens; the clock stands there.
  std::vector<int64_t> next() {
    std::vector<int64_t> begun;
    now_ns_ = places_.wakes_at_ns().value();
    places_.wake(now_ns_, begun);
    return begun;
  }

  int64_t now_ns_ = 0;
  AdapterPlaces places_{{.resident_max = 2,
                         .load_ns = 20 * kMs,
                         .loads_per_second = 10,
                         .waiting_max = 4,
                         .patience_ns = 1000 * kMs}};
};

TEST_F(AdapterPlacesTest, one_is_loaded_for_all_who_wait_for_it) {
  EXPECT_EQ(places_.ask(0, 1, 100), Answer::kWaits);
  EXPECT_EQ(places_.ask(5 * kMs, 1, 101), Answer::kWaits);
  EXPECT_THAT(next(), ElementsAre(100, 101));
  EXPECT_EQ(now_ns_, 20 * kMs);
  EXPECT_EQ(places_.ask(now_ns_, 1, 102), Answer::kInMemory);
  EXPECT_EQ(places_.uses(), 3);
  EXPECT_EQ(places_.counts().hits, 1);
  EXPECT_EQ(places_.counts().misses, 2);
  EXPECT_EQ(places_.counts().loads, 1);
  EXPECT_EQ(places_.counts().waited_ns, 35 * kMs);
  EXPECT_FALSE(places_.wakes_at_ns().has_value());
}

// A first burst of as many as there are places, then one each tenth of a second.
TEST_F(AdapterPlacesTest, loads_have_a_rate) {
  std::vector<int64_t> ends;
  for (int64_t adapter = 1; adapter <= 4; ++adapter) {
    EXPECT_EQ(places_.ask(now_ns_, adapter, adapter), Answer::kWaits);
    for (std::vector<int64_t> begun; begun.empty();) begun = next();
    ends.push_back(now_ns_ / kMs);
    places_.release(now_ns_, adapter);
  }
  // At 40 ms 0.4 of a load has come back, so the third begins at 100 ms.
  EXPECT_THAT(ends, ElementsAre(20, 40, 120, 220));
  EXPECT_EQ(places_.counts().evictions, 2);
  EXPECT_EQ(places_.counts().resident_max, 2);
}

TEST_F(AdapterPlacesTest, the_least_recently_used_makes_room) {
  for (const int64_t adapter : {1, 2}) {
    places_.ask(now_ns_, adapter, adapter);
    next();
    places_.release(now_ns_, adapter);
  }
  EXPECT_EQ(places_.ask(now_ns_, 1, 10), Answer::kInMemory);
  places_.release(now_ns_, 1);
  places_.ask(now_ns_, 3, 11);
  while (places_.counts().loads < 3) next();
  EXPECT_THAT(places_.residents(), ElementsAre(1, 3));
}

// Both are in use without end; after a second the one that has been there longest takes no more,
// and is there again when the other has had its turn.
TEST_F(AdapterPlacesTest, who_waits_for_long_has_the_place_of_the_oldest) {
  for (const int64_t adapter : {1, 2}) {
    places_.ask(now_ns_, adapter, adapter);
    next();
  }
  const int64_t asked_ns = now_ns_;
  EXPECT_EQ(places_.ask(now_ns_, 3, 3), Answer::kWaits);
  while (places_.wakes_at_ns()) EXPECT_THAT(next(), IsEmpty());
  // Its turn among the loads comes first: at 100 ms, 60 behind the asking.
  EXPECT_EQ((now_ns_ - asked_ns) / kMs, 60 + 1000);
  EXPECT_EQ(places_.ask(now_ns_, 1, 4), Answer::kWaits);
  EXPECT_EQ(places_.ask(now_ns_, 2, 5), Answer::kInMemory);
  places_.release(now_ns_, 1);
  EXPECT_THAT(next(), ElementsAre(3));
  places_.release(now_ns_, 3);
  std::vector<int64_t> begun;
  while (begun.empty()) begun = next();
  EXPECT_THAT(begun, ElementsAre(4));
}

TEST_F(AdapterPlacesTest, only_so_many_wait) {
  for (int64_t request = 0; request < 4; ++request) {
    EXPECT_EQ(places_.ask(0, request + 1, request), Answer::kWaits);
  }
  EXPECT_EQ(places_.ask(0, 1, 4), Answer::kRefused);
  EXPECT_EQ(places_.counts().refused, 1);
  EXPECT_EQ(places_.waiting_count(), 4);
}

}  // namespace
}  // namespace pelton::simulator
