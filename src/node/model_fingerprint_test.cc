#include "node/model_fingerprint.h"

#include <set>

#include <gtest/gtest.h>

namespace pelton::node {
namespace {

TEST(ModelFingerprint, WhatIsWordedOtherwiseIsAnotherOne) {
  const std::string plain(32, 'a');
  EXPECT_EQ(ModelFingerprint::worded(plain, {}), plain);
  const std::set<std::string> all = {
      plain, ModelFingerprint::worded(plain, {.reasoning_field = "reasoning", .current_date = {}}),
      ModelFingerprint::worded(plain, {.reasoning_field = {}, .current_date = "2026-11-28"}),
      ModelFingerprint::worded(plain, {.reasoning_field = {}, .current_date = "2026-11-29"}),
      ModelFingerprint::worded(std::string(32, 'b'),
                               {.reasoning_field = {}, .current_date = "2026-11-29"})};
  EXPECT_EQ(all.size(), 5U);
  for (const std::string& one : all) EXPECT_EQ(one.size(), plain.size());
}

}  // namespace
}  // namespace pelton::node
