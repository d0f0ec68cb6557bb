// What a provider does, played over real processes by a clock of the test's own.
#include "launch/simulated_provider.h"

#include <filesystem>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launch/test_slurm.h"

namespace pelton::launch {
namespace {

using State = LaunchedReplica::State;
using testing::HasSubstr;

constexpr int64_t kSecond = 1'000'000'000;

class SimulatedProviderTest : public testing::Test {
 protected:
  void open(const ProvidedMachines& machines) {
    auto processes = LocalLauncher::open(
        {.folder = folder_.file("state"),
         .program = "/bin/sh",
         .pools = {{"a", {"-c", "echo 'fleet on 127.0.0.1:4711'; exec sleep 60"}}}},
        clock_, log_);
    ASSERT_TRUE(processes.ok());
    provider_ = std::make_unique<SimulatedProvider>(
        std::map<std::string, ProvidedMachines>{{"a", machines}}, *std::move(processes), clock_,
        log_);
  }
  void TearDown() override {
    if (provider_) provider_->processes().stop_all(std::chrono::milliseconds(0));
  }
  static ReplicaOrder order(int ordinal, uint64_t token) {
    return {.pool = "a", .ordinal = ordinal, .token = token};
  }
  LaunchedReplica at(int ordinal) {
    for (const LaunchedReplica& one : provider_->list()) {
      if (one.order.ordinal == ordinal) return one;
    }
    return {};
  }
  static void wait(const std::function<bool()>& is_so) {
    for (int i = 0; i < 3'000 && !is_so(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_TRUE(is_so());
  }

  base::VirtualClock clock_{kSecond};
  base::Log log_{clock_, {.level = base::LogLevel::kNone}};
  TestFolder folder_;
  std::unique_ptr<SimulatedProvider> provider_;
};

TEST_F(SimulatedProviderTest, AMachineComesAfterItsLeadTime) {
  open({.lead_s = 60});
  ASSERT_TRUE(provider_->start(order(0, 1)).ok());
  clock_.advance_ns(59 * kSecond);
  EXPECT_EQ(at(0).port, 0);
  EXPECT_EQ(at(0).state, State::kRunning);
  EXPECT_EQ(at(0).progress_ns, clock_.now_ns()) << "nobody ends it because it does not advance";
  EXPECT_TRUE(provider_->processes().list().empty());
  clock_.advance_ns(kSecond);
  wait([&] { return at(0).port == 4711; });
}

TEST_F(SimulatedProviderTest, LeadTimesAreDrawnFromASeed) {
  const auto times = [&](uint64_t seed) {
    open({.lead_s = 10, .lead_p90_s = 100, .seed = seed});
    std::vector<int> ready;
    for (int i = 0; i < 8; ++i) EXPECT_TRUE(provider_->start(order(i, 1)).ok());
    for (int second = 0; second < 1'000; second += 5) {
      clock_.advance_ns(5 * kSecond);
      provider_->list();
      ready.push_back(static_cast<int>(provider_->processes().list().size()));
    }
    provider_->processes().stop_all(std::chrono::milliseconds(0));
    provider_.reset();
    std::filesystem::remove_all(folder_.file("state"));
    return ready;
  };
  const std::vector<int> first = times(1);
  EXPECT_EQ(first, times(1));
  EXPECT_NE(first, times(2));
  EXPECT_EQ(first.back(), 8);
}

TEST_F(SimulatedProviderTest, ThereIsAQuotaAndThereMayBeNoStock) {
  open({.quota = 2, .stock_outs = {{.at_s = 10, .for_s = 5}}});
  ASSERT_TRUE(provider_->start(order(0, 1)).ok());
  clock_.advance_ns(10 * kSecond);
  EXPECT_THAT(provider_->start(order(1, 2)).error().message, HasSubstr("out of stock"));
  EXPECT_TRUE(provider_->start(order(0, 1)).ok()) << "what is there is not ordered anew";
  clock_.advance_ns(5 * kSecond);
  ASSERT_TRUE(provider_->start(order(1, 2)).ok());
  EXPECT_THAT(provider_->start(order(2, 3)).error().message, HasSubstr("quota is 2"));
  provider_->stop(order(1, 2), std::chrono::milliseconds(0));
  clock_.advance_ns(kSecond);
  wait([&] { return at(1).state == State::kEnded; });
  EXPECT_TRUE(provider_->start(order(2, 3)).ok());
}

TEST_F(SimulatedProviderTest, AMachineIsTakenBackAfterANotice) {
  open({.reclaim_after_s = 100, .reclaim_notice_s = 20});
  ASSERT_TRUE(provider_->start(order(0, 1)).ok());
  wait([&] { return at(0).port != 0; });
  clock_.advance_ns(79 * kSecond);
  EXPECT_FALSE(at(0).is_reclaimed);
  clock_.advance_ns(kSecond);
  EXPECT_TRUE(at(0).is_reclaimed);
  EXPECT_EQ(at(0).state, State::kRunning) << "it may end what it does";
  clock_.advance_ns(20 * kSecond);
  at(0);
  wait([&] { return at(0).state == State::kEnded; });
  ASSERT_TRUE(provider_->start(order(0, 2)).ok());
  wait([&] { return at(0).port != 0; });
  EXPECT_FALSE(at(0).is_reclaimed) << "the next one is another machine";
}

TEST_F(SimulatedProviderTest, WhatHasNotComeYetIsForgottenWithItsLauncher) {
  open({.lead_s = 60});
  ASSERT_TRUE(provider_->start(order(0, 7)).ok());
  provider_.reset();
  open({.lead_s = 0});
  EXPECT_TRUE(provider_->list().empty()) << "nothing runs of it";
  ASSERT_TRUE(provider_->start(order(0, 8)).ok());
  wait([&] { return at(0).port != 0; });
}

}  // namespace
}  // namespace pelton::launch
