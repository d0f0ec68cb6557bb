#include "bench/latency_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"

namespace pelton::bench {
namespace {

LatencyReport summed_up() {
  LatencyReport report{
      .batch_size = 2, .input_len = 100, .kernels = "avx2", .bytes_per_step = 1000};
  const std::vector<LatencyRun> runs = {{.prefill_s = 1,
                                         .step_s = {0.1, 0.1, 0.4},
                                         .bandwidth_before = 10'000,
                                         .bandwidth_after = 20'000},
                                        {.prefill_s = 2,
                                         .step_s = {0.2, 0.2, 0.2},
                                         .bandwidth_before = 30'000,
                                         .bandwidth_after = 10'000},
                                        {.prefill_s = 4,
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
