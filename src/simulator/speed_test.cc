// How many times faster than the simulated fleet the simulation is, by processor time, so that a
// busy machine does not decide the test. The musts are those of one core of a server; that differs
// by seven between one host and the next's busy one (15 to 111 times), so they are asked under
// PELTON_FULL alone.
#include <cstdlib>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/machine.h"
#include "report/summary.h"
#include "simulator/simulation.h"

namespace pelton::simulator {
namespace {

struct Speed {
  double times_real = 0;
  double ns_per_row = 0;
  int running_max = 0;
};

struct FleetOf {
  std::string gpu;
  std::string model;
  cost_model::Arithmetic arithmetic;
  int running = 1;
  int output_tokens = 256;
};

// The musts hold for optimized code on a machine that does nothing else.
bool times_are_asked() {
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  return std::getenv("PELTON_FULL") != nullptr;
#else
  return false;
#endif
}

// Ten replicas, each with so many answers at a time, until each has been busy with twice as many.
Speed measure(const FleetOf& of) {
  const cost_model::StepTimeModel times =
      *cost_model::StepTimeModel::make({.hardware = *cost_model::find_hardware(of.gpu),
                                        .shape = *cost_model::find_model_config(of.model),
                                        .arithmetic = of.arithmetic});
  SimulationOptions options;
  options.replica_count = 10;
  options.keeps_pieces = false;
  options.concurrency_max = 10 * of.running;
  options.replica.capacity = {
      .groups = {{{.name = "full"}, {of.running * 64}},
                 {{.name = "window", .sliding_window = 128}, {of.running * 24}}},
      .sequences_max = of.running,
      .batch_tokens_max = 2048,
      .context_tokens_max = 4096,
      .vocab_size = 1000};
  workload::WorkloadSpec spec;
  spec.lengths = {.input_tokens = 128, .output_tokens = of.output_tokens, .range_ratio = 0.3};
  spec.count = 20 * of.running;
  spec.arrivals.rate = std::numeric_limits<double>::infinity();
  const workload::Workload load = *workload::make_workload(spec, workload::ids_vocabulary(1000));
  const int64_t begin_ns = base::thread_cpu_ns();
  const SimulationResult result = *simulate(options, load, times);
  const double took = static_cast<double>(base::thread_cpu_ns() - begin_ns) * 1e-9;
  Speed speed{.times_real = result.duration_s / took};
  int64_t rows = 0;
  for (const ReplicaCounts& counts : result.replicas) {
    rows += counts.rows;
    speed.running_max = std::max(speed.running_max, counts.running_max);
  }
  speed.ns_per_row = took * 1e9 / static_cast<double>(rows);
  fmt::print("{} on {}: 10 replicas x {} running: {:.0f} x real time, {:.0f} ns a row\n", of.model,
             of.gpu, of.running, speed.times_real, speed.ns_per_row);
  return speed;
}

TEST(SimulationSpeed, TenReplicasOf256AreFiftyTimesReal) {
  const Speed speed = measure({.gpu = "h100",
                               .model = "gpt-oss-120b",
                               .arithmetic = cost_model::Arithmetic::kBf16,
                               .running = 256});
  EXPECT_EQ(speed.running_max, 256);
  if (times_are_asked()) {
    EXPECT_GT(speed.times_real, 50);
  }
}

TEST(SimulationSpeed, TenReplicasOfEightAreAThousandTimesReal) {
  const Speed speed = measure({.gpu = "cpu-zen4-2",
                               .model = "gpt-oss-20b",
                               .arithmetic = cost_model::Arithmetic::kInt8,
                               .running = 8});
  EXPECT_EQ(speed.running_max, 8);
  if (times_are_asked()) {
    EXPECT_GT(speed.times_real, 1000);
  }
  // For the record: the same on a fast GPU.
  (void)measure({.gpu = "h100",
                 .model = "gpt-oss-120b",
                 .arithmetic = cost_model::Arithmetic::kBf16,
                 .running = 8,
                 .output_tokens = 1000});
}

}  // namespace
}  // namespace pelton::simulator
