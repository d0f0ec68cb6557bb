// What a batch system may do to a launcher.
#include "launch/slurm_site.h"

#include <functional>
#include <memory>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launch/site_launcher.h"
#include "launch/test_slurm.h"

namespace pelton::launch {
namespace {

using State = LaunchedReplica::State;
using testing::HasSubstr;

class SlurmSiteTest : public testing::Test {
 protected:
  std::unique_ptr<SiteLauncher> open(const std::string& script) {
    using std::chrono::milliseconds;
    SlurmSite::Options options{
        .folder = folder_.file("state"),
        .bounds = {.time_max = milliseconds(400), .bytes_max = size_t{1} << 20}};
    options.pools["a"] = {.words = {"/bin/sh", "-c", script}, .start_s = 30, .drain_s = 60};
    auto site = SlurmSite::open(std::move(options), clock_, log_);
    EXPECT_TRUE(site.ok());
    auto opened = SiteLauncher::open(*std::move(site),
                                     {.look_soon = milliseconds(20),
                                      .look_later = milliseconds(50),
                                      .try_again = milliseconds(20),
                                      .give_up = milliseconds(3'000)},
                                     clock_, log_);
    EXPECT_TRUE(opened.ok()) << opened.error().message;
    return opened.ok() ? *std::move(opened) : nullptr;
  }
  static ReplicaOrder order(uint64_t token) { return {.pool = "a", .ordinal = 0, .token = token}; }
  static LaunchedReplica first(Launcher& launcher) {
    const std::vector<LaunchedReplica> all = launcher.list();
    return all.empty() ? LaunchedReplica{} : all.front();
  }
  static void wait(const std::function<bool()>& is_so) {
    for (int i = 0; i < 1'000 && !is_so(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_TRUE(is_so());
  }

  static constexpr const char* kServes = "echo 'fleet on 0.0.0.0:4711'; exec sleep 60";
  base::SystemClock clock_;
  base::Log log_{clock_, {.level = base::LogLevel::kNone}};
  TestFolder folder_;
  TestSlurm slurm_;
};

TEST_F(SlurmSiteTest, AJobIsReachedByItsNodesName) {
  const auto launcher = open(kServes);
  ASSERT_TRUE(launcher->start(order(1)).ok());
  wait([&] { return first(*launcher).port == 4711; });
  EXPECT_NE(first(*launcher).host, "");
  EXPECT_NE(first(*launcher).host, "0.0.0.0");
}

TEST_F(SlurmSiteTest, AQueueThatHangsIsDownOrNeverEndsChangesNothing) {
  const auto launcher = open(kServes);
  ASSERT_TRUE(launcher->start(order(1)).ok());
  wait([&] { return first(*launcher).port == 4711; });
  for (const char* trouble : {"hangs", "down", "endless"}) {
    slurm_.set(trouble);
    std::this_thread::sleep_for(std::chrono::milliseconds(600));
    EXPECT_EQ(first(*launcher).state, State::kRunning) << trouble;
    EXPECT_EQ(first(*launcher).port, 4711);
    slurm_.clear(trouble);
  }
  launcher->stop(order(1), std::chrono::milliseconds(0));
  wait([&] { return first(*launcher).state == State::kEnded; });
}

TEST_F(SlurmSiteTest, AnAnswerThatIsLostSubmitsNoSecondJob) {
  const auto launcher = open(kServes);
  slurm_.set("lost");
  ASSERT_TRUE(launcher->start(order(1)).ok());
  wait([&] { return slurm_.submitted() > 0; });
  slurm_.clear("lost");
  wait([&] { return first(*launcher).port == 4711; });
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_EQ(slurm_.submitted(), 1);
}

// An order does not say who gives it: the site does.
TEST_F(SlurmSiteTest, WhoLedBeforeStartsAndStopsNothingMore) {
  const auto open_as = [&](uint64_t epoch) {
    SlurmSite::Options options{.folder = folder_.file("state"), .epoch = epoch};
    options.pools["a"] = {.words = {"/bin/sh", "-c", kServes}, .start_s = 30, .drain_s = 60};
    return SlurmSite::open(std::move(options), clock_, log_);
  };
  const auto token = [](uint64_t epoch, uint64_t number) {
    return (epoch << kTokenNumberBits) + number;
  };
  auto before = open_as(2);
  ASSERT_TRUE(before.ok());
  ASSERT_TRUE((*before)->start(order(token(2, 1))).ok());
  auto now = open_as(5);
  ASSERT_TRUE(now.ok());
  EXPECT_EQ((*before)->start({.pool = "a", .ordinal = 1, .token = token(2, 2)}).error().code,
            ErrorCode::kInvalidArgument);
  EXPECT_FALSE((*before)->stop(order(token(2, 1)), std::chrono::milliseconds(0)).ok());
  EXPECT_FALSE(open_as(4).ok());
  EXPECT_EQ(slurm_.submitted(), 1);
  EXPECT_TRUE((*now)->stop(order(token(2, 1)), std::chrono::milliseconds(0)).ok());
}

TEST_F(SlurmSiteTest, AJobThatVanishesIsLost) {
  const auto launcher = open(kServes);
  ASSERT_TRUE(launcher->start(order(1)).ok());
  wait([&] { return first(*launcher).port == 4711; });
  slurm_.set("vanished");
  wait([&] { return first(*launcher).state == State::kEnded; });
  EXPECT_THAT(first(*launcher).ended, HasSubstr("vanished"));
}

TEST_F(SlurmSiteTest, AJobThatIsRequeuedStartsAgain) {
  const auto launcher = open(kServes);
  ASSERT_TRUE(launcher->start(order(1)).ok());
  wait([&] { return first(*launcher).port == 4711; });
  slurm_.set("1.state", "PENDING");
  wait([&] { return first(*launcher).port == 0; });
  EXPECT_EQ(first(*launcher).state, State::kRunning) << "the same replica";
  slurm_.clear("1.state");
  // It runs again and has said nothing yet: what the last run said is not its word.
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_EQ(first(*launcher).port, 0);
  EXPECT_TRUE(base::write_file(folder_.file("state/a.0.out"), "fleet on 0.0.0.0:4712\n").ok());
  wait([&] { return first(*launcher).port == 4712; });
}

// A queue that does not answer is no empty one: what it holds may be a whole fleet.
TEST_F(SlurmSiteTest, AQueueThatIsDownAtTheStartIsWaitedFor) {
  {
    const auto earlier = open(kServes);
    ASSERT_TRUE(earlier->start(order(5)).ok());
    wait([&] { return first(*earlier).port == 4711; });
  }
  slurm_.set("down");
  const auto launcher = open(kServes);
  ASSERT_NE(launcher, nullptr);
  EXPECT_FALSE(launcher->is_known("a"));
  EXPECT_EQ(launcher->start({.pool = "a", .ordinal = 1, .token = 6}).error().code,
            ErrorCode::kUnavailable);
  slurm_.clear("down");
  wait([&] { return launcher->is_known("a"); });
  EXPECT_EQ(first(*launcher).port, 4711);
  EXPECT_GE(launcher->newest_token(), 5u);
  launcher->stop(order(5), std::chrono::milliseconds(0));
  wait([&] { return first(*launcher).state == State::kEnded; });
}

TEST_F(SlurmSiteTest, BeforeItsTimeLimitAJobIsSeenToStop) {
  const auto launcher = open(kServes);
  ASSERT_TRUE(launcher->start(order(1)).ok());
  wait([&] { return first(*launcher).port == 4711; });
  slurm_.set("1.left", "1:31");
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_EQ(first(*launcher).state, State::kRunning);
  slurm_.set("1.left", "1:30");  // that a drain and another's start take
  wait([&] { return first(*launcher).state == State::kStopping; });
}

TEST_F(SlurmSiteTest, WhoDoesNotEndWhenAskedIsCancelled) {
  const auto launcher = open(std::string("trap '' TERM; ") +
                             "echo 'fleet on 0.0.0.0:4711'; while :; do sleep 0.05; done");
  ASSERT_TRUE(launcher->start(order(1)).ok());
  wait([&] { return first(*launcher).port == 4711; });
  launcher->stop(order(1), std::chrono::milliseconds(300));
  wait([&] { return first(*launcher).state == State::kEnded; });
  EXPECT_EQ(slurm_.cancels(), "TERM 1\nKILL 1\n");
}

TEST_F(SlurmSiteTest, AJobThatWaitsForItsTurnDoesNotStandStill) {
  slurm_.set("held");
  const auto launcher = open(kServes);
  ASSERT_TRUE(launcher->start(order(1)).ok());
  wait([&] { return slurm_.submitted() == 1; });
  const int64_t before_ns = clock_.now_ns();
  wait([&] { return first(*launcher).progress_ns > before_ns; });
  EXPECT_EQ(first(*launcher).port, 0);
  launcher->stop(order(1), std::chrono::seconds(60));
  wait([&] { return first(*launcher).state == State::kEnded; });
  EXPECT_EQ(slurm_.cancels(), "KILL 1\n") << "what does not run needs no grace";
}

}  // namespace
}  // namespace pelton::launch
