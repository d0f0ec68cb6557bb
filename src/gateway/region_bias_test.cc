// What is typical of a pool's predictions is said by its workers here, and not by other regions.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/clock.h"
#include "gateway/fleet.h"

namespace pelton::gateway {
namespace {

// Of regions only, which need no connection: a gateway in "eu" whose pool has another one's
// workers, and its own if `near` is said.
class FleetOfRegions {
 public:
  explicit FleetOfRegions(bool near) {
    PoolConfig pool;
    pool.name = "chat";
    pool.models = {"m"};
    std::vector<WorkerConfig> members = {
        {.pool = "chat", .host = "us.example", .port = 1, .region = "us"},
        {.pool = "chat", .host = "ap.example", .port = 1, .region = "ap"}};
    if (near) members.push_back({.pool = "chat", .host = "192.0.2.1", .port = 1});
    fleet.set_members({pool}, members, {});
    say("us");
    say("ap");
  }
  void say(const std::string& region) {
    RegionModels models;
    models["m"] = {.ready = 2, .slots = 8};
    fleet.note_region({.region = region,
                       .models = models,
                       .round_trip_s = 0.02,
                       .egress_s_per_mb = 0,
                       .dispatched = fleet.dispatched()});
  }
  // Answers of "us", twenty times as late as expected.
  void late_answers() {
    const std::vector<size_t> others = {1, 2};
    const RoutedPrompt prompt{.tokens = 500};
    for (int i = 0; i < 60; ++i) {
      const auto assignment =
          fleet.assign({.pool = "chat", .model = "m", .excluded = others, .prompt = prompt});
      ASSERT_TRUE(assignment);
      ASSERT_EQ(assignment->region, "us");
      fleet.note_first_token(*assignment, 20 * assignment->first_s);
      fleet.note_further_tokens(*assignment, 20 * assignment->token_s, 1);
      fleet.note_outcome(*assignment, Fleet::Outcome::kServed);
      say("us");
    }
  }
  double bias_of(size_t place) { return fleet.rows().at(place).bias; }

  base::VirtualClock clock;
  base::Log log{clock, {.level = base::LogLevel::kNone}};
  Fleet fleet{{.gateway = "g",
               .trust = nullptr,
               .block_seed = {},
               .peer_key = {},
               .index_bytes = size_t{1} << 16,
               .on_ready = {}},
              clock,
              log};
};

TEST(RegionBias, ALateRegionSaysNothingOfWorkersHereAndFadesToWhatTheyAre) {
  FleetOfRegions regions(true);
  regions.late_answers();
  EXPECT_GT(regions.bias_of(0), 10);
  EXPECT_DOUBLE_EQ(regions.bias_of(1), 1) << "another region";
  EXPECT_DOUBLE_EQ(regions.bias_of(2), 1) << "a worker here";
  for (int i = 0; i < 1000; ++i) {
    regions.clock.advance_ns(100'000'000);
    regions.fleet.awake_ns();
  }
  EXPECT_LT(regions.bias_of(0), 1.1) << "it is tried again";
}

TEST(RegionBias, WhereNobodyIsHereRegionsSayItThemselves) {
  FleetOfRegions regions(false);
  regions.late_answers();
  EXPECT_GT(regions.bias_of(1), 10);
}

}  // namespace
}  // namespace pelton::gateway
