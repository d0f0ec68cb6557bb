// Real processes: a shell in place of the server.
#include "launch/local_launcher.h"

#include <filesystem>
#include <functional>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/file.h"

namespace pelton::launch {
namespace {

using State = LaunchedReplica::State;
using testing::HasSubstr;

constexpr const char* kWaits = "echo \"fleet on 127.0.0.1:4711\"; sleep 60 & wait";
constexpr const char* kServes = "echo \"fleet on 127.0.0.1:4711\"; exec sleep 60";

class LocalLauncherTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string made = testing::TempDir() + "launcher_XXXXXX";
    ASSERT_NE(::mkdtemp(made.data()), nullptr);
    folder_ = made;
  }
  void TearDown() override {
    std::unique_ptr<LocalLauncher> last = open(kServes);
    ASSERT_NE(last, nullptr);
    last->stop_all(std::chrono::milliseconds(0));
    std::filesystem::remove_all(folder_);
  }

  Result<std::unique_ptr<LocalLauncher>> try_open(const std::string& script) {
    return LocalLauncher::open(
        {.folder = folder_, .program = "/bin/sh", .pools = {{"a", {"-c", script, "{name}"}}}},
        clock_, log_);
  }
  std::unique_ptr<LocalLauncher> open(const std::string& script) {
    auto launcher = try_open(script);
    EXPECT_TRUE(launcher.ok()) << launcher.error().message;
    return launcher.ok() ? *std::move(launcher) : nullptr;
  }
  // Of the place 0, once it is so.
  static LaunchedReplica wait(LocalLauncher& launcher,
                              const std::function<bool(const LaunchedReplica&)>& is_so) {
    LaunchedReplica seen;
    for (int i = 0; i < 1'000; ++i) {
      const std::vector<LaunchedReplica> all = launcher.list();
      if (!all.empty()) seen = all.front();
      if (!all.empty() && is_so(seen)) return seen;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    ADD_FAILURE() << "it did not come to be so: " << seen.ended;
    return seen;
  }
  static bool has_port(const LaunchedReplica& one) { return one.port != 0; }
  static bool has_ended(const LaunchedReplica& one) { return one.state == State::kEnded; }

  std::string folder_;
  base::SystemClock clock_;
  base::Log log_{clock_, {.level = base::LogLevel::kNone}};
};

TEST_F(LocalLauncherTest, TheSameOrderTwiceStartsOneReplica) {
  const std::unique_ptr<LocalLauncher> launcher =
      open("echo x >> " + folder_ + "/starts; " + kServes);
  const ReplicaOrder order{.pool = "a", .ordinal = 0, .token = 5};
  ASSERT_TRUE(launcher->start(order).ok());
  ASSERT_TRUE(launcher->start(order).ok());
  const LaunchedReplica seen = wait(*launcher, has_port);
  EXPECT_EQ(seen.order, order);
  EXPECT_EQ(seen.port, 4711);
  EXPECT_EQ(launcher->list().size(), 1u);
  EXPECT_EQ(*base::read_file(folder_ + "/starts"), "x\n");
  EXPECT_EQ(launcher->newest_token(), 5u);
}

TEST_F(LocalLauncherTest, AnOlderOrderAndATakenPlaceAreRefused) {
  const std::unique_ptr<LocalLauncher> launcher = open(kServes);
  ASSERT_TRUE(launcher->start({.pool = "a", .ordinal = 0, .token = 5}).ok());
  EXPECT_THAT(launcher->start({.pool = "a", .ordinal = 0, .token = 4}).error().message,
              HasSubstr("older"));
  EXPECT_THAT(launcher->start({.pool = "a", .ordinal = 0, .token = 6}).error().message,
              HasSubstr("still runs"));
  EXPECT_FALSE(launcher->start({.pool = "b", .ordinal = 0, .token = 7}).ok());
  // Of another start nothing is stopped.
  launcher->stop({.pool = "a", .ordinal = 0, .token = 4}, std::chrono::milliseconds(0));
  EXPECT_EQ(launcher->list().front().state, State::kRunning);
}

TEST_F(LocalLauncherTest, TheNextLauncherFindsWhatRuns) {
  std::unique_ptr<LocalLauncher> launcher = open(kServes);
  const ReplicaOrder order{.pool = "a", .ordinal = 0, .token = 9};
  ASSERT_TRUE(launcher->start(order).ok());
  wait(*launcher, has_port);
  EXPECT_EQ(try_open(kServes).error().code, ErrorCode::kAddressInUse) << "one at a time";
  launcher.reset();

  launcher = open(kServes);
  EXPECT_EQ(launcher->newest_token(), 9u);
  const LaunchedReplica found = wait(*launcher, has_port);
  EXPECT_EQ(found.order, order);
  EXPECT_EQ(found.state, State::kRunning);
  EXPECT_EQ(found.port, 4711);
  launcher->stop(order, std::chrono::seconds(60));
  wait(*launcher, has_ended);
  // A place that is free again is given to newer orders only.
  EXPECT_FALSE(launcher->start({.pool = "a", .ordinal = 0, .token = 8}).ok());
  EXPECT_TRUE(launcher->start({.pool = "a", .ordinal = 0, .token = 10}).ok());
}

TEST_F(LocalLauncherTest, WhatEndsSaysHow) {
  const std::unique_ptr<LocalLauncher> launcher = open("exit 4");
  ASSERT_TRUE(launcher->start({.pool = "a", .ordinal = 0, .token = 1}).ok());
  const LaunchedReplica wrong = wait(*launcher, has_ended);
  EXPECT_EQ(wrong.ended, "ended with exit code 4, model not found or unreadable");
  EXPECT_TRUE(wrong.is_hopeless);
}

TEST_F(LocalLauncherTest, ASignalIsNoReasonNotToTryAgain) {
  const std::unique_ptr<LocalLauncher> launcher = open("kill -KILL $$");
  ASSERT_TRUE(launcher->start({.pool = "a", .ordinal = 0, .token = 1}).ok());
  const LaunchedReplica killed = wait(*launcher, has_ended);
  EXPECT_EQ(killed.ended, "ended by signal 9");
  EXPECT_FALSE(killed.is_hopeless);
}

TEST_F(LocalLauncherTest, WhoDoesNotStopIsEnded) {
  const std::unique_ptr<LocalLauncher> launcher =
      open("trap '' TERM; echo \"fleet on 127.0.0.1:1\"; while :; do sleep 0.05; done");
  const ReplicaOrder order{.pool = "a", .ordinal = 0, .token = 1};
  ASSERT_TRUE(launcher->start(order).ok());
  wait(*launcher, has_port);
  launcher->stop(order, std::chrono::seconds(600));
  EXPECT_EQ(launcher->list().front().state, State::kStopping);
  launcher->stop(order, std::chrono::milliseconds(0));  // twice: the shorter grace counts
  EXPECT_EQ(wait(*launcher, has_ended).ended, "ended by signal 9");
  launcher->stop(order, std::chrono::milliseconds(0));  // what has stopped has stopped
}

TEST_F(LocalLauncherTest, AReplicaKnowsItsNameAndHoldsNothingOfOurs) {
  const std::unique_ptr<LocalLauncher> launcher =
      open("ls /proc/self/fd | tr '\\n' ' ' > " + folder_ + "/open; echo $0 > " + folder_ +
           "/name; " + kServes);
  ASSERT_TRUE(launcher->start({.pool = "a", .ordinal = 2, .token = 1}).ok());
  wait(*launcher, has_port);
  EXPECT_EQ(*base::read_file(folder_ + "/name"), "a-2\n");
  // Its three streams, its lock, and the folder that ls reads.
  EXPECT_EQ(*base::read_file(folder_ + "/open"), "0 1 2 3 4 ");
}

TEST_F(LocalLauncherTest, FilesThatAreNoOrdersAreLeftAlone) {
  ASSERT_TRUE(base::write_file(folder_ + "/a.0.replica", "nonsense").ok());
  ASSERT_TRUE(base::write_file(folder_ + "/b.1.replica", "a\n0 7 7\n").ok());
  const std::unique_ptr<LocalLauncher> launcher = open(kServes);
  EXPECT_TRUE(launcher->list().empty());
  EXPECT_EQ(launcher->newest_token(), 0u);
}

TEST_F(LocalLauncherTest, WhatRunsWithOtherArgumentsIsSaid) {
  const auto with = [&](const std::string& value) {
    auto launcher =
        LocalLauncher::open({.folder = folder_,
                             .program = "/bin/sh",
                             .pools = {{"a", {"-c", kWaits, "{name}", "--max-num-seqs", value}}}},
                            clock_, log_);
    EXPECT_TRUE(launcher.ok());
    return *std::move(launcher);
  };
  {
    const auto first = with("8");
    ASSERT_TRUE(first->start({.pool = "a", .ordinal = 0, .token = 1}).ok());
    EXPECT_EQ(wait(*first, has_port).outdated, "");
  }
  EXPECT_EQ(with("8")->list().at(0).outdated, "");
  EXPECT_EQ(with("16")->list().at(0).outdated, "other --max-num-seqs");
}

}  // namespace
}  // namespace pelton::launch
