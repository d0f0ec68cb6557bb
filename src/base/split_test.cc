#include "base/split.h"

#include <gtest/gtest.h>

namespace pelton::base {
namespace {

using Parts = std::vector<std::string_view>;

TEST(Split, KeepsEmptyParts) {
  EXPECT_EQ(split("a,,b", ','), (Parts{"a", "", "b"}));
  EXPECT_EQ(split(",a,", ','), (Parts{"", "a", ""}));
  EXPECT_EQ(split("", ','), (Parts{""}));
  EXPECT_EQ(split("a b", ','), (Parts{"a b"}));
}

TEST(Split, SkipsEmptyParts) {
  EXPECT_EQ(split_skipping_empty(",a,,b,", ','), (Parts{"a", "b"}));
  EXPECT_EQ(split_skipping_empty("", ','), Parts());
  EXPECT_EQ(split_skipping_empty(",,", ','), Parts());
}

}  // namespace
}  // namespace pelton::base
