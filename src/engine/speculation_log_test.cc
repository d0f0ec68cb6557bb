#include "engine/speculation_log.h"

#include <cstdio>
#include <string>

#include <gmock/gmock.h>

namespace pelton::engine {
namespace {

using testing::HasSubstr;

class SpeculationLogTest : public testing::Test {
 protected:
  std::string written() {
    std::string text(4096, '\0');
    std::fflush(file_);
    std::rewind(file_);
    text.resize(std::fread(text.data(), 1, text.size(), file_));
    return text;
  }

  base::VirtualClock clock_;
  std::FILE* const file_ = std::tmpfile();
  base::Log log_{clock_, {.file = file_}};
  SpeculationLog lines_{log_};
};

TEST_F(SpeculationLogTest, says_once_a_minute_what_it_brought) {
  constexpr int64_t kMinute = SpeculationLog::kEveryNs;
  const std::vector<std::string> one = {"ngram"};
  SchedulerCounters counters;
  DraftController::Report report{.state = DraftController::State::kOn, .step_ns = 2e6};
  lines_.note(0, counters, report, one);
  counters.decode_rows = 100;
  counters.drafts = 50;
  counters.draft_tokens = 150;
  counters.accepted_tokens = 75;
  lines_.note(kMinute - 1, counters, report, one);
  EXPECT_EQ(written(), "");
  lines_.note(kMinute, counters, report, one);
  EXPECT_THAT(written(), HasSubstr("speculation is on: of 100 decoded rows 50 had guesses, 3.00 "
                                   "each, of which 50 % were right: 1.75 tokens a row; a step of "
                                   "one row takes 2.00 ms, guessing was not seen"));
  const size_t size = written().size();
  lines_.note(2 * kMinute, counters, report, one);  // nothing was decoded
  EXPECT_EQ(written().size(), size);
  counters.decode_rows += 10;
  report.state = DraftController::State::kLosing;
  lines_.note(3 * kMinute, counters, report, one);
  EXPECT_THAT(written(),
              HasSubstr("speculation is off, as no number of guesses gains what it takes: "
                        "of 10 decoded rows 0 had guesses"));
  std::fclose(file_);
}

TEST_F(SpeculationLogTest, says_who_guessed_where_there_are_several) {
  const std::vector<std::string> proposers = {"suffix", "ngram", "draft_model"};
  SchedulerCounters counters;
  DraftController::Report report{.state = DraftController::State::kOn, .gain = 1.5};
  report.proposers[0].draft_ns = 2e4;
  lines_.note(0, counters, report, proposers);
  counters.decode_rows = 100;
  counters.by_proposer[0] = {
      .drafts = 30, .draft_tokens = 60, .accepted_tokens = 15, .draft_ns = 900'000};
  counters.by_proposer[2] = {.drafts = 4, .draft_tokens = 4, .accepted_tokens = 4};
  lines_.note(SpeculationLog::kEveryNs, counters, report, proposers);
  EXPECT_THAT(written(), HasSubstr("speculation is on, for 1.50 times the tokens a second"));
  EXPECT_THAT(written(), HasSubstr("; suffix guessed 30 times, 2.00 each, 25 % right, asking it "
                                   "takes 0.02 ms; draft_model guessed 4 times, 1.00 each, 100 % "
                                   "right, asking it was not seen"));
  EXPECT_THAT(written(), Not(HasSubstr("ngram")));
  std::fclose(file_);
}

}  // namespace
}  // namespace pelton::engine
