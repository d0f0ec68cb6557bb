#include "executor/rank_step.h"

#include <random>

#include <gtest/gtest.h>

namespace pelton::executor {
namespace {

constexpr int kBlockTokens = 16;

RankStepReader::Limits limits() {
  RankStepReader::Limits limits{.tokens = 64, .logit_rows = 8, .slots = 8, .vocab = 1000};
  limits.blocks = {500, 300};
  return limits;
}

models::ForwardInput one_token(int slot, int position, const std::vector<int32_t>& full,
                               const std::vector<int32_t>& window) {
  models::ForwardInput input;
  input.tokens = {7};
  kv::PerGroup<const int32_t*> tables;
  tables.push_back(full.data());
  tables.push_back(window.data());
  input.sequences.push_back({.start = position, .count = 1, .tables = tables, .slot = slot});
  input.logit_rows = {0};
  return input;
}

TEST(RankStep, OnlyWhatChangedOfATableTravels) {
  RankStepWriter writer(kBlockTokens);
  RankStepReader reader(limits());
  const std::vector<int32_t> full = {4, 7};
  std::vector<int32_t> window = {2, 9};
  const size_t first = writer.step(one_token(3, 16, full, window)).size();
  RankStepWriter again(kBlockTokens);
  ASSERT_EQ(*reader.read(again.step(one_token(3, 16, full, window))), RankMessage::kStep);
  const std::string second(again.step(one_token(3, 17, full, window)));
  EXPECT_EQ(first - second.size(), 4 * 2 * sizeof(int32_t));  // four entries, an index and a block
  ASSERT_EQ(*reader.read(second), RankMessage::kStep);
  EXPECT_EQ(reader.step().sequences[0].tables[0][1], 7);
  window[0] = engine::kNoBlock;  // has left the window
  ASSERT_EQ(*reader.read(again.step(one_token(3, 18, full, window))), RankMessage::kStep);
  EXPECT_EQ(reader.step().sequences[0].tables[1][0], engine::kNoBlock);
  EXPECT_EQ(reader.step().sequences[0].tables[1][1], 9);
}

// Whatever is written is read, over many steps of sequences that come and go.
TEST(RankStep, RoundTrips) {
  std::mt19937 random(std::random_device{}());
  RankStepWriter writer(kBlockTokens);
  RankStepReader reader(limits());
  for (int turn = 0; turn < 2000; ++turn) {
    std::vector<std::vector<int32_t>> tables;
    models::ForwardInput input;
    for (int slot = 0; slot < 8; ++slot) {
      if (random() % 2 == 0 && !(slot == 7 && input.sequences.empty())) continue;
      const int count = 1 + static_cast<int>(random() % 7);
      const int start = static_cast<int>(random() % 200);
      kv::PerGroup<const int32_t*> of;
      for (const int blocks : {500, 300}) {
        std::vector<int32_t> table(static_cast<size_t>(start + count + 15) / 16);
        for (int32_t& block : table)
          block = static_cast<int32_t>(random() % blocks) - (random() % 9 == 0);
        for (int32_t& block : table) block = std::max(block, engine::kNoBlock);
        tables.push_back(std::move(table));
        of.push_back(tables.back().data());
      }
      input.sequences.push_back({.start = start, .count = count, .tables = of, .slot = slot});
      for (int i = 0; i < count; ++i) input.tokens.push_back(static_cast<TokenId>(random() % 1000));
      input.logit_rows.push_back(static_cast<int>(input.tokens.size()) - 1);
    }
    ASSERT_EQ(*reader.read(writer.step(input)), RankMessage::kStep);
    const models::ForwardInput& got = reader.step();
    ASSERT_EQ(got.tokens, input.tokens);
    ASSERT_EQ(got.logit_rows, input.logit_rows);
    ASSERT_EQ(got.sequences.size(), input.sequences.size());
    for (size_t i = 0; i < got.sequences.size(); ++i) {
      const auto& a = input.sequences[i];
      const auto& b = got.sequences[i];
      ASSERT_EQ(a.start, b.start);
      ASSERT_EQ(a.count, b.count);
      for (int group = 0; group < 2; ++group) {
        for (int entry = 0; entry < (a.start + a.count + 15) / 16; ++entry) {
          ASSERT_EQ(a.tables[group][entry], b.tables[group][entry]);
        }
      }
    }
  }
}

TEST(RankStep, CopiesAndComparisons) {
  RankStepWriter writer(kBlockTokens);
  RankStepReader reader(limits());
  ASSERT_EQ(*reader.read(writer.copies({{.group = 1, .to_tier = kv::kHost, .from = 5, .to = 6}})),
            RankMessage::kCopies);
  ASSERT_EQ(reader.copies().size(), 1u);
  EXPECT_EQ(reader.copies()[0].to, 6);
  EXPECT_EQ(reader.copies()[0].to_tier, kv::kHost);
  EXPECT_EQ(*reader.read(writer.compare()), RankMessage::kCompare);
  EXPECT_EQ(*reader.read(writer.bytes()), RankMessage::kBytes);
}

TEST(RankStep, AMessageThatWasLostIsNoticed) {
  RankStepWriter writer(kBlockTokens);
  RankStepReader reader(limits());
  (void)writer.compare();
  EXPECT_FALSE(reader.read(writer.compare()).ok());
}

// Any bytes give an error or a step within the limits.
TEST(RankStep, DamagedMessagesAreRefused) {
  const std::vector<int32_t> table = {4, 7};
  std::mt19937 random(std::random_device{}());
  for (int turn = 0; turn < 5000; ++turn) {
    RankStepWriter writer(kBlockTokens);
    std::string bytes(writer.step(one_token(3, 16, table, table)));
    if (turn % 2 == 0) bytes.resize(random() % bytes.size());
    if (turn % 2 == 1) bytes[random() % bytes.size()] ^= static_cast<char>(1 + random() % 255);
    RankStepReader reader(limits());
    const auto got = reader.read(bytes);
    EXPECT_FALSE(turn % 2 == 0 && got.ok());
    if (!got.ok() || *got != RankMessage::kStep) continue;
    for (const TokenId token : reader.step().tokens) EXPECT_LT(token, 1000);
    for (const auto& sequence : reader.step().sequences) {
      for (int entry = 0; entry < (sequence.start + sequence.count + 15) / 16; ++entry) {
        EXPECT_LT(sequence.tables[0][entry], 500);
        EXPECT_LT(sequence.tables[1][entry], 300);
      }
    }
  }
}

}  // namespace
}  // namespace pelton::executor
