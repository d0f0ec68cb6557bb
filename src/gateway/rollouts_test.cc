#include "gateway/rollouts.h"

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/file.h"
#include "base/random.h"

namespace pelton::gateway {
namespace {

class RolloutsTest : public testing::Test {
 protected:
  RolloutsTest()
      : folder_(std::filesystem::temp_directory_path() /
                ("pelton-rollouts-" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(folder_);
    config_ = {.rollouts_file = (folder_ / "rollouts.json").string(),
               .pools = {{.name = "old", .models = {"m"}}, {.name = "new", .models = {"m"}}},
               .routes = {{.model = "m",
                           .arms = {{.pool = "old", .name = "old"}, {.pool = "new", .name = "new"}},
                           .rollout = RolloutPlan{.name = "v2", .arm = "new"}}}};
    config_.routes.front().rollout->shares = {0.5, 1};
    config_.routes.front().rollout->requests_min = {20};
    config_.routes.front().rollout->seconds_min = {0};
  }
  ~RolloutsTest() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<Rollouts> make() {
    auto all = std::make_unique<Rollouts>(Rollouts::Options{
        .has_workers = [](const std::string&) { return true; }, .clock = clock_, .log = log_});
    all->set(config_);
    return all;
  }
  // Its share is 0 until it has been seen that there are workers.
  static Rollouts::Shown wait(Rollouts& all, const auto& is_so) {
    for (int i = 0; i < 400 && !is_so(all.shown().front()); ++i) ::usleep(10'000);
    return all.shown().front();
  }
  static void wait_for_share(Rollouts& all) {
    EXPECT_GT(wait(all, [](const Rollouts::Shown& one) { return one.share > 0; }).share, 0);
  }
  const RouteConfig& route() const { return config_.routes.front(); }
  // One request; gives back which side it went to.
  ArmSide ask(Rollouts& all, const std::string& session, bool candidate_fails) {
    const Rollouts::Draw draw = all.draw(route(), "t", session);
    RouteKey key{.model = "m", .session = session, .draw = ++draws_};
    key.rollout = draw.share;
    const auto choice = choose_route(config_, key);
    const ArmSide side = choice->arm->name == "new" ? ArmSide::kCandidate : ArmSide::kOthers;
    const auto ticket = all.begin(route(), draw, side);
    const bool failed = candidate_fails && side == ArmSide::kCandidate;
    if (ticket != nullptr) {
      ticket->note_end({.failed = failed, .ttft_s = 0.1, .output_tokens = 10});
    }
    return side;
  }

  base::SystemClock clock_;
  base::Log log_{clock_, {.level = base::LogLevel::kError}};
  std::filesystem::path folder_;
  GatewayConfig config_;
  uint64_t draws_ = 0;
};

TEST_F(RolloutsTest, ABadOneIsTakenBackAndStaysSoOverANewStart) {
  {
    const auto all = make();
    wait_for_share(*all);
    for (int i = 0; i < 300; ++i) ask(*all, "s" + std::to_string(i), true);
    const Rollouts::Shown shown = all->shown().front();
    EXPECT_EQ(shown.state.phase, RolloutPhase::kTakenBack);
    EXPECT_EQ(shown.state.reason, "errors");
    for (int i = 0; i < 100; ++i)
      EXPECT_EQ(ask(*all, "s" + std::to_string(i), true), ArmSide::kOthers);
  }
  const auto again = make();
  EXPECT_EQ(again->shown().front().state.phase, RolloutPhase::kTakenBack);
  // Out of the file and back again.
  const GatewayConfig with = config_;
  config_.routes.front().rollout.reset();
  again->set(config_);
  EXPECT_TRUE(again->shown().empty());
  config_ = with;
  again->set(config_);
  EXPECT_EQ(again->shown().front().state.phase, RolloutPhase::kTakenBack);
  config_.routes.front().rollout->name = "v3";
  again->set(config_);
  EXPECT_EQ(again->shown().front().state.phase, RolloutPhase::kRunning) << "another one";
}

TEST_F(RolloutsTest, AGoodOneGetsAllAndItsConversationsStay) {
  const auto all = make();
  wait_for_share(*all);
  std::vector<ArmSide> sides;
  for (int i = 0; i < 60; ++i) sides.push_back(ask(*all, "s" + std::to_string(i), false));
  const Rollouts::Shown shown =
      wait(*all, [](const Rollouts::Shown& one) { return one.share == 1; });
  EXPECT_EQ(shown.state.phase, RolloutPhase::kPromoted);
  for (int i = 0; i < 60; ++i) {
    EXPECT_EQ(ask(*all, "s" + std::to_string(i), false), ArmSide::kCandidate);
  }
}

TEST_F(RolloutsTest, OfAConversationOneFailureCounts) {
  const auto all = make();
  wait_for_share(*all);
  std::string session;
  for (int i = 0; session.empty(); ++i) {
    const std::string one = "s" + std::to_string(i);
    if (ask(*all, one, false) == ArmSide::kCandidate) session = one;
  }
  const auto failed = [&] { return all->shown().front().report.evidence.errors.failed.candidate; };
  for (int i = 0; i < 50; ++i) ask(*all, session, true);
  EXPECT_EQ(failed(), 1);
  const RankTest::Evidence ttft = all->shown().front().report.evidence.ttft;
  for (int i = 0; i < 50; ++i) ask(*all, session, false);
  EXPECT_EQ(all->shown().front().report.evidence.ttft.values, ttft.values);
  // A user's requests, and those of nobody, are each their own.
  config_.routes.front().sticky = RouteConfig::Sticky::kUser;
  for (int i = 0; i < 10; ++i) ask(*all, session, true);
  EXPECT_EQ(failed(), 11);
}

TEST_F(RolloutsTest, WithOtherTolerancesTheEvidenceBeginsAnewAndTheStepStays) {
  const auto all = make();
  wait_for_share(*all);
  for (int i = 0; i < 15; ++i) ask(*all, "s" + std::to_string(i), false);
  const auto requests = [&] { return all->shown().front().report.evidence.errors.requests.others; };
  EXPECT_GT(requests(), 0);
  all->set(config_);
  EXPECT_GT(requests(), 0);
  config_.routes.front().rollout->ttft_tolerance = 0.5;
  all->set(config_);
  EXPECT_EQ(requests(), 0);
  EXPECT_EQ(all->shown().front().state.phase, RolloutPhase::kRunning);
}

TEST_F(RolloutsTest, WhatOneGatewayTakesBackAllDo) {
  const auto one = make();
  wait_for_share(*one);
  for (int i = 0; i < 300; ++i) ask(*one, "s" + std::to_string(i), true);
  const auto said = decode_rollouts(one->own_text());
  ASSERT_TRUE(said.ok()) << said.error().message;
  config_.rollouts_file = (folder_ / "other.json").string();
  const auto other = make();
  wait_for_share(*other);
  other->set_others({*said});
  const Rollouts::Shown shown = other->shown().front();
  EXPECT_EQ(shown.state.phase, RolloutPhase::kTakenBack);
  EXPECT_EQ(shown.state.why, one->shown().front().state.why);
  EXPECT_EQ(shown.gateways, 2u);
}

TEST_F(RolloutsTest, AFileThatIsNoneOrCannotBeWrittenIsNoEnd) {
  for (const char* text : {"", "{", R"({"rollouts":[{"name":"v2"}]})"}) {
    ASSERT_TRUE(base::write_file(config_.rollouts_file, text).ok());
    const auto all = make();
    EXPECT_EQ(all->shown().front().state.phase, RolloutPhase::kRunning);
  }
  config_.rollouts_file = (folder_ / "nowhere" / "r.json").string();
  const auto all = make();
  wait_for_share(*all);
  EXPECT_FALSE(all->command("v3", RolloutCommand::kPause, "a test").ok());
  EXPECT_TRUE(all->command("v2", RolloutCommand::kPause, "a test").ok());
}

TEST(RolloutFile, IsReadAsItIsWritten) {
  Rollout rollout({.name = "v2", .arm = "new"}, RankTest::Grid::kKept);
  for (uint64_t i = 0; i < 2000; ++i) {
    const bool is_candidate = base::random_unit(1, i) < 0.2;
    rollout.note({.side = is_candidate ? ArmSide::kCandidate : ArmSide::kOthers,
                  .failed = base::random_unit(2, i) < 0.02,
                  .ttft_s = 0.1 + base::random_unit(3, i),
                  .output_tokens = 1 + static_cast<int64_t>(100 * base::random_unit(4, i))});
  }
  const std::vector<SavedRollout> all = {{.name = "v2",
                                          .identity = "m\n*\nnew\nnew",
                                          .tests = "0 0.1 0.25",
                                          .state = rollout.state(),
                                          .evidence = rollout.evidence()}};
  const auto again = decode_rollouts(encode(all));
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(*again, all);
}

}  // namespace
}  // namespace pelton::gateway
