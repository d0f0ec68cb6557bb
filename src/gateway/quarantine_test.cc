#include "gateway/quarantine.h"

#include <gtest/gtest.h>

namespace pelton::gateway {
namespace {

constexpr int64_t kS = 1'000'000'000;

net::HttpRequest request_of(std::string body) {
  return {.method = "POST", .path = "/v1/completions", .body = std::move(body)};
}

class QuarantineTest : public testing::Test {
 protected:
  bool crash(const net::HttpRequest& request, int64_t now_ns) {
    return quarantine_.note_crash(request, std::to_string(++workers_), now_ns);
  }

  Quarantine quarantine_{{.secret = "s", .time_ns = 600 * kS, .requests_max = 8}};
  int workers_ = 0;
};

TEST_F(QuarantineTest, RefusesFromTheSecondCrashOnForAWhile) {
  const net::HttpRequest bad = request_of("poison");
  EXPECT_FALSE(quarantine_.holds(bad, 0));
  EXPECT_FALSE(crash(bad, 1 * kS));
  EXPECT_FALSE(quarantine_.holds(bad, 1 * kS));
  EXPECT_TRUE(crash(bad, 2 * kS)) << "another time that it is sent counts too";
  EXPECT_TRUE(quarantine_.holds(bad, 3 * kS));
  EXPECT_FALSE(quarantine_.holds(request_of("harmless"), 3 * kS));
  EXPECT_TRUE(quarantine_.holds(bad, 602 * kS));
  EXPECT_FALSE(quarantine_.holds(bad, 603 * kS));
  EXPECT_FALSE(crash(bad, 1300 * kS)) << "forgotten, it begins anew";
}

// FT-15: a client that asks twice at once: of the second one it is seen first what becomes of it.
TEST_F(QuarantineTest, NoTrialBeginsWhileOneLikeItIsUnderWay) {
  using Trial = Quarantine::Trial;
  const net::HttpRequest bad = request_of("poison");
  quarantine_.note_crash(bad, "w1", 1);
  {
    const Quarantine::InFlight other(quarantine_, bad);
    const Quarantine::InFlight third(quarantine_, bad);
    EXPECT_EQ(quarantine_.begin_trial(bad, "w3"), Trial::kTaken);
    EXPECT_EQ(quarantine_.begin_trial(request_of("hello"), "w3"), Trial::kNone);
  }
  EXPECT_EQ(quarantine_.begin_trial(bad, "w3"), Trial::kBegun);
}

// FT-15: many are lost with the first worker; the second loss shows which one it was.
TEST_F(QuarantineTest, AWorkerTriesOneSuspectAtATime) {
  using Trial = Quarantine::Trial;
  const net::HttpRequest bad = request_of("poison");
  const net::HttpRequest bystander = request_of("hello");
  EXPECT_EQ(quarantine_.begin_trial(bad, "w2"), Trial::kNone) << "nobody is suspected";
  quarantine_.note_crash(bad, "w1", 1);
  quarantine_.note_crash(bystander, "w1", 1);
  EXPECT_TRUE(quarantine_.tried_by_others(bystander).empty());
  EXPECT_EQ(quarantine_.begin_trial(bad, "w2"), Trial::kBegun);
  EXPECT_EQ(quarantine_.begin_trial(bystander, "w2"), Trial::kTaken);
  EXPECT_EQ(quarantine_.tried_by_others(bystander), std::vector<std::string>{"w2"});
  EXPECT_TRUE(quarantine_.tried_by_others(request_of("new")).empty()) << "of no interest to it";
  EXPECT_EQ(quarantine_.begin_trial(request_of("new"), "w2"), Trial::kNone);
  EXPECT_EQ(quarantine_.begin_trial(bystander, "w3"), Trial::kBegun);
  EXPECT_TRUE(quarantine_.note_crash(bad, "w2", 2));
  EXPECT_FALSE(quarantine_.note_crash(request_of("new"), "w2", 2));
  quarantine_.note_begun(bystander, "w3");
  EXPECT_FALSE(quarantine_.holds(bystander, 3));
  EXPECT_EQ(quarantine_.begin_trial(request_of("new"), "w3"), Trial::kBegun) << "free again";
  quarantine_.end_trial("w3");
  EXPECT_TRUE(quarantine_.tried_by_others(request_of("new")).empty());
}

// Clients that ask the same at once: one worker that is lost is one.
TEST_F(QuarantineTest, AWorkerThatIsLostCountsOnce) {
  const net::HttpRequest request = request_of("hello");
  EXPECT_FALSE(quarantine_.note_crash(request, "w1", 1));
  EXPECT_FALSE(quarantine_.note_crash(request, "w1", 2));
  EXPECT_TRUE(quarantine_.note_crash(request, "w2", 3));
}

TEST_F(QuarantineTest, WhatHasBeenBegunIsClear) {
  const net::HttpRequest bystander = request_of("hello");
  EXPECT_FALSE(crash(bystander, 1));
  quarantine_.note_begun(bystander, "another");
  EXPECT_FALSE(crash(bystander, 2));
  EXPECT_EQ(quarantine_.size(), 1u);
}

TEST_F(QuarantineTest, IsBounded) {
  for (int i = 0; i < 100; ++i) crash(request_of(std::to_string(i)), i);
  EXPECT_EQ(quarantine_.size(), 8u);
  EXPECT_TRUE(crash(request_of("99"), 101)) << "the newest are kept";
  EXPECT_FALSE(crash(request_of("0"), 102));
}

}  // namespace
}  // namespace pelton::gateway
