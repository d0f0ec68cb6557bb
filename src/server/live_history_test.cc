#include "server/live_history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"

namespace pelton::server {
namespace {

using testing::HasSubstr;

LiveCounters counters(int64_t output, std::vector<int64_t> first_token = {0, 0, 0}) {
  LiveCounters counters;
  counters.output_tokens = output;
  counters.steps = output / 10;
  counters.running = 2;
  counters.waiting = 1;
  counters.first_bounds = {0.1, 0.2};
  counters.first_token = std::move(first_token);
  counters.inter_bounds = {0.1, 0.2};
  counters.inter_token = {0, 0, 0};
  counters.kv = {{.name = "full", .used = output, .total = 4'000}};
  return counters;
}

// At that millisecond of both clocks.
void note(LiveHistory& history, const LiveCounters& counters, int64_t ms) {
  history.note(counters, ms * 1'000'000, ms);
}

Json last(const LiveHistory& history) {
  const Result<Json> json = Json::parse(history.after(history.after(0).newest - 1).samples);
  EXPECT_TRUE(json.ok());
  return json.ok() ? json->as_array().back() : Json();
}

TEST(LiveHistoryExample, CountersBecomeRatesAndPercentiles) {
  LiveHistory history;
  note(history, counters(1'200), 10'000);
  EXPECT_EQ(history.after(0).newest, 0) << "nothing to count from";
  EXPECT_EQ(history.after(0).samples, "");
  note(history, counters(1'500, {5, 10, 10}), 11'000);
  const Json sample = last(history);
  EXPECT_EQ(sample.number("output"), 300);
  EXPECT_EQ(sample.number("steps"), 30);
  EXPECT_EQ(sample.integer("running"), 2);
  EXPECT_EQ(sample.integer("waiting"), 1);
  EXPECT_EQ(sample.integer("at"), 11'000);
  EXPECT_NEAR(sample.find("first")->as_array()[0].as_number(), 0.1, 1e-6);
  EXPECT_NEAR(sample.find("first")->as_array()[1].as_number(), 0.19, 1e-6);
  EXPECT_TRUE(sample.find("between")->is_null()) << "nothing was observed";
  EXPECT_TRUE(sample.find("hits")->is_null());
  EXPECT_NEAR(sample.find("kv")->number("full").value(), 1'500.0 / 4'000, 1e-6);
}

TEST(LiveHistoryTest, WhatIsBeyondTheLastBoundIsTheLastBound) {
  LiveHistory history;
  note(history, counters(0), 1'000);
  note(history, counters(0, {0, 0, 7}), 2'000);
  EXPECT_NEAR(last(history).find("first")->as_array()[1].as_number(), 0.2, 1e-6);
}

TEST(LiveHistoryTest, AModelThatGoesTakesNothingBelowZero) {
  LiveHistory history;
  note(history, counters(1'000, {5, 10, 10}), 1'000);
  note(history, counters(500, {1, 1, 1}), 2'000);
  EXPECT_EQ(last(history).number("output"), 0);
  EXPECT_TRUE(last(history).find("first")->is_null());
  // Noted twice at one moment.
  note(history, counters(600), 1'500);
  note(history, counters(700), 1'500);
  note(history, counters(900), 2'500);
  EXPECT_EQ(last(history).number("output"), 200);
}

TEST(LiveHistoryTest, ACalendarThatJumpsChangesNoRate) {
  LiveHistory history;
  history.note(counters(0), 1'000'000'000, 1'700'000'000'000);
  history.note(counters(300), 2'000'000'000, 1'600'000'000'000);
  EXPECT_EQ(last(history).number("output"), 300);
  EXPECT_EQ(last(history).integer("at"), 1'600'000'000'000);
}

TEST(LiveHistoryTest, FifteenMinutesAreKeptAndGoOnFromAnyOfThem) {
  LiveHistory history;
  for (int i = 0; i < 2'001; ++i) note(history, counters(i), 1'000 + 1'000 * i);
  EXPECT_EQ(history.after(0).newest, 2'000);
  const auto size = [&](int64_t after) {
    const std::string text = history.after(after).samples;
    return text.empty() ? size_t{0} : Json::parse(text)->as_array().size();
  };
  EXPECT_EQ(size(0), LiveHistory::kSamples);
  EXPECT_EQ(size(1'998), 2u);
  EXPECT_EQ(size(2'000), 0u);
  EXPECT_EQ(size(5'000), LiveHistory::kSamples) << "of an earlier start";
  EXPECT_THAT(history.after(1'999).samples, HasSubstr("{\"n\":2000,"));
}

}  // namespace
}  // namespace pelton::server
