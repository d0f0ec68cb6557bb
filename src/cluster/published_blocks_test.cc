#include "cluster/published_blocks.h"

#include <numeric>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace pelton::cluster {
namespace {

constexpr uint64_t kSeed = 7;
constexpr int kBlock = 2;

class Published : public testing::Test {
 protected:
  // The names of a prompt's whole blocks.
  static std::vector<kv::BlockHash> names(const std::vector<TokenId>& prompt) {
    const kv::BlockHasher hasher(kSeed);
    std::vector<kv::BlockHash> all;
    kv::BlockHash name = hasher.root({});
    for (size_t at = 0; at + kBlock <= prompt.size(); at += kBlock) {
      name = hasher.extend(name, std::span(prompt).subspan(at, kBlock));
      all.push_back(name);
    }
    return all;
  }
  void store(const kv::BlockHash& name) {
    blocks_.apply({.kind = kv::Event::Kind::kStored, .block = name}, said_);
  }
  void remove(const kv::BlockHash& name) {
    blocks_.apply({.kind = kv::Event::Kind::kRemoved, .block = name}, said_);
  }
  // "stored 1 2 3 4 (2)": tokens, and blocks.
  std::string said() {
    std::string text;
    for (const VllmEvent& event : said_) {
      using Kind = VllmEvent::Kind;
      text += event.kind == Kind::kStored    ? "stored"
              : event.kind == Kind::kRemoved ? "removed"
                                             : "cleared";
      for (const TokenId token : event.tokens) text += fmt::format(" {}", token);
      text += fmt::format(" ({}{})", event.hashes.size(), event.parent ? " behind one" : "");
      text += '\n';
    }
    said_.clear();
    return text;
  }

  PublishedBlocks blocks_{kSeed, 4};
  std::vector<VllmEvent> said_;
};

TEST_F(Published, ABlockComesWithItsTokensAndItsParent) {
  const std::vector<TokenId> prompt = {1, 2, 3, 4, 5};
  blocks_.learn(prompt, kBlock);
  for (const kv::BlockHash& name : names(prompt)) store(name);
  EXPECT_EQ(said(), "stored 1 2 3 4 (2)\n");
  const std::vector<TokenId> longer = {1, 2, 3, 4, 5, 6};
  blocks_.learn(longer, kBlock);
  store(names(longer)[2]);
  EXPECT_EQ(said(), "stored 5 6 (1 behind one)\n");
  remove(names(longer)[2]);
  EXPECT_EQ(said(), "removed (1)\n");
  remove(names(longer)[2]);
  EXPECT_EQ(said(), "");
}

TEST_F(Published, WhatAnAnswerFilledIsSaidWhenAPromptHoldsIt) {
  const std::vector<TokenId> turn = {1, 2, 3, 4};
  store(names(turn)[0]);
  store(names(turn)[1]);
  EXPECT_EQ(said(), "") << "nobody knows its tokens";
  remove(names(turn)[1]);
  EXPECT_EQ(said(), "") << "nor has it been said";
  blocks_.learn(turn, kBlock);
  blocks_.say_learnt(said_);
  EXPECT_EQ(said(), "stored 1 2 (1)\n");
  blocks_.say_learnt(said_);
  EXPECT_EQ(said(), "");
}

TEST_F(Published, WhatIsKeptIsBoundedAndClearingVoidsAll) {
  const std::vector<TokenId> first = {1, 2};
  blocks_.learn(first, kBlock);
  std::vector<TokenId> other(8);
  std::iota(other.begin(), other.end(), 10);
  blocks_.learn(other, kBlock);
  store(names(first)[0]);
  EXPECT_EQ(said(), "") << "its tokens are forgotten";
  store(names(other)[0]);
  EXPECT_EQ(said(), "stored 10 11 (1)\n");
  blocks_.clear(said_);
  EXPECT_EQ(said(), "cleared (0)\n");
  remove(names(other)[0]);
  EXPECT_EQ(said(), "");
}

}  // namespace
}  // namespace pelton::cluster
