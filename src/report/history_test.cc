#include "report/history.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pelton::report {
namespace {

using testing::HasSubstr;

Json result(double ttft, double throughput, int concurrency) {
  return Json::parse(R"({"date":"20260101-000000","backend":"openai","model_id":"m","itls":[[1]],)"
                     R"("max_concurrency":)" +
                     std::to_string(concurrency) + R"(,"duration":1,"completed":1,)" +
                     R"("median_ttft_ms":)" + std::to_string(ttft) + R"(,"output_throughput":)" +
                     std::to_string(throughput) +
                     R"(,"pelton":{"input_len":3,"quantiles_ms":{},"concurrency":[]}})")
      .value();
}

class HistoryTest : public testing::Test {
 protected:
  HistoryTest() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    file_ = testing::TempDir() + "pelton_history_" + test->name() + ".db";
    std::filesystem::remove(file_);
  }
  ~HistoryTest() override { std::filesystem::remove(file_); }
  std::string file_;
};

TEST_F(HistoryTest, KeepsAndFinds) {
  {
    auto history = History::open(file_);
    ASSERT_TRUE(history.ok()) << history.error().message;
    for (int i = 0; i < 5; ++i) ASSERT_TRUE(history->add(result(100 + i, 50, 8)).ok());
    ASSERT_TRUE(history->add(result(7, 50, 16)).ok());
  }
  auto history = History::open(file_);
  ASSERT_TRUE(history.ok());
  const auto alike = history->alike(result(1, 1, 8), 3);
  ASSERT_TRUE(alike.ok());
  ASSERT_EQ(alike->size(), 3u);
  EXPECT_EQ((*alike)[0].json.number("median_ttft_ms"), 104);
  EXPECT_EQ((*alike)[0].json.find("itls"), nullptr) << "lists stay in their own files";
  EXPECT_EQ((*alike)[0].json.find("pelton")->find("quantiles_ms"), nullptr);
  EXPECT_EQ((*alike)[0].json.find("pelton")->integer("input_len"), 3);
  EXPECT_EQ(history->alike(result(1, 1, 4), 3)->size(), 0u);
  const auto all = history->newest(100);
  EXPECT_EQ(all->size(), 6u);
  EXPECT_THAT(history_text(*all, 0), HasSubstr("20260101-000000"));
}

TEST_F(HistoryTest, WhatIsWorseIsShown) {
  std::vector<PastResult> before;
  for (const double ttft : {100.0, 90.0, 112.0}) {
    before.push_back({.id = 1, .date = {}, .json = result(ttft, 50, 8)});
  }
  EXPECT_TRUE(regressions(result(111, 49, 8), before).empty()) << "within what was seen before";
  EXPECT_TRUE(regressions(result(20, 500, 8), before).empty()) << "better";
  const auto found = regressions(result(140, 30, 8), before);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].figure.key, "output_throughput");
  EXPECT_EQ(found[1].before, 100);
  EXPECT_EQ(found[1].now, 140);
  EXPECT_THAT(regressions_text(found, 3), HasSubstr("+40.0 %"));
  EXPECT_THAT(regressions_text({}, 3), HasSubstr("no worse"));
  EXPECT_THAT(regressions_text({}, 0), HasSubstr("first"));
  EXPECT_TRUE(regressions(result(1000, 1, 8), {}).empty());
}

TEST_F(HistoryTest, ReadingMakesNoFile) {
  const auto missing = History::open_existing(file_);
  ASSERT_FALSE(missing.ok());
  EXPECT_THAT(missing.error().message, HasSubstr("does not exist"));
  EXPECT_FALSE(std::filesystem::exists(file_));
  ASSERT_TRUE(History::open(file_)->add(result(1, 50, 8)).ok());
  auto history = History::open_existing(file_);
  ASSERT_TRUE(history.ok()) << history.error().message;
  EXPECT_EQ(history->newest(9)->size(), 1u);
  EXPECT_FALSE(history->add(result(2, 50, 8)).ok()) << "opened to be read";
}

TEST_F(HistoryTest, AFileThatIsNoneOfOurs) {
  std::ofstream(file_) << "this is a letter to my aunt, and no database at all, dear aunt";
  const auto history = History::open(file_);
  ASSERT_FALSE(history.ok());
  EXPECT_THAT(history.error().message, HasSubstr(file_));
  EXPECT_FALSE(History::open("/nowhere/at/all.db").ok());
}

}  // namespace
}  // namespace pelton::report
