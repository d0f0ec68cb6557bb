#include "cli/human_size.h"

#include <gtest/gtest.h>

namespace pelton::cli {
namespace {

TEST(HumanSize, ReadsUnits) {
  EXPECT_EQ(*parse_size("4096"), 4096);
  EXPECT_EQ(*parse_size("32K"), 32768);
  EXPECT_EQ(*parse_size("32k"), 32000);
  EXPECT_EQ(*parse_size("4GiB"), int64_t{4} << 30);
  EXPECT_EQ(*parse_size("1.5 GiB"), int64_t{3} << 29);
  EXPECT_EQ(*parse_size("2GB"), 2'000'000'000);
  EXPECT_EQ(*parse_size("0"), 0);
  EXPECT_EQ(*parse_size("0.5", 1 << 30), int64_t{1} << 29);
  EXPECT_EQ(*parse_size("16", 1 << 30), int64_t{1} << 34);
  EXPECT_EQ(*parse_size("16B", 1 << 30), 16);
  EXPECT_FALSE(parse_size("0.5B", 1 << 30).ok());
}

TEST(HumanSize, RefusesWhatIsNoSize) {
  for (const char* text : {"", "K", "-1", "3X", "1.5", "nan", "inf", "9999999T", "4 4", "0x10"}) {
    EXPECT_FALSE(parse_size(text).ok()) << text;
  }
}

TEST(HumanSize, Writes) {
  EXPECT_EQ(format_bytes(512), "512 B");
  EXPECT_EQ(format_bytes(13'761'300'000.0), "12.8 GiB");
  EXPECT_EQ(format_count(131072), "131,072");
  EXPECT_EQ(format_count(-1000), "-1,000");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_duration(0.0123), "12 ms");
  EXPECT_EQ(format_duration(99.6), "1m 40s");
  EXPECT_EQ(format_duration(7800), "2h 10m");
}

}  // namespace
}  // namespace pelton::cli
