#include "launch/gpu_budget.h"

#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "launch/test_scaled_fleet.h"

namespace pelton::launch {
namespace {

TEST(GpuBudgetExample, WhoComesFirstTakesWhatItNeeds) {
  const std::vector<GpuUser> users = {{.gpus_each = 2, .wanted = 3, .running = 1},
                                      {.gpus_each = 0, .wanted = 9, .running = 9},
                                      {.gpus_each = 1, .wanted = 5, .running = 5}};
  const std::vector<GpuShare> shares = share_gpus(8, users);
  EXPECT_EQ(shares[0].most, 4) << "nobody stands before it";
  EXPECT_EQ(shares[0].room, 0) << "7 of 8 are taken, and it wants 2";
  EXPECT_GT(shares[1].most, 1000) << "it takes none";
  EXPECT_EQ(shares[2].most, 2) << "3 of 2 each are wanted before it";
  EXPECT_EQ(shares[2].room, 1);
}

TEST(GpuBudgetTest, WhatThoseBehindAreNeverWithoutIsKept) {
  const std::vector<GpuUser> users = {{.gpus_each = 1, .wanted = 8},
                                      {.gpus_each = 1, .least = 2, .wanted = 2}};
  EXPECT_EQ(share_gpus(8, users)[0].most, 6);
  EXPECT_EQ(share_gpus(8, users)[1].most, 2) << "whatever the first one was last to have";
  // Fewer than are kept is none, never less.
  EXPECT_EQ(share_gpus(1, users)[0].most, 0);
}

class GpuBudgetFleet : public FleetScalerTest {
 protected:
  // Each by one GPU, of four.
  void scale_both() {
    ScaledPool low{.name = "q"};
    low.policy.replicas_max = 4;
    low.policy.gpus_each = 1;
    low.policy.concurrency_target = 1;
    low.start_s = 10;
    ScaledPool high = low;
    high.name = "p";
    high.policy.replicas_max = 3;
    high.priority = 1;
    scaler_ =
        std::make_unique<FleetScaler>(std::vector{low, high}, launcher_, fleet_, clock_, log_);
    scaler_->share_gpus(4);
    scaler_->turn(false);
  }
  void hold_for(const std::string& pool, int count) {
    fleet_.of_pool[pool].requests += count;
    fleet_.of_pool[pool].held += count;
    scaler_->turn(true);
  }
  int all() const { return launcher_.running("p") + launcher_.running("q"); }
};

TEST_F(GpuBudgetFleet, WhatOnePoolTakesByItsPriorityAnotherOneLoses) {
  fleet_.of_pool = {{"p", {}}, {"q", {}}};
  scale_both();
  hold_for("q", 12);
  EXPECT_EQ(launcher_.running("q"), 4) << "nobody else wants any";
  all_ready();
  hold_for("p", 9);
  EXPECT_EQ(launcher_.running("p"), 0) << "there is no room yet";
  const FleetScaler::PoolState low = scaler_->states()[1];
  EXPECT_EQ(low.pool, "q") << "in the order of their priority";
  EXPECT_EQ(low.decision.reason, autoscaler::Reason::kGpus);
  EXPECT_EQ(low.gpus_most, 1);
  for (int i = 0; i < 20; ++i) {
    pass(0.5);
    ASSERT_LE(all(), 4);
  }
  EXPECT_EQ(launcher_.running("p"), 3);
  EXPECT_EQ(launcher_.running("q"), 1);
}

// With no GPU left for one beside it the oldest goes first.
TEST_F(GpuBudgetFleet, AReplacementIsNoReasonToTakeMore) {
  fleet_.of_pool = {{"p", {}}};
  for (int i = 0; i < 2; ++i) {
    launcher_.replicas[i] = {.order = {.pool = "p", .ordinal = i, .token = 1},
                             .port = 100 + i,
                             .outdated = "other --max-num-seqs"};
    launcher_.replicas[i].host = "h";
  }
  ScaledPool pool{.name = "p"};
  pool.policy.replicas_min = 2;
  pool.policy.replicas_max = 9;
  pool.policy.gpus_each = 1;
  pool.rolls = true;
  scaler_ = std::make_unique<FleetScaler>(std::vector{pool}, launcher_, fleet_, clock_, log_);
  scaler_->share_gpus(2);
  all_ready();
  for (int i = 0; i < 10; ++i) {
    pass(0.5);
    ASSERT_LE(all(), 2);
  }
  EXPECT_FALSE(launcher_.stopped.empty());
}

}  // namespace
}  // namespace pelton::launch
