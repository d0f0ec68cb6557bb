#include "cost_model/request_overhead.h"

#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cost_model/slices.h"

namespace pelton::cost_model {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

constexpr int64_t kMs = 1'000'000;

MeasuredStep step_of(int64_t submitted_ms, int64_t ended_ms, int64_t prompt, bool after_pause) {
  MeasuredStep step{.seconds = static_cast<double>(ended_ms - submitted_ms) * 1e-3,
                    .submitted_ns = submitted_ms * kMs,
                    .ended_ns = ended_ms * kMs,
                    .after_pause = after_pause};
  step.load.add_row(0, prompt, 1, {0, 128});
  return step;
}

double mean(const std::vector<double>& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), 0.0) / static_cast<double>(numbers.size());
}

TEST(RequestOverhead, IsWhatLiesAroundAPromptsStep) {
  std::vector<MeasuredStep> steps;
  std::vector<MeasuredRequest> requests;
  for (int64_t i = 0; i < 10; ++i) {
    const int64_t at = 100 * i;
    // 2 ms in, or 4; 10 ms of step; 1 ms out. Then steps that say nothing: a token, and a prompt
    // that had to wait for it.
    steps.push_back(step_of(at + 4, at + 14, 20, true));
    requests.push_back(
        {.start_ns = (at + (i % 2 == 0 ? 2 : 0)) * kMs, .first_token_ns = (at + 15) * kMs});
    steps.push_back(step_of(at + 14, at + 16, 1, false));
    steps.push_back(step_of(at + 16, at + 26, 20, false));
    requests.push_back({.start_ns = (at + 15) * kMs, .first_token_ns = (at + 29) * kMs});
  }
  const Result<RequestOverhead> overhead = request_overhead(steps, requests);
  ASSERT_TRUE(overhead.ok()) << overhead.error().message;
  EXPECT_NEAR(overhead->in_s, 0.003, 1e-9);
  EXPECT_NEAR(overhead->out_s, 0.001, 1e-9);
  EXPECT_THAT(overhead->in_residuals, SizeIs(kSlices));
  EXPECT_NEAR(overhead->in_residuals.front(), 2.0 / 3, 1e-9);
  EXPECT_NEAR(overhead->in_residuals.back(), 4.0 / 3, 1e-9);
  EXPECT_NEAR(mean(overhead->in_residuals), 1, 1e-9);
  EXPECT_THAT(overhead->out_residuals, Each(testing::DoubleNear(1, 1e-9)));

  Json json;
  json.set("overhead", overhead_json(*overhead));
  const Result<RequestOverhead> again = read_overhead(json, "again");
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->in_s, overhead->in_s);
  EXPECT_EQ(again->in_residuals, overhead->in_residuals);
}

// Of another machine, whose clock began elsewhere, or of another run.
TEST(RequestOverhead, RefusesAResultThatIsNotOfTheseSteps) {
  std::vector<MeasuredStep> steps;
  std::vector<MeasuredRequest> requests;
  for (int64_t i = 0; i < 10; ++i) {
    steps.push_back(step_of(100 * i, 100 * i + 10, 20, true));
    requests.push_back({.start_ns = (5000 + 100 * i) * kMs, .first_token_ns = 9000 * kMs});
  }
  const Result<RequestOverhead> overhead = request_overhead(steps, requests);
  ASSERT_FALSE(overhead.ok());
  EXPECT_THAT(overhead.error().message, HasSubstr("0 requests"));
}

TEST(RequestOverhead, ReadsWithinBoundsOnly) {
  const auto read = [](std::string_view text) { return read_overhead(*Json::parse(text), "file"); };
  EXPECT_TRUE(read("{}").ok());
  EXPECT_EQ(read(R"({"overhead":{"in_s":0.5}})")->in_s, 0.5);
  EXPECT_THAT(read(R"({"overhead":{"out_s":61}})").error().message, HasSubstr("out_s"));
  EXPECT_THAT(read(R"({"overhead":{"in_residuals":[1,2]}})").error().message, HasSubstr("50"));
}

TEST(Slices, KeepTheMeanAndTheEnds) {
  std::vector<double> measured;
  for (int i = 1; i <= 500; ++i) measured.push_back(501 - i);
  const std::vector<double> slices = slices_of(measured);
  ASSERT_THAT(slices, SizeIs(kSlices));
  EXPECT_EQ(slices.front(), 5.5);
  EXPECT_EQ(slices.back(), 495.5);
  EXPECT_NEAR(mean(slices), mean(measured), 1e-9);
  EXPECT_EQ(draw(slices, 0), slices.front());
  EXPECT_EQ(draw(slices, 0.999999), slices.back());
  EXPECT_EQ(draw({}, 0.5), 1);
  EXPECT_THAT(slices_of({}), ElementsAre());
  EXPECT_THAT(slices_of({7}), Each(7));
}

TEST(Slices, OfWeightsKeepTheWeightedMean) {
  std::vector<Weighted> alike;
  std::vector<double> values;
  std::vector<Weighted> measured;
  double sum = 0;
  double whole = 0;
  for (int i = 1; i <= 500; ++i) {
    alike.push_back({.value = 501.0 - i, .weight = 2});
    values.push_back(501.0 - i);
    measured.push_back({.value = static_cast<double>(i), .weight = i % 7 == 0 ? 30.0 : 0.5});
    sum += measured.back().value * measured.back().weight;
    whole += measured.back().weight;
  }
  const std::vector<double> even = weighted_slices_of(alike);
  const std::vector<double> plain = slices_of(values);
  ASSERT_THAT(even, SizeIs(kSlices));
  for (size_t i = 0; i < even.size(); ++i) EXPECT_NEAR(even[i], plain[i], 1e-9) << i;
  EXPECT_NEAR(mean(weighted_slices_of(measured)), sum / whole, 1e-6 * sum / whole);
  EXPECT_THAT(weighted_slices_of({}), ElementsAre());
  EXPECT_THAT(weighted_slices_of({{.value = 7, .weight = 1e-9}}),
              Each(testing::DoubleNear(7, 1e-6)));
}

}  // namespace
}  // namespace pelton::cost_model
