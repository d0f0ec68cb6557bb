#include "eval/score_journal.h"

#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/file.h"

namespace pelton::eval {
namespace {

class ScoreJournalFile : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = testing::TempDir() + fmt::format("score_journal_test.{}", ::getpid());
    std::filesystem::remove(path_);
  }
  void TearDown() override { std::filesystem::remove(path_); }

  ScoreJournal open(const std::string& digest = "d") {
    Result<ScoreJournal> journal = ScoreJournal::open(path_, digest);
    EXPECT_TRUE(journal.ok()) << journal.error().message;
    return *std::move(journal);
  }

  std::string path_;
};

// Numbers that no short text is equal to.
std::vector<PositionScore> scores_of(int from, int count) {
  std::vector<PositionScore> scores;
  for (int i = from; i < from + count; ++i) {
    scores.push_back({.nats = std::sqrt(i),
                      .other_nats = std::log(i + 0.5),
                      .divergence = std::exp(-i) / 3,
                      .agrees = i % 2 == 0});
  }
  return scores;
}

void expect_known(const ScoreJournal& journal, const std::vector<PositionScore>& scores) {
  ASSERT_EQ(journal.known().size(), scores.size());
  for (size_t i = 0; i < scores.size(); ++i) {
    EXPECT_EQ(journal.known()[i].nats, scores[i].nats);
    EXPECT_EQ(journal.known()[i].other_nats, scores[i].other_nats);
    EXPECT_EQ(journal.known()[i].divergence, scores[i].divergence);
    EXPECT_EQ(journal.known()[i].agrees, scores[i].agrees);
  }
}

TEST_F(ScoreJournalFile, WhatWasKeptIsKnownToTheBit) {
  {
    ScoreJournal journal = open();
    EXPECT_TRUE(journal.known().empty());
    ASSERT_TRUE(journal.keep(scores_of(1, 7)).ok());
    ASSERT_TRUE(journal.keep(scores_of(8, 3)).ok());
  }
  expect_known(open(), scores_of(1, 10));
}

// Killed amid a line: that window is computed again, and stands behind what is left of the line.
TEST_F(ScoreJournalFile, ALineThatWasCutIsComputedAgain) {
  for (size_t cut = 1; cut < 60; cut += 7) {
    std::filesystem::remove(path_);
    {
      ScoreJournal journal = open();
      ASSERT_TRUE(journal.keep(scores_of(1, 7)).ok());
      ASSERT_TRUE(journal.keep(scores_of(8, 3)).ok());
    }
    std::filesystem::resize_file(path_, std::filesystem::file_size(path_) - 1 - cut);
    {
      ScoreJournal journal = open();
      expect_known(journal, scores_of(1, 7));
      ASSERT_TRUE(journal.keep(scores_of(8, 5)).ok());
    }
    expect_known(open(), scores_of(1, 12));
  }
}

TEST_F(ScoreJournalFile, WhatStandsBehindAGapIsNotKnown) {
  {
    ScoreJournal journal = open();
    ASSERT_TRUE(journal.keep(scores_of(1, 4)).ok());
    ASSERT_TRUE(journal.keep(scores_of(5, 4)).ok());
    ASSERT_TRUE(journal.keep(scores_of(9, 4)).ok());
  }
  std::string text = *base::read_file(path_);
  const size_t second = text.find('\n', text.find('\n') + 1) + 1;
  text.erase(second, text.find('\n', second) + 1 - second);
  ASSERT_TRUE(base::write_file(path_, text).ok());
  expect_known(open(), scores_of(1, 4));
}

TEST_F(ScoreJournalFile, OneOfSomethingElseIsRefused) {
  ASSERT_TRUE(open("a text").keep(scores_of(1, 4)).ok());
  for (const char* const text : {"", "{}", "[1]\n", "what it is\n"}) {
    if (*text != '\0') {
      ASSERT_TRUE(base::write_file(path_, text).ok());
    }
    const Result<ScoreJournal> other = ScoreJournal::open(path_, "another");
    ASSERT_FALSE(other.ok());
    EXPECT_EQ(other.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(other.error().message.find(path_), std::string::npos);
  }
}

}  // namespace
}  // namespace pelton::eval
