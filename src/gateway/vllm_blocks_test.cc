#include "gateway/vllm_blocks.h"

#include <gtest/gtest.h>

#include "gateway/block_view.h"

namespace pelton::gateway {
namespace {

using cluster::VllmEvent;
using Kind = VllmEvent::Kind;

const std::vector<TokenId> kPrompt = {1, 2, 3, 4, 5, 6, 7};  // three blocks of two, and one more

class Blocks : public testing::Test {
 protected:
  // How many blocks of the prompt the worker is known to hold.
  int hit(const std::vector<VllmEvent>& events) {
    VllmBlocks::Changes changes;
    blocks_.apply(events, hasher_, changes);
    if (changes.clears) view_.forget(0);
    for (const VllmBlocks::Change& one : changes.changes) {
      one.stored ? view_.note_stored(0, BlockView::Group::kWidest, one.name)
                 : view_.note_removed(0, BlockView::Group::kWidest, one.name);
    }
    std::vector<int> hits(1);
    view_.find(block_names(hasher_, {}, kPrompt, 2), 0, 0, hits);
    return hits[0];
  }

  const kv::BlockHasher hasher_{5};
  VllmBlocks blocks_;
  BlockView view_{size_t{1} << 16};
};

TEST_F(Blocks, HaveTheNamesOfTheirTokens) {
  EXPECT_EQ(
      hit({{.kind = Kind::kStored, .hashes = {70, 71}, .tokens = {1, 2, 3, 4}, .block_tokens = 2}}),
      2);
  EXPECT_EQ(blocks_.block_tokens(), 2);
  EXPECT_EQ(hit({{.kind = Kind::kStored,
                  .hashes = {72},
                  .parent = 71,
                  .tokens = {5, 6},
                  .block_tokens = 2}}),
            3);
  EXPECT_EQ(hit({{.kind = Kind::kRemoved, .hashes = {71, 99}}}), 1);
  EXPECT_EQ(hit({{.kind = Kind::kStored,
                  .hashes = {71},
                  .parent = 70,
                  .tokens = {3, 4},
                  .block_tokens = 2}}),
            3);
  EXPECT_EQ(hit({{.kind = Kind::kCleared}}), 0);
  EXPECT_EQ(blocks_.size(), 0u);
}

TEST_F(Blocks, WithoutABeginningOrOfAnotherKindArePassedOver) {
  EXPECT_EQ(hit({{.kind = Kind::kStored,
                  .hashes = {70},
                  .parent = 1,
                  .tokens = {1, 2},
                  .block_tokens = 2}}),
            0);
  EXPECT_EQ(hit({{.kind = Kind::kStored,
                  .hashes = {70},
                  .tokens = {1, 2},
                  .block_tokens = 2,
                  .is_special = true}}),
            0);
  EXPECT_EQ(hit({{.kind = Kind::kStored,
                  .hashes = {70},
                  .tokens = {1, 2},
                  .block_tokens = 2,
                  .group = 1}}),
            0);
  EXPECT_EQ(hit({{.kind = Kind::kStored, .hashes = {70}, .tokens = {1, 2}, .block_tokens = 2}}), 1);
  EXPECT_EQ(hit({{.kind = Kind::kRemoved, .hashes = {70}, .is_special = true}}), 1)
      << "on another medium";
}

}  // namespace
}  // namespace pelton::gateway
