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
  SchedulerCounters counters;
  DraftController::Report report{.state = DraftController::State::kOn, .step_ns = 2e6};
  lines_.note(0, counters, report);
  counters.decode_rows = 100;
  counters.drafts = 50;
  counters.draft_tokens = 150;
  counters.accepted_tokens = 75;
  lines_.note(kMinute - 1, counters, report);
  EXPECT_EQ(written(), "");
  lines_.note(kMinute, counters, report);
  EXPECT_THAT(written(), HasSubstr("speculation is on: of 100 decoded rows 50 had guesses, 3.00 "
                                   "each, of which 50 % were right: 1.75 tokens a row; a step of "
                                   "one row takes 2.00 ms, guessing was not seen"));
  const size_t size = written().size();
  lines_.note(2 * kMinute, counters, report);  // nothing was decoded
  EXPECT_EQ(written().size(), size);
  counters.decode_rows += 10;
  report.state = DraftController::State::kLosing;
  lines_.note(3 * kMinute, counters, report);
  EXPECT_THAT(written(), HasSubstr("speculation is losing: of 10 decoded rows 0 had guesses"));
  std::fclose(file_);
}

}  // namespace
}  // namespace pelton::engine
