#include "simulator/fleet_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pelton::simulator {
namespace {

using testing::HasSubstr;

TEST(FleetText, SumsWhatTheReplicasDid) {
  SimulationOptions options;
  options.replica_count = 2;
  options.replica.capacity.sequences_max = 8;
  SimulationResult result;
  result.duration_s = 10;
  result.redispatched = 3;
  result.replicas.resize(2);
  for (ReplicaCounts& counts : result.replicas) {
    counts.steps = 100;
    counts.rows = 400;
    counts.busy_ns = 5'000'000'000;
    counts.scheduler.prompt_tokens = 1000;
    counts.scheduler.prompt_tokens_cached = 250;
    counts.scheduler.preemptions_swap = 1;
  }
  EXPECT_DOUBLE_EQ(cached_share(result), 0.25);
  const std::string text = fleet_text(options, result, "50 %", 0.1);
  EXPECT_THAT(text, HasSubstr("2 replicas: load 50 %"));
  EXPECT_THAT(text, HasSubstr("running 50.0 % of the time, with 4.0 of 8 sequences (50 %)"));
  EXPECT_THAT(text, HasSubstr("200 steps (0 failed)"));
  EXPECT_THAT(text, HasSubstr("in the cache 25.0 %; preemptions 2; redispatched 3; unfinished 0"));
  EXPECT_THAT(text, HasSubstr("100 times faster"));
}

TEST(FleetText, OfARunInWhichNothingHappened) {
  SimulationOptions options;
  options.replica_count = 1;
  options.replica.capacity.sequences_max = 8;
  SimulationResult result;
  result.duration_s = 1;
  result.replicas.resize(1);
  EXPECT_EQ(cached_share(result), 0);
  EXPECT_THAT(fleet_text(options, result, "none", 1), HasSubstr("1 replica: load none"));
}

// What is fresher than in a fleet of processes is said.
TEST(FleetText, SaysWhatIsHeardSoonerThanInReality) {
  SimulationOptions options;
  options.replica_count = 2;
  options.replica.capacity.sequences_max = 8;
  options.dispatch = Dispatcher::Policy::kCost;
  SimulationResult result;
  result.replicas.resize(2);
  EXPECT_THAT(fleet_text(options, result, "", 1), HasSubstr("--report-interval 100"));
  options.report_s = 0.1;
  EXPECT_THAT(fleet_text(options, result, "", 1), testing::Not(HasSubstr("--report-interval")));
  options.autoscaling.emplace();
  EXPECT_THAT(fleet_text(options, result, "", 1), HasSubstr("--facts-delay"));
  options.autoscaling->facts_delay_s = 1;
  EXPECT_THAT(fleet_text(options, result, "", 1), testing::Not(HasSubstr("--facts-delay")));
}

// All was refused at once: no time has gone by that a step could have run in.
TEST(FleetText, OfARunThatTookNoTime) {
  SimulationOptions options;
  options.replica_count = 1;
  options.replica.capacity.sequences_max = 8;
  SimulationResult result;
  result.replicas.resize(1);
  const std::string text = fleet_text(options, result, "none", 1);
  EXPECT_THAT(text, HasSubstr("no step was running, with 0.0 of 8 sequences"));
  EXPECT_THAT(text, testing::Not(HasSubstr("nan")));
}

}  // namespace
}  // namespace pelton::simulator
