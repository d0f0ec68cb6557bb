#include "bench/latency_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"

namespace pelton::bench {
namespace {

LatencyReport summed_up() {
  LatencyReport report{
      .batch_size = 2, .input_len = 100, .kernels = "avx2", .bytes_per_step = 1000};
  const std::vector<LatencyRun> runs = {{.prefill_s = {0.25, 0.75},
                                         .step_s = {0.1, 0.1, 0.4},
                                         .bandwidth_before = 10'000,
                                         .bandwidth_after = 20'000},
                                        {.prefill_s = {1, 1},
                                         .step_s = {0.2, 0.2, 0.2},
                                         .bandwidth_before = 30'000,
                                         .bandwidth_after = 10'000},
                                        {.prefill_s = {2, 2},
                                         .step_s = {0.5, 0.5, 0.5},
                                         .bandwidth_before = 10'000,
                                         .bandwidth_after = 10'000}};
  summarize_runs(runs, report);
  return report;
}

TEST(LatencyReport, MediansOfTheRuns) {
  const LatencyReport report = summed_up();
  EXPECT_EQ(report.runs, 3);
  EXPECT_DOUBLE_EQ(report.prefill_tok_s, 100) << "of 200, 100 and 50";
  EXPECT_NEAR(report.decode_tok_s, 10, 1e-9) << "of 10, 10 and 4";
  EXPECT_DOUBLE_EQ(report.step_ms_p50, 200);
  EXPECT_DOUBLE_EQ(report.step_ms_max, 500);
  EXPECT_DOUBLE_EQ(report.bandwidth_low, 10'000);
  EXPECT_DOUBLE_EQ(report.bandwidth_high, 30'000);
}

// 1000 bytes at the faster of the two probes, of the step: 0.05 / 0.2, 0.0333 / 0.2, 0.1 / 0.5.
TEST(LatencyReport, AShareIsOfTheFasterProbe) {
  const LatencyReport report = summed_up();
  EXPECT_NEAR(report.share, 0.2, 1e-9);
  EXPECT_NEAR(report.share_of_median_step, 0.2, 1e-9) << "of 0.5, 0.167 and 0.2";
}

// On a small model a step takes microseconds, and losing the processor once takes milliseconds: by
// the means of the runs these adapters would be 0.002 of the base.
TEST(LatencyReport, AStepThatIsHeldUpIsOneOfManyPairs) {
  LatencyReport report{.batch_size = 1, .input_len = 10, .bytes_per_step = 1000};
  LatencyRun run{.prefill_s = {0.2, 0.2, 5},
                 .step_s = {5e-5, 4e-5, 0.08, 5e-5},
                 .bandwidth_before = 1000,
                 .bandwidth_after = 1000,
                 .base_prefill_s = {0.1, 0.1, 0.1},
                 .base_step_s = {4e-5, 4e-5, 4e-5, 4e-5}};
  report.adapters = 1;
  summarize_runs({&run, 1}, report);
  EXPECT_NEAR(report.decode_over_base, 0.8, 1e-9) << "of 0.8, 1, 0.0005 and 0.8";
  EXPECT_NEAR(report.prefill_over_base, 0.5, 1e-9);
  EXPECT_NEAR(report.base_decode_tok_s, 25'000, 1e-6);
  EXPECT_THAT(latency_text(report), testing::HasSubstr("prefill 0.500, decode 0.800"));
  EXPECT_EQ(Json::parse(latency_json(report)).value().number("decode_over_base"),
            report.decode_over_base);
}

TEST(LatencyReport, ForProgramsAndForPeople) {
  const LatencyReport report = summed_up();
  const std::string text = latency_json(report);
  EXPECT_TRUE(text.ends_with("}\n"));
  const Json json = Json::parse(text).value();
  EXPECT_EQ(json.integer("batch_size"), 2);
  EXPECT_EQ(json.integer("runs"), 3);
  EXPECT_EQ(json.string("kernels"), "avx2");
  EXPECT_DOUBLE_EQ(json.number("prefill_tok_s").value(), 100);
  EXPECT_THAT(latency_text(report), testing::HasSubstr("prefill          100.00 tokens/s"));
  EXPECT_THAT(latency_text(report), testing::HasSubstr("of which decode uses 20 %"));
}

}  // namespace
}  // namespace pelton::bench
