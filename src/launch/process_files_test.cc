#include "launch/process_files.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace pelton::launch {
namespace {

TEST(ProcessFiles, AnOrderIsReadAsItWasWritten) {
  const WrittenOrder written{.order = {.pool = "a b/c", .ordinal = 3, .token = 1ULL << 60},
                             .unix_ms = 1'764'000'000'123};
  const std::optional<WrittenOrder> read = parse_order(order_text(written));
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->order, written.order);
  EXPECT_EQ(read->unix_ms, written.unix_ms);
}

TEST(ProcessFiles, WhatIsNoOrderIsNone) {
  for (const char* text :
       {"", "\n", "a", "a\n", "a\n1 2\n", "a\n1 2 3", "a\n1 2 3 4\n", "a\n-1 2 3\n", "a\n1 -2 3\n",
        "a\n1 2 -3\n", "\n1 2 3\n", "a\n99999 2 3\n", "a\n1 99999999999999999999 3\n"}) {
    EXPECT_FALSE(parse_order(text).has_value()) << text;
  }
}

TEST(ProcessFiles, APoolsNameIsAFilesName) {
  EXPECT_EQ(file_name_of("box-1_A"), "box-1_A");
  EXPECT_EQ(file_name_of("../x"), "%2E%2E%2Fx");
  EXPECT_NE(file_name_of("a.b"), file_name_of("a/b"));
}

TEST(ProcessFiles, TheAddressIsTheLineOfTheFleetPort) {
  const auto address =
      fleet_address_of("listening on http://127.0.0.1:1\nfleet on 127.0.0.1:4711\n");
  ASSERT_TRUE(address.has_value());
  EXPECT_EQ(address->host, "127.0.0.1");
  EXPECT_EQ(address->port, 4711);
  EXPECT_FALSE(fleet_address_of("fleet on 127.0.0.1:4711").has_value()) << "half a line";
  EXPECT_FALSE(fleet_address_of("fleet on nowhere\n").has_value());
  EXPECT_FALSE(fleet_address_of("").has_value());
}

TEST(ProcessFiles, AProcessHasMemory) {
  EXPECT_GT(resident_pages_of(::getpid()), 100);
  EXPECT_EQ(resident_pages_of(1 << 30), 0);
}

}  // namespace
}  // namespace pelton::launch
