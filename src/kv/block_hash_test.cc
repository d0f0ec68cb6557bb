#include "kv/block_hash.h"

#include <map>
#include <set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"
#include "kv/block_pool.h"

namespace pelton::kv {
namespace {

std::vector<TokenId> some_tokens(size_t count) {
  std::vector<TokenId> tokens;
  for (size_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<TokenId>(base::random_bits(3, i) % 200'000));
  }
  return tokens;
}

TEST(BlockHash, depends_on_seed_salt_adapter_parent_and_every_token) {
  const BlockHasher hasher(1);
  const std::vector<TokenId> tokens = some_tokens(16);
  const auto hash = [&](const BlockHasher& with, const BlockHasher::Origin& origin) {
    return with.extend(with.root(origin), tokens);
  };
  const BlockHash plain = hash(hasher, {});
  EXPECT_EQ(plain, hash(BlockHasher(1), {}));
  EXPECT_NE(plain, hash(BlockHasher(2), {}));
  EXPECT_NE(plain, hash(hasher, {.salt = "tenant"}));
  EXPECT_NE(plain, hash(hasher, {.salt = "", .adapter = 1}));
  EXPECT_NE(plain, hasher.extend(plain, tokens));
  for (size_t i = 0; i < tokens.size(); ++i) {
    std::vector<TokenId> other = tokens;
    other[i] ^= 1;
    EXPECT_NE(plain, hasher.extend(hasher.root({}), other)) << i;
  }
}

// A last strip is filled up with zeros; that must not be the same as ending in zeros.
TEST(BlockHash, length_counts) {
  const BlockHasher hasher(7);
  const BlockHash root = hasher.root({});
  EXPECT_NE(root, hasher.extend(root, {}));
  std::set<std::pair<uint64_t, uint64_t>> seen;
  for (size_t length = 0; length < 70; ++length) {
    const std::vector<TokenId> zeros(length, 0);
    const BlockHash hash = hasher.extend(root, zeros);
    EXPECT_TRUE(seen.insert({hash.low, hash.high}).second) << length;
  }
  EXPECT_NE(hasher.root({.salt = std::string_view("a\0", 2)}), hasher.root({.salt = "a"}));
}

// Each half by itself has no collision among near-equal contents, and every bit of it moves.
TEST(BlockHash, one_changed_token_moves_half_the_bits) {
  const BlockHasher hasher(11);
  const BlockHash root = hasher.root({});
  std::set<uint64_t> lows, highs;
  std::vector<int> flips(128, 0);
  BlockHash before = hasher.extend(root, std::vector<TokenId>(16, 0));
  constexpr int kCount = 40'000;
  for (int i = 1; i <= kCount; ++i) {
    std::vector<TokenId> tokens(16, 0);
    tokens[static_cast<size_t>(i) % 16] = i;
    const BlockHash hash = hasher.extend(root, tokens);
    EXPECT_TRUE(lows.insert(hash.low).second && highs.insert(hash.high).second) << i;
    for (size_t bit = 0; bit < 64; ++bit) {
      flips[bit] += static_cast<int>((hash.low ^ before.low) >> bit & 1);
      flips[64 + bit] += static_cast<int>((hash.high ^ before.high) >> bit & 1);
    }
    before = hash;
  }
  for (const int count : flips) EXPECT_NEAR(count, kCount / 2, kCount / 40);
}

// What one process names, another with the same seed finds: the numbers are a format.
TEST(BlockHash, is_the_same_in_every_build) {
  const BlockHasher hasher(42);
  const std::vector<TokenId> tokens = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
  const BlockHash hash = hasher.extend(hasher.root({.salt = "s"}), tokens);
  EXPECT_EQ(hash.low, 7726360834843863747ull);
  EXPECT_EQ(hash.high, 3829781117745720445ull);
}

// Row TN-08 of the hardening list. Whoever knows one process's seed can search for contents that
// agree in as many bits as he has patience for; in another process they agree no more than any two.
TEST(BlockHash, TN_08_what_collides_under_one_seed_does_not_under_another) {
  const BlockHasher known(1);
  const BlockHasher other(0x5EC2E7);
  const auto content = [](uint64_t number) {
    std::vector<TokenId> tokens(16, 7);
    tokens[3] = static_cast<TokenId>(number);
    tokens[12] = static_cast<TokenId>(number * 31 % 200'000);
    return tokens;
  };
  constexpr uint64_t kMask = (uint64_t{1} << 24) - 1;  // as many bits as this test's patience
  std::map<uint64_t, uint64_t> first_with;
  int forged = 0, still = 0;
  for (uint64_t i = 0; i < 60'000; ++i) {
    const BlockHash hash = known.extend(known.root({}), content(i));
    const auto [same, is_new] = first_with.emplace(hash.low & kMask, i);
    if (is_new) continue;
    ++forged;
    const BlockHash a = other.extend(other.root({}), content(i));
    const BlockHash b = other.extend(other.root({}), content(same->second));
    still += (a.low & kMask) == (b.low & kMask) ? 1 : 0;
    EXPECT_NE(a, b);
  }
  EXPECT_GT(forged, 50) << "some 107 are to be expected";
  EXPECT_EQ(still, 0) << "one in 160 000 runs by chance";
}

// Nor does it help to have forged one half: a name is all of its 128 bits.
TEST(BlockHash, TN_08_names_that_agree_in_64_bits_are_two) {
  BlockPool pool({.block_count = 4, .block_tokens = 16});
  std::vector<BlockId> blocks;
  ASSERT_TRUE(pool.take(2, blocks));
  const BlockHash mine{0x1234, 0x5678};
  pool.cache(blocks[0], mine, BlockPool::EvictionPriority::kFirst);
  for (int bit = 0; bit < 64; ++bit) {
    EXPECT_EQ(pool.find({mine.low, mine.high ^ uint64_t{1} << bit}), kNoBlock) << bit;
    EXPECT_EQ(pool.find({mine.low ^ uint64_t{1} << bit, mine.high}), kNoBlock) << bit;
  }
  pool.cache(blocks[1], {mine.low, mine.high + 1}, BlockPool::EvictionPriority::kFirst);
  EXPECT_EQ(pool.find(mine), blocks[0]);
  EXPECT_EQ(pool.find({mine.low, mine.high + 1}), blocks[1]);
}

}  // namespace
}  // namespace pelton::kv
