// The zones' files lie beside the fuzzer's corpus: a machine may have none, or a newer one.
#include "base/time_zone.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"

namespace pelton::base {
namespace {

using testing::HasSubstr;

std::string bytes_of(const std::string& name) {
  return read_file(PELTON_SOURCE_DIR "/src/base/testdata/time_zone_fuzz/" + name).value();
}

TimeZone zone_of(const std::string& name) {
  return parse_time_zone(bytes_of(name)).value();
}

constexpr int kHour = 3600;

TEST(TimeZoneExample, AClockIsSetTwiceAYear) {
  const TimeZone berlin = zone_of("berlin");
  constexpr int64_t kSpring_s = 1'774'746'000;  // 2026-03-29 01:00 UTC
  EXPECT_EQ(berlin.offset_at(kSpring_s - 1), kHour);
  EXPECT_EQ(berlin.offset_at(kSpring_s), 2 * kHour);
  // Beyond what the file lists, by its rule.
  constexpr int64_t kAutumn_s = 3'812'922'000;  // 2090-10-29 01:00 UTC
  EXPECT_EQ(berlin.offset_at(kAutumn_s - 1), 2 * kHour);
  EXPECT_EQ(berlin.offset_at(kAutumn_s), kHour);
  const TimeZone york = zone_of("new_york");
  constexpr int64_t kMarch_s = 1'772'953'200;  // 2026-03-08 07:00 UTC
  EXPECT_EQ(york.offset_at(kMarch_s - 1), -5 * kHour);
  EXPECT_EQ(york.offset_at(kMarch_s), -4 * kHour);
}

TEST(TimeZoneTest, OneThatIsNeverSetAndOneWithoutARule) {
  const TimeZone kolkata = zone_of("kolkata");
  EXPECT_TRUE(kolkata.changes.empty());
  EXPECT_EQ(kolkata.offset_s, 5 * kHour + 1800);
  // Ramadan moves through the year: only the list says when.
  const TimeZone casablanca = zone_of("casablanca");
  constexpr int64_t kRamadan_s = 1'771'120'800;  // 2026-02-15 02:00 UTC
  EXPECT_EQ(casablanca.offset_at(kRamadan_s - 1), kHour);
  EXPECT_EQ(casablanca.offset_at(kRamadan_s), 0);
}

// Ireland's winter is what the rule calls summer, and the offset is less in it.
TEST(TimeZoneTest, SummerMayBeWinter) {
  const TimeZone dublin = zone_of("dublin");
  constexpr int64_t kJuly_s = 1'782'864'000;
  EXPECT_EQ(dublin.offset_at(kJuly_s), kHour);
  EXPECT_EQ(dublin.offset_at(TimeZone::kBegin_s), 0);
}

TEST(TimeZoneTest, WhatIsCutOffOrChangedIsRefused) {
  const std::string whole = bytes_of("berlin");
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(parse_time_zone(whole.substr(0, size)).ok()) << size;
  }
  const std::string rule = "CET-1CEST,M3.5.0,M10.5.0/3";
  for (const char* const other :
       {"CET-1CEST", "CET-1CEST,M3.5.0", "C-1", "CET-99", "CET-1CEST,M13.5.0,M10.5.0",
        "CET-1CEST,M3.6.0,M10.5.0", "CET-1CEST,M3.5.0,J366", "CET-1CEST,M3.5.0,M10.5.0/168",
        "<+01"}) {
    std::string bytes = whole;
    bytes.replace(bytes.rfind(rule), rule.size(), other);
    const auto zone = parse_time_zone(bytes);
    ASSERT_FALSE(zone.ok()) << other;
    EXPECT_THAT(zone.error().message, HasSubstr("its rule for the future"));
  }
  std::string old = whole;
  old[4] = 0;
  EXPECT_THAT(parse_time_zone(old).error().message, HasSubstr("version 1"));
}

TEST(TimeZoneTest, NoNameLeadsElsewhere) {
  const std::string folder = PELTON_SOURCE_DIR "/src/base/testdata/time_zone_fuzz";
  EXPECT_EQ(read_time_zone(folder, "berlin").value().name, "berlin");
  EXPECT_EQ(read_time_zone(folder, "atlantis").error().code, ErrorCode::kNotFound);
  for (const char* const name : {"", "/berlin", "../time_zone_fuzz/berlin", "a/../berlin",
                                 "./berlin", "berlin/", "a//b", "be rlin"}) {
    const auto zone = read_time_zone(folder, name);
    ASSERT_FALSE(zone.ok()) << name;
    EXPECT_THAT(zone.error().message, HasSubstr("is no name of a time zone")) << name;
  }
}

}  // namespace
}  // namespace pelton::base
