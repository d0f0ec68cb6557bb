// Tiers of a replica's prefix cache under a load that comes again after pauses.
#include <algorithm>

#include <gtest/gtest.h>

#include "simulator/scenario.h"
#include "simulator/simulation.h"
#include "workload/spec.h"

namespace pelton::simulator {
namespace {

constexpr int kUnbounded = 1 << 20;  // blocks: more than the whole day has

// The scenario's day with an eighth of its conversations on an eighth of its memory.
class AgentsDay : public testing::Test {
 protected:
  AgentsDay() {
    const std::vector<Scenario> all = built_in_scenarios();
    const auto day = std::ranges::find(all, "agents-day", &Scenario::name);
    EXPECT_NE(day, all.end());
    workload::WorkloadSpec spec = *workload::parse_spec(*day->workload, day->name);
    spec.count /= 8;
    spec.arrivals.rate /= 8;
    workload_ = *workload::make_workload(spec, workload::ids_vocabulary(1000));
  }

  // Hits, as a share of all prompts; hosts and disks as multiples of the device.
  double found(int host, int disk) const {
    constexpr int64_t kBlockBytes = int64_t{18} * 2 * 8 * 64 * 2 * 64;  // of 64 tokens, 18 layers
    constexpr int kFull = 2600;
    constexpr int kWindow = 600;
    const auto blocks = [&](int device) {
      const int on_disk = disk == kUnbounded ? kUnbounded : disk * device;
      return kv::PerTier<int>{device, host * device, on_disk};
    };
    SimulationOptions options;
    options.replica.capacity = {
        .block_tokens = 64,
        .groups = {{{.name = "full", .block_bytes = kBlockBytes}, blocks(kFull)},
                   {{.name = "window", .sliding_window = 128, .block_bytes = kBlockBytes},
                    blocks(kWindow)}},
        .sequences_max = 64,
        .batch_tokens_max = 8192,
        .context_tokens_max = 131'072,
        .vocab_size = 1000};
    options.replica.paths.host = {.bytes_per_s = 50e9, .latency_s = 1e-5};
    options.replica.paths.disk = {.bytes_per_s = 6e9, .latency_s = 1e-4};
    options.replica.disk_writes = kv::DiskWrites::kAll;
    const cost_model::StepTimeModel times =
        *cost_model::StepTimeModel::make({.hardware = *cost_model::find_hardware("h200"),
                                          .shape = *cost_model::find_model_config("gpt-oss-120b")});
    const Result<SimulationResult> result = simulate(options, workload_, times);
    EXPECT_TRUE(result.ok()) << result.error().message;
    const engine::SchedulerCounters& counts = result->replicas.front().scheduler;
    return static_cast<double>(counts.prompt_tokens_cached) /
           static_cast<double>(std::max<int64_t>(counts.prompt_tokens, 1));
  }

  workload::Workload workload_;
};

TEST_F(AgentsDay, ADiskOfTwentyTimesTheDeviceFindsNearlyAll) {
  const double all = found(2, kUnbounded);
  EXPECT_GT(all, 0.5) << "that is repeated";
  EXPECT_GE(found(2, 20), 0.95 * all);
  EXPECT_LT(found(0, 0), 0.7 * all) << "a disk is not needed for that";
}

}  // namespace
}  // namespace pelton::simulator
