#include "engine/step_log.h"

#include <cstdlib>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "engine/modelled_executor.h"
#include "engine/scheduler.h"

namespace pelton::engine {
namespace {

// Two requests, the second while the first runs, then a pause and a third: what is logged is who
// was in which step, and the time from the end of the step before wherever the engine was busy.
TEST(StepLog, SaysWhoWasInWhichStepAndHowLongItTook) {
  const std::string file =
      (std::filesystem::temp_directory_path() / ("pelton_step_log_" + std::to_string(getpid())))
          .string();
  base::VirtualClock clock;
  const ExecutorCapacity capacity{
      .groups = {{{.name = "full"}, {64}}, {{.name = "window", .sliding_window = 128}, {64}}},
      .sequences_max = 4,
      .batch_tokens_max = 64,
      .context_tokens_max = 256};
  auto inner = std::make_unique<ModelledExecutor>(ModelledExecutor::Options{
      .capacity = capacity,
      .next_token = checksum_tokens(100),
      .timing = ModelledExecutor::Timing{.clock = &clock,
                                         .step_ns = [](const StepPlan&) { return 1000; },
                                         .pass = [&](int64_t ns) { clock.advance_ns(ns); }}});
  auto logged = *LoggedExecutor::make(std::move(inner), file, clock);
  Scheduler scheduler(capacity, {});
  const auto submit = [&](int tokens, int output) {
    request::GenerationRequest request;
    request.prompt.assign(static_cast<size_t>(tokens), 7);
    request.stop.max_new_tokens = output;
    ASSERT_TRUE(scheduler.submit(std::move(request)).ok());
  };
  const auto step = [&] {
    logged->submit(scheduler.plan(clock.now_ns()));
    scheduler.commit(logged->collect());
    clock.advance_ns(50);  // what the engine does between two steps
  };
  clock.advance_ns(10'000);
  submit(5, 3);
  step();
  submit(9, 1);
  step();
  step();
  clock.advance_ns(1'000'000);
  submit(4, 1);
  step();
  logged.reset();

  const std::string text = *base::read_file(file);
  std::filesystem::remove(file);
  std::vector<Json> lines;
  for (size_t from = 0; from < text.size();) {
    const size_t end = text.find('\n', from);
    lines.push_back(*Json::parse(text.substr(from, end - from)));
    from = end + 1;
  }
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0].find("rows")->dump(), "[0,5,1]");
  EXPECT_EQ(lines[1].find("rows")->dump(), "[5,1,1,0,9,1]");
  EXPECT_EQ(lines[2].find("rows")->dump(), "[6,1,1]");
  EXPECT_EQ(lines[3].find("rows")->dump(), "[0,4,1]");
  EXPECT_EQ(lines[0].integer("ns"), 1000);
  EXPECT_EQ(lines[1].integer("ns"), 1050);
  EXPECT_EQ(lines[2].integer("ns"), 1050);
  EXPECT_EQ(lines[3].integer("ns"), 1000);
  EXPECT_EQ(lines[0].boolean("after_pause"), true);
  EXPECT_EQ(lines[1].boolean("after_pause"), false);
  EXPECT_EQ(lines[3].boolean("after_pause"), true);
}

TEST(StepLog, GuessesAreRowsOfLogits) {
  const std::string file = testing::TempDir() + "/guesses.jsonl";
  base::VirtualClock clock;
  ExecutorCapacity capacity{.groups = {{{.name = "full"}, {8}}},
                            .context_tokens_max = 100,
                            .draft_tokens_max = 2,
                            .draft_rows_max = 2};
  capacity.vocab_size = 100;
  auto logged = *LoggedExecutor::make(
      std::make_unique<ModelledExecutor>(ModelledExecutor::Options{
          .capacity = capacity, .next_token = checksum_tokens(100), .draft_acceptance = 1.0}),
      file, clock);
  Scheduler scheduler(capacity, {});
  request::GenerationRequest request;
  request.prompt.assign(5, 7);
  request.stop.max_new_tokens = 4;
  ASSERT_TRUE(scheduler.submit(std::move(request)).ok());
  for (StepPlan plan = scheduler.plan(0); !plan.empty(); plan = scheduler.plan(0)) {
    logged->submit(std::move(plan));
    scheduler.commit(logged->collect());
  }
  logged.reset();
  const std::string text = *base::read_file(file);
  std::filesystem::remove(file);
  EXPECT_NE(text.find("\"rows\":[0,5,1]"), std::string::npos) << text;
  EXPECT_NE(text.find("\"rows\":[5,3,3]"), std::string::npos) << text;
}

TEST(StepLog, AFileThatCannotBeWrittenIsAnError) {
  base::VirtualClock clock;
  auto inner = std::make_unique<ModelledExecutor>(ModelledExecutor::Options{
      .capacity = {.groups = {{{.name = "full"}}}}, .next_token = checksum_tokens(100)});
  const auto made = LoggedExecutor::make(std::move(inner), "/nowhere/at/all", clock);
  EXPECT_EQ(made.error().code, ErrorCode::kIo);
  EXPECT_EQ(made.error().field, "step-log");
}

}  // namespace
}  // namespace pelton::engine
