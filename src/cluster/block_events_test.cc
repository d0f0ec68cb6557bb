#include "cluster/block_events.h"

#include <gtest/gtest.h>

namespace pelton::cluster {
namespace {

TEST(BlockEvents, AreReadAsTheyWereWritten) {
  const BlockEvents events{.clears = true,
                           .events = {{.stored = true, .group = 0, .name = 0x0123456789ABCDEFull},
                                      {.stored = false, .group = 127, .name = ~uint64_t{0}}}};
  const Result<BlockEvents> again = decode_block_events(encode(events));
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->clears, true);
  EXPECT_EQ(again->events, events.events);
}

TEST(BlockEvents, RefusesWhatIsNone) {
  EXPECT_FALSE(decode_block_events("").ok());
  EXPECT_FALSE(decode_block_events("\2").ok());
  const std::string whole = encode(BlockEvents{.clears = false, .events = {{}, {}}});
  for (size_t size = 2; size < whole.size(); ++size) {
    EXPECT_EQ(decode_block_events(whole.substr(0, size)).ok(), size == 10) << size;
  }
}

}  // namespace
}  // namespace pelton::cluster
