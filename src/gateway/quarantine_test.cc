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
  // Lost with nothing else begun there.
  bool crash(const net::HttpRequest& request, int64_t now_ns) {
    quarantine_.note_crash(request, std::to_string(++workers_), now_ns);
    return quarantine_.judge(request);
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

// Workers are killed under many requests: nobody is to blame.
TEST_F(QuarantineTest, ThoseWhoAreLostTogetherAreBlamedLess) {
  const net::HttpRequest one = request_of("one");
  const net::HttpRequest other = request_of("other");
  for (int loss = 1; loss <= 3; ++loss) {
    const std::string incarnation = std::to_string(loss);
    quarantine_.note_crash(one, incarnation, loss * kS);
    quarantine_.note_crash(other, incarnation, loss * kS);
    EXPECT_FALSE(quarantine_.judge(one));
    EXPECT_FALSE(quarantine_.judge(other));
  }
  EXPECT_TRUE(crash(one, 4 * kS)) << "but not for ever";
}

TEST_F(QuarantineTest, WhatHasBeenBegunIsClear) {
  const net::HttpRequest bystander = request_of("hello");
  EXPECT_FALSE(crash(bystander, 1));
  quarantine_.note_begun(bystander);
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
