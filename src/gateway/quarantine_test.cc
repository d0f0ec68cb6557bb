#include "gateway/quarantine.h"

#include <gtest/gtest.h>

namespace pelton::gateway {
namespace {

constexpr int64_t kS = 1'000'000'000;

net::HttpRequest request_of(std::string body) {
  return {.method = "POST", .path = "/v1/completions", .body = std::move(body)};
}

TEST(Quarantine, RefusesFromTheSecondCrashOnForAWhile) {
  Quarantine quarantine({.secret = "s", .time_ns = 600 * kS});
  const net::HttpRequest bad = request_of("poison");
  EXPECT_FALSE(quarantine.holds(bad, 0));
  EXPECT_FALSE(quarantine.note_crash(bad, 1 * kS));
  EXPECT_FALSE(quarantine.holds(bad, 1 * kS));
  EXPECT_TRUE(quarantine.note_crash(bad, 2 * kS)) << "another time that it is sent counts too";
  EXPECT_TRUE(quarantine.holds(bad, 3 * kS));
  EXPECT_FALSE(quarantine.holds(request_of("harmless"), 3 * kS));
  EXPECT_TRUE(quarantine.holds(bad, 602 * kS));
  EXPECT_FALSE(quarantine.holds(bad, 603 * kS));
  EXPECT_FALSE(quarantine.note_crash(bad, 1300 * kS)) << "forgotten, it begins anew";
}

TEST(Quarantine, WhatHasBeenBegunIsClear) {
  Quarantine quarantine({.secret = "s"});
  const net::HttpRequest bystander = request_of("hello");
  EXPECT_FALSE(quarantine.note_crash(bystander, 1));
  quarantine.note_begun(bystander);
  EXPECT_FALSE(quarantine.note_crash(bystander, 2));
  EXPECT_EQ(quarantine.size(), 1u);
}

TEST(Quarantine, IsBounded) {
  Quarantine quarantine({.secret = "s", .requests_max = 3});
  for (int i = 0; i < 10; ++i) quarantine.note_crash(request_of(std::to_string(i)), i);
  EXPECT_EQ(quarantine.size(), 3u);
  EXPECT_TRUE(quarantine.note_crash(request_of("9"), 11)) << "the newest are kept";
  EXPECT_FALSE(quarantine.note_crash(request_of("0"), 12));
}

}  // namespace
}  // namespace pelton::gateway
