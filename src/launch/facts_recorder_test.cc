#include "launch/facts_recorder.h"

#include <filesystem>
#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"

namespace pelton::launch {
namespace {

TEST(FactsRecorderTest, AFileThatIsFullBecomesTheEarlierOneAndEachIsReplayedByItself) {
  std::string made = testing::TempDir() + "recorder_XXXXXX";
  ASSERT_NE(::mkdtemp(made.data()), nullptr);
  const std::string path = made + "/facts";
  const base::SystemClock clock;
  base::Log log(clock, {.level = base::LogLevel::kNone});
  auto recorder = FactsRecorder::open(path, 40'000, log);
  ASSERT_TRUE(recorder.ok()) << recorder.error().message;
  const autoscaler::PoolPolicy policy{.replicas_max = 4};
  autoscaler::PoolScaler scaler(policy);
  (*recorder)->begin("p", policy, scaler.state());
  autoscaler::PoolFacts facts;
  facts.gateways = {{.gateway = "g", .incarnation = 1}};
  int files = 0;
  for (int64_t second = 1; second < 200; ++second) {
    facts.gateways[0].sequence = static_cast<uint64_t>(second);
    facts.gateways[0].requests += 3;
    const int64_t now_ns = second * 1'000'000'000;
    (*recorder)->note("p", now_ns, facts, scaler.decide(facts, now_ns));
    if (!(*recorder)->is_full()) continue;
    ++files;
    (*recorder)->renew();
    (*recorder)->begin("p", policy, scaler.state());
  }
  EXPECT_GT(files, 2);
  for (const std::string& file : {path, path + ".1"}) {
    const Result<std::string> text = base::read_file(file, 100'000);
    ASSERT_TRUE(text.ok()) << file;
    EXPECT_LT(text->size(), 60'000u);
    autoscaler::FactsReplay replay;
    int decisions = 0;
    for (size_t at = 0; at < text->size();) {
      const size_t end = text->find('\n', at);
      ASSERT_NE(end, std::string::npos);
      const auto outcome = replay.feed(std::string_view(*text).substr(at, end - at));
      ASSERT_TRUE(outcome.ok()) << outcome.error().message;
      ASSERT_TRUE(outcome->is_equal);
      decisions += outcome->is_decision ? 1 : 0;
      at = end + 1;
    }
    // The newest may have just begun.
    EXPECT_GT(decisions, file == path ? -1 : 3) << file;
  }
  EXPECT_FALSE(FactsRecorder::open(made + "/no/such/folder", 1, log).ok());
  std::filesystem::remove_all(made);
}

// What led to the end of whoever recorded it is wanted just then.
TEST(FactsRecorderTest, WhatTheLastStartRecordedIsKept) {
  std::string made = testing::TempDir() + "recorder_XXXXXX";
  ASSERT_NE(::mkdtemp(made.data()), nullptr);
  const std::string path = made + "/facts";
  const base::SystemClock clock;
  base::Log log(clock, {.level = base::LogLevel::kNone});
  const autoscaler::PoolPolicy policy{.replicas_max = 4};
  for (const char* pool : {"first", "second"}) {
    auto recorder = FactsRecorder::open(path, FactsRecorder::kBytesMax, log);
    ASSERT_TRUE(recorder.ok()) << recorder.error().message;
    (*recorder)->begin(pool, policy, "");
  }
  const Result<std::string> earlier = base::read_file(path + ".1", 100'000);
  ASSERT_TRUE(earlier.ok()) << earlier.error().message;
  EXPECT_NE(earlier->find("first"), std::string::npos);
  const Result<std::string> now = base::read_file(path, 100'000);
  ASSERT_TRUE(now.ok());
  EXPECT_EQ(now->find("first"), std::string::npos);
  EXPECT_NE(now->find("second"), std::string::npos);
  std::filesystem::remove_all(made);
}

}  // namespace
}  // namespace pelton::launch
