// Workers of one kind are known by their names, each start by its own.
#include "kv_transfer/peer_id.h"

#include <gtest/gtest.h>

namespace pelton::kv_transfer {
namespace {

TEST(PeerId, EndsWithWhatItsBlocksAre) {
  const PeerLayout layout = {{"arithmetic", "avx512 16"}, {"weights", "w"}};
  const std::string one = peer_id("a1", layout);
  const std::string other = peer_id("b2", layout);
  EXPECT_NE(one, other);
  EXPECT_EQ(layout_of(one), layout_of(other));
  EXPECT_EQ(layout_of(one).size(), 16u);
  for (size_t i = 0; i < layout.size(); ++i) {
    PeerLayout changed = layout;
    changed[i].second += " not";
    EXPECT_NE(layout_of(peer_id("a1", changed)), layout_of(one)) << layout[i].first;
  }
  EXPECT_EQ(layout_of("of an earlier version"), "");
}

}  // namespace
}  // namespace pelton::kv_transfer
