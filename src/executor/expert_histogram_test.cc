#include "executor/expert_histogram.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/file.h"

namespace pelton::executor {
namespace {

class ExpertHistogramTest : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(file_); }

  const std::string file_ = testing::TempDir() + "histogram_" + std::to_string(::getpid());
};

TEST_F(ExpertHistogramTest, AddsUpFromStartToStart) {
  const auto first = ExpertHistogram::open(file_);
  ASSERT_TRUE(first.ok()) << first.error().message;
  EXPECT_TRUE(first->before().empty());
  ASSERT_TRUE(first->keep({{}, {3, 0, 12}}).ok());
  const auto second = ExpertHistogram::open(file_);
  ASSERT_TRUE(second.ok()) << second.error().message;
  EXPECT_EQ(second->before(), (layers::ExpertLoads{{}, {3, 0, 12}}));
  ASSERT_TRUE(second->keep({{}, {1, 2, 3}}).ok());
  EXPECT_EQ(ExpertHistogram::open(file_)->before(), (layers::ExpertLoads{{}, {4, 2, 15}}));
}

TEST_F(ExpertHistogramTest, AnotherFileIsRefusedByItsName) {
  for (const char* const text : {"", "[]", "{}", R"({"chosen": 1})", R"({"chosen": [1]})",
                                 R"({"chosen": [[-1]]})", R"({"chosen": [["a"]]})"}) {
    ASSERT_TRUE(base::write_file(file_, text).ok());
    const auto read = ExpertHistogram::open(file_);
    ASSERT_FALSE(read.ok()) << text;
    EXPECT_THAT(read.error().message, testing::HasSubstr(file_));
  }
}

}  // namespace
}  // namespace pelton::executor
