#include "gateway/rollouts.h"

#include <atomic>
#include <cstdlib>
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
    auto all = std::make_unique<Rollouts>(
        Rollouts::Options{.has_workers = [this](const std::string&) { return has_workers_.load(); },
                          .clock = clock_,
                          .log = log_});
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
  std::atomic<bool> has_workers_ = true;
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

// What was drawn once counts once: conversations and users, and requests of neither each.
TEST_F(RolloutsTest, OfAConversationTheFirstRequestCounts) {
  const auto all = make();
  wait_for_share(*all);
  const auto counted = [&] { return all->shown().front().report.evidence; };
  for (const auto sticky : {RouteConfig::Sticky::kSession, RouteConfig::Sticky::kUser}) {
    config_.routes.front().sticky = sticky;
    const std::string session = sticky == RouteConfig::Sticky::kUser ? "user" : "session";
    const RolloutEvidence before = counted();
    for (int i = 0; i < 50; ++i) ask(*all, session, i > 0);
    const RolloutEvidence after = counted();
    EXPECT_EQ(after.errors.requests.candidate + after.errors.requests.others,
              before.errors.requests.candidate + before.errors.requests.others + 1);
    EXPECT_EQ(after.errors.failed, before.errors.failed);
    EXPECT_EQ(after.ttft.values.candidate + after.ttft.values.others,
              before.ttft.values.candidate + before.ttft.values.others + 1);
  }
  const RolloutEvidence before = counted();
  for (int i = 0; i < 50; ++i) ask(*all, "", false);
  EXPECT_EQ(counted().errors.requests.candidate + counted().errors.requests.others,
            before.errors.requests.candidate + before.errors.requests.others + 50);
}

// Some conversations fail at each of their turns, which come close together: no version's fault.
TEST_F(RolloutsTest, ConversationsThatAlwaysFailAreNotHeldAgainstAVersion) {
  const int runs = std::getenv("PELTON_FULL") != nullptr ? 400 : 30;
  config_.routes.front().rollout->requests_min = {1'000'000};
  config_.routes.front().rollout->watched = {.errors = true, .ttft = false, .length = false};
  int taken_back = 0;
  for (int run = 0; run < runs; ++run) {
    config_.routes.front().rollout->name = "v" + std::to_string(run);
    const auto all = make();
    wait_for_share(*all);
    for (int i = 0; i < 600; ++i) {
      const std::string session = std::to_string(run) + " " + std::to_string(i);
      const bool fails =
          base::random_unit(static_cast<uint64_t>(run), static_cast<uint64_t>(i)) < 0.1;
      for (int turn = 0; turn < 8; ++turn) {
        const Rollouts::Draw draw = all->draw(route(), "t", session);
        RouteKey key{.model = "m", .session = session, .draw = ++draws_};
        key.rollout = draw.share;
        const bool is_new = choose_route(config_, key)->arm->name == "new";
        const auto ticket =
            all->begin(route(), draw, is_new ? ArmSide::kCandidate : ArmSide::kOthers);
        if (ticket != nullptr) ticket->note_end({.failed = fails});
      }
    }
    taken_back += all->shown().front().state.phase == RolloutPhase::kTakenBack ? 1 : 0;
  }
  EXPECT_LE(taken_back, runs / 100 + 1);
}

TEST_F(RolloutsTest, WithoutWorkersItHasNoShareUntilTheyAreBack) {
  const auto all = make();
  wait_for_share(*all);
  has_workers_ = false;
  wait(*all, [](const Rollouts::Shown& one) { return one.share == 0; });
  const double stood_s = all->shown().front().state.step_s;
  for (int i = 0; i < 50; ++i)
    EXPECT_EQ(ask(*all, "s" + std::to_string(i), true), ArmSide::kOthers);
  ::usleep(600'000);
  EXPECT_EQ(all->shown().front().state.step_s, stood_s);
  EXPECT_EQ(all->shown().front().report.evidence.errors.requests.others, 0) << "nothing was drawn";
  has_workers_ = true;
  wait_for_share(*all);
}

// A gateway reads in etcd what it said before its new start: that is its own, and is in its file.
TEST_F(RolloutsTest, WhatAGatewaySaidBeforeItsNewStartIsNotAnothers) {
  std::string said;
  {
    const auto all = make();
    wait_for_share(*all);
    for (int i = 0; i < 15; ++i) ask(*all, "s" + std::to_string(i), false);
    said = all->own_text();
  }
  const auto again = make();
  again->set_others({*decode_rollouts(said)});
  const Rollouts::Shown shown = again->shown().front();
  EXPECT_EQ(shown.gateways, 1u);
  EXPECT_EQ(shown.report.evidence.errors.requests.candidate +
                shown.report.evidence.errors.requests.others,
            15);
}

TEST_F(RolloutsTest, AnArmThatIsRenamedAndComesBackIsWhatItWas) {
  const auto all = make();
  EXPECT_TRUE(all->command("v2", RolloutCommand::kRollback, "a test").ok());
  const GatewayConfig before = config_;
  config_.routes.front().arms.back().name = "other";
  config_.routes.front().rollout->arm = "other";
  all->set(config_);
  EXPECT_EQ(all->shown().front().state.phase, RolloutPhase::kRunning);
  config_ = before;
  all->set(config_);
  EXPECT_EQ(all->shown().front().state.phase, RolloutPhase::kTakenBack);
}

// Whom an operator has taken further has met no gates: others wait for theirs.
TEST_F(RolloutsTest, APromotionAtOneGatewayIsNoGateOfAnothers) {
  config_.routes.front().rollout->shares = {0.5, 0.9, 1};
  config_.routes.front().rollout->requests_min = {1'000'000, 1'000'000};
  config_.routes.front().rollout->seconds_min = {0, 0};
  const auto one = make();
  wait_for_share(*one);
  EXPECT_TRUE(one->command("v2", RolloutCommand::kPromote, "a test").ok());
  config_.rollouts_file = (folder_ / "other.json").string();
  const auto other = make();
  wait_for_share(*other);
  other->set_others({*decode_rollouts(one->own_text())});
  one->set_others({*decode_rollouts(other->own_text())});
  ::usleep(600'000);
  EXPECT_EQ(other->shown().front().state.step, 0u);
  EXPECT_EQ(one->shown().front().share, 0.5);
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
  const SavedRollouts all = {.id = "0123",
                             .rollouts = {{.name = "v2",
                                           .identity = "m\n*\nnew\nnew",
                                           .tests = "0 0.1 0.25",
                                           .state = rollout.state(),
                                           .evidence = rollout.evidence()}}};
  const auto again = decode_rollouts(encode(all));
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(*again, all);
}

}  // namespace
}  // namespace pelton::gateway
