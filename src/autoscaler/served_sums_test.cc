#include "autoscaler/served_sums.h"

#include <limits>

#include <gtest/gtest.h>

namespace pelton::autoscaler {
namespace {

ServedSums some() {
  ServedSums sums;
  for (int i = 0; i < 9; ++i) {
    sums.add({.input = 100, .computed = 60, .output = 11, .first_token_s = 0.1, .further_s = 1});
  }
  sums.add({.input = 5000, .computed = 4000, .output = 1, .first_token_s = 2});
  return sums;
}

TEST(ServedSums, ShortAndLongPromptsAreKeptApart) {
  const ServedSums sums = some();
  EXPECT_EQ(sums.requests(), 10);
  EXPECT_EQ(sums.computed(), 9 * 60 + 4000);
  EXPECT_EQ(sums.input, 5900);
  EXPECT_EQ(sums.output, 100);
  EXPECT_NEAR(sums.further_s, 9, 1e-9);
  EXPECT_EQ(sums.computed_at(0.5), 60);
  EXPECT_EQ(sums.computed_at(0.9), 60);
  EXPECT_EQ(sums.computed_at(0.95), 4000);
  EXPECT_EQ(ServedSums{}.computed_at(0.95), 0);
}

TEST(ServedSums, TheLastClassIsTheRest) {
  ServedSums sums;
  sums.add({.input = 64, .computed = 64});
  sums.add({.input = 65, .computed = 65});
  sums.add({.input = int64_t{1} << 40, .computed = int64_t{1} << 40});
  EXPECT_EQ(sums.classes[0].requests, 1);
  EXPECT_EQ(sums.classes[1].requests, 1);
  EXPECT_EQ(sums.classes[7].requests, 1);
}

TEST(ServedSums, WhatItGainedIsADifference) {
  const ServedSums before = some();
  ServedSums after = before;
  after.add({.input = 10, .computed = 10, .output = 3, .first_token_s = 0.5, .further_s = 0.25});
  EXPECT_TRUE(after.follows(before));
  EXPECT_FALSE(before.follows(after));
  const ServedSums gained = after.since(before);
  EXPECT_EQ(gained.requests(), 1);
  EXPECT_EQ(gained.output, 3);
  after.first_token_s = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(after.follows(before));
}

TEST(ServedSums, IsReadAsItWasWritten) {
  ServedSums sums = some();
  sums.further_s = 0.1 + 0.2;
  std::string text;
  base::JsonWriter w(text);
  sums.write(w);
  bool ok = true;
  EXPECT_EQ(ServedSums::read(Json::parse(text).value(), ok), sums);
  EXPECT_TRUE(ok);
  for (const char* bad : {"[]", "{}", "[1,2,3]", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,true]",
                          "[1.5,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]"}) {
    bool fine = true;
    ServedSums::read(Json::parse(bad).value(), fine);
    EXPECT_FALSE(fine) << bad;
  }
}

}  // namespace
}  // namespace pelton::autoscaler
