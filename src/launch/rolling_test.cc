// Replicas that run with other arguments than their pool has now, and what takes their place.
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "launch/test_scaled_fleet.h"

namespace pelton::launch {
namespace {

class RollingTest : public FleetScalerTest {
 protected:
  // So many that were there, with what has changed since, and of which `most` there may be.
  void find(int count, int most, bool rolls, int standby = 0) {
    for (int i = 0; i < count; ++i) {
      launcher_.replicas[i] = {.order = {.pool = "p", .ordinal = i, .token = 1},
                               .port = 200 + i,
                               .outdated = "other --max-num-seqs"};
      launcher_.replicas[i].host = "h";
      fleet_.known.push_back({.host = "h", .port = 200 + i, .is_ready = true, .slots = 64});
    }
    ScaledPool pool{.name = "p"};
    pool.policy.replicas_min = count - standby;
    pool.policy.replicas_max = most;
    pool.policy.concurrency_target = 64;
    pool.policy.standby = standby;
    pool.start_s = 10;
    pool.rolls = rolls;
    scaler_ = std::make_unique<FleetScaler>(std::vector{pool}, launcher_, fleet_, clock_, log_);
    scaler_->turn(false);
  }
  FleetScaler::PoolState state() const { return scaler_->states()[0]; }
};

TEST_F(RollingTest, WhatIsOutdatedIsKeptAndSaid) {
  find(2, 3, false);
  pass(60);
  EXPECT_TRUE(launcher_.orders.empty());
  EXPECT_TRUE(launcher_.stopped.empty());
  EXPECT_EQ(state().outdated,
            (std::map<std::string, std::string>{{"p-0", "other --max-num-seqs"},
                                                {"p-1", "other --max-num-seqs"}}));
}

TEST_F(RollingTest, EachIsReplacedOnceAnotherOneIsReady) {
  find(2, 9, true);
  pass(20);
  ASSERT_EQ(launcher_.orders.size(), 1u) << "one at a time";
  EXPECT_TRUE(launcher_.stopped.empty()) << "it is not ready";
  become_ready(2);
  pass(5);
  ASSERT_EQ(launcher_.stopped.size(), 1u);
  ASSERT_EQ(launcher_.orders.size(), 2u);
  EXPECT_EQ(state().outdated.size(), 1u);
  become_ready(launcher_.orders[1].ordinal);
  pass(30);
  EXPECT_EQ(launcher_.stopped.size(), 2u);
  EXPECT_EQ(launcher_.orders.size(), 2u) << "it is done";
  EXPECT_TRUE(state().outdated.empty());
  EXPECT_EQ(state().ready, 2);
}

TEST_F(RollingTest, ReplacementsThatDoNotStartCostNothing) {
  find(2, 3, true);
  pass(1);
  for (int i = 0; i < 5 && launcher_.replicas.contains(2); ++i) {
    launcher_.end(2, "ended with exit code 4");
    pass(30);
  }
  EXPECT_TRUE(launcher_.stopped.empty());
  EXPECT_EQ(launcher_.orders.size(), 1u) << "it is not tried for ever";
  EXPECT_EQ(state().ready, 2);
  EXPECT_EQ(fleet_.announced.failure, "");
}

// With room for many, and one that stands by besides: no more are started than there were.
TEST_F(RollingTest, ItEndsWhateverStandsByAndHoweverMuchRoomThereIs) {
  find(3, 9, true, 1);
  int most = 0;
  for (int i = 0; i < 60; ++i) {
    pass(3);
    for (const ReplicaOrder& one : std::vector<ReplicaOrder>(launcher_.orders)) {
      const bool is_known = std::ranges::any_of(
          fleet_.known, [&](const auto& known) { return known.port == 100 + one.ordinal; });
      if (!is_known) become_ready(one.ordinal);
    }
    most = std::max(most, launcher_.running("p"));
  }
  EXPECT_TRUE(state().outdated.empty());
  EXPECT_GE(state().ready, 2);
  EXPECT_EQ(state().standby, 1);
  EXPECT_LE(most, 5) << "those that there were, one on standby, and one beside them";
  EXPECT_LE(launcher_.orders.size(), 4u) << "it does not go on for ever";
}

TEST_F(RollingTest, WithoutRoomOneGoesFirst) {
  find(2, 2, true);
  pass(1);
  ASSERT_EQ(launcher_.stopped.size(), 1u);
  pass(20);
  EXPECT_EQ(launcher_.stopped.size(), 1u) << "the next one waits for its replacement";
  ASSERT_EQ(launcher_.orders.size(), 1u);
  become_ready(launcher_.orders[0].ordinal);
  pass(5);
  EXPECT_EQ(launcher_.stopped.size(), 2u);
  ASSERT_EQ(launcher_.orders.size(), 2u);
  become_ready(launcher_.orders[1].ordinal);
  pass(5);
  EXPECT_TRUE(state().outdated.empty());
}

}  // namespace
}  // namespace pelton::launch
