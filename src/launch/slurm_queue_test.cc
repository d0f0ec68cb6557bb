#include "launch/slurm_queue.h"

#include <gtest/gtest.h>

namespace pelton::launch {
namespace {

using State = SlurmJob::State;

TEST(SlurmQueue, JobsOfThisFleetAreRead) {
  const ReplicaOrder order{.pool = "my pool|x", .ordinal = 3, .token = 77};
  const std::string text = "12|RUNNING|1-02:03:04|None|" + slurm_comment("f1", order) +
                           "\n"
                           "11|PENDING|UNLIMITED|Resources|pelton f1 0 5 a\n"
                           "13|RUNNING|1:00|None|pelton f2 0 5 a\n"
                           "14|RUNNING|1:00|None|(null)\n"
                           "15|RUNNING|1:00|None|pelton f1 -1 5 a\n"
                           "16|RUNNING|1:00|None|pelton f1 1 x a\n"
                           "17_3|RUNNING|1:00|None|pelton f1 1 5 a\n"
                           "nonsense\n"
                           "18|OUT_OF_MEMORY|0:00|OutOfMemory|pelton f1 4 6 b";
  const std::vector<SlurmJob> jobs = parse_queue(text, "f1");
  ASSERT_EQ(jobs.size(), 3u);
  EXPECT_EQ(jobs[0].id, 11);
  EXPECT_EQ(jobs[0].state, State::kPending);
  EXPECT_EQ(jobs[0].left_s, std::nullopt);
  EXPECT_EQ(jobs[0].reason, "Resources");
  EXPECT_EQ(jobs[1].order, order);
  EXPECT_EQ(jobs[1].left_s, 93'784);
  EXPECT_EQ(jobs[2].state, State::kEnded);
}

TEST(SlurmQueue, AnUnknownStateHoldsItsPlace) {
  EXPECT_EQ(parse_queue("1|SOMETHING_NEW|1:00|None|pelton f 0 1 a", "f")[0].state, State::kRunning);
  EXPECT_EQ(parse_queue("1|COMPLETING|1:00|None|pelton f 0 1 a", "f")[0].state, State::kEnding);
}

TEST(SlurmQueue, TimesAndIdsAreReadWholeOrNotAtAll) {
  EXPECT_EQ(parse_time_left("0:07"), 7);
  EXPECT_EQ(parse_time_left("1:02:03"), 3'723);
  for (const char* text : {"", "7", "INVALID", "1-2", "1-02:03", "-1:00", "1:2:3:4", "x:00"}) {
    EXPECT_EQ(parse_time_left(text), std::nullopt) << text;
  }
  EXPECT_EQ(parse_job_id("123\n"), 123);
  EXPECT_EQ(parse_job_id("123;cluster\n"), 123);
  EXPECT_EQ(parse_job_id("Submitted batch job 123"), std::nullopt);
  EXPECT_EQ(parse_exit_code("JobId=1 ExitCode=4:0 Requeue=1"), 4);
  EXPECT_EQ(parse_exit_code("JobId=1"), std::nullopt);
}

TEST(SlurmQueue, AScriptsWordsMeanNothingToTheShell) {
  EXPECT_EQ(batch_script({"a b", "$(x)", "it's"}),
            "#!/bin/sh\necho \"node $(hostname)\"\nexec 'a b' '$(x)' 'it'\\''s'\n");
}

}  // namespace
}  // namespace pelton::launch
