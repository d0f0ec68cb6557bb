#include "launch/process_files.h"

#include <filesystem>

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

TEST(ProcessFiles, AHolderIsReadAsItWasWritten) {
  const FolderHolder holder{.epoch = 7, .pid = 42, .identity = "99 pid:[1] a-b"};
  const std::optional<FolderHolder> read = parse_holder(holder_text(holder));
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->epoch, 7u);
  EXPECT_EQ(read->pid, 42);
  EXPECT_EQ(read->identity, holder.identity);
  for (const char* text : {"", "\n", "7\n", "7 42\n", "7 42 \n", "7 0 x\n", "7 -1 x\n", "7 42 x",
                           "-7 42 x\n", "7 42 x\ny\n", "7 99999999999 x\n"}) {
    EXPECT_FALSE(parse_holder(text).has_value()) << text;
  }
}

TEST(ProcessFiles, AProcessIsSeenAsTheKernelHasIt) {
  EXPECT_GT(start_ticks_of(::getpid()), 0);
  EXPECT_EQ(start_ticks_of(::getpid()), start_ticks_of(::getpid()));
  EXPECT_EQ(start_ticks_of(-1), 0);
  ASSERT_FALSE(command_line_of(::getpid()).empty());
  EXPECT_NE(command_line_of(::getpid())[0].find("launch_test"), std::string::npos);
  EXPECT_TRUE(command_line_of(-1).empty());
  const std::string self = std::filesystem::canonical("/proc/self/exe").string();
  EXPECT_FALSE(is_program_replaced(::getpid(), self));
  EXPECT_TRUE(is_program_replaced(::getpid(), "/bin/true"));
  EXPECT_FALSE(is_program_replaced(::getpid(), "/nowhere/pelton"));
  EXPECT_GT(resident_pages_of(::getpid()), 0);
}

TEST(ProcessFiles, WhatDiffersIsNamedWithoutValues) {
  const std::vector<std::string> was = {"p", "serve", "m", "--api-key", "old", "--seed=3", "--x"};
  EXPECT_EQ(differing_words(was, was), "");
  EXPECT_EQ(differing_words(was, {"q", "serve", "m", "--seed", "3", "--x", "--api-key", "old"}), "")
      << "in another order, written otherwise, by another path";
  EXPECT_EQ(differing_words(was, {"p", "serve", "m", "--api-key", "new", "--seed=4", "--x"}),
            "other --api-key, --seed");
  EXPECT_EQ(differing_words(was, {"p", "serve", "n", "--api-key", "old", "--seed=3", "--y"}),
            "other --x, --y, the model");
  EXPECT_EQ(differing_words({}, was), "") << "it is not known";
  EXPECT_EQ(differing_words(was, {}), "");
}

}  // namespace
}  // namespace pelton::launch
