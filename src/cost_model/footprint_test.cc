#include "cost_model/footprint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/describe.h"
#include "checkpoint/synthetic.h"
#include "kv/prefix_checkpoints.h"

namespace pelton::cost_model {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;

constexpr int64_t kGiB = int64_t{1} << 30;

families::ModelConfig gpt_oss(const std::string& name) {
  const auto options = checkpoint::synthetic_like(name, 0);
  EXPECT_TRUE(options.ok());
  return *families::parse_model_config(options->config, &options->generation, name);
}

const families::ModelConfig& gpt_oss_20b() {
  static const families::ModelConfig config = gpt_oss("gpt-oss-20b");
  return config;
}

TEST(Footprint, FormulaIsTheArchitectures) {
  const auto small = footprint(gpt_oss_20b(), {.kv_bytes = kGiB});
  ASSERT_TRUE(small.ok()) << small.error().message;
  EXPECT_EQ(small->kv_formula.per_token, 24 * 1024);
  EXPECT_EQ(small->kv_formula.per_sequence, 3 << 20);
  const auto large = footprint(gpt_oss("gpt-oss-120b"), {.kv_bytes = kGiB});
  ASSERT_TRUE(large.ok());
  EXPECT_EQ(large->kv_formula.per_token, 36 * 1024);
  EXPECT_EQ(large->kv_formula.per_sequence, 4608 * 1024);
}

TEST(Footprint, OneByteTypesPayForTheirScales) {
  // 8 heads of 64 elements and a scale of 2 bytes, keys and values, 12 full layers.
  for (const tensor::DType dtype : {tensor::DType::kI8, tensor::DType::kF8E4m3}) {
    const auto one = footprint(gpt_oss_20b(), {.kv_dtype = dtype, .kv_bytes = kGiB});
    ASSERT_TRUE(one.ok());
    EXPECT_EQ(one->kv_formula.per_token, 12 * 2 * 8 * (64 + 2));
    EXPECT_EQ(one->kv.groups[0].spec.block_bytes, 16 * one->kv_formula.per_token);
  }
}

TEST(Footprint, WeightsAreTheTensors) {
  const auto found = footprint(gpt_oss_20b(), {.kv_bytes = kGiB});
  ASSERT_TRUE(found.ok());
  const Weights& weights = found->weights;
  EXPECT_EQ(weights.mapped, checkpoint::count_weights(gpt_oss_20b()).total_bytes);
  EXPECT_EQ(weights.mapped, 13'761'264'768);  // docs/formats/gpt_oss.md
  EXPECT_EQ(weights.bytes(),
            weights.embedding + weights.attention + weights.experts + weights.head + weights.other);
  EXPECT_GT(weights.owned, 0);
  EXPECT_LT(weights.owned, weights.mapped / 100);
}

TEST(Footprint, KvIsExactToTheByte) {
  for (const bool prefix_cache : {false, true}) {
    const auto found = footprint(
        gpt_oss_20b(), {.sequences_max = 4, .prefix_cache = prefix_cache, .kv_bytes = kGiB});
    ASSERT_TRUE(found.ok());
    // 24 KiB a token in the full layers, as much in the window layers.
    const int64_t block = 16 * 24 * 1024;
    EXPECT_EQ(found->kv.bytes(),
              block * (found->kv.groups[0].block_count + found->kv.groups[1].block_count));
    EXPECT_LE(found->kv.bytes(), kGiB);
    EXPECT_GT(found->kv.bytes() + block, kGiB);
    EXPECT_EQ(found->context_tokens_max, found->kv.groups[0].block_count * 16);
    EXPECT_EQ(found->max_sequences(), 1);
    EXPECT_EQ(found->kv.groups[1].live_count, 4 * 10 + 512 / 16);
    EXPECT_EQ(found->kv.groups[1].block_count > found->kv.groups[1].live_count, prefix_cache);
  }
}

TEST(Footprint, TakesNoMoreThanCouldBeUsed) {
  MemoryRequest request{
      .sequences_max = 2, .prefix_cache = false, .context_tokens = 100, .kv_bytes = 64 * kGiB};
  const auto running = footprint(gpt_oss_20b(), request);
  ASSERT_TRUE(running.ok());
  EXPECT_EQ(running->kv.groups[0].block_count, 2 * 7);
  EXPECT_EQ(running->context_tokens_max, 100);
  EXPECT_EQ(running->max_sequences(), 2);
  EXPECT_LT(running->kv.bytes(), kGiB);

  // A prefix cache can use whatever it is given, and takes some on its own.
  request.prefix_cache = true;
  const auto said = footprint(gpt_oss_20b(), request);
  ASSERT_TRUE(said.ok());
  EXPECT_GT(said->kv.bytes() + said->kv.groups[0].spec.block_bytes, 64 * kGiB);
  EXPECT_EQ(said->max_sequences(), 2);
  request.kv_bytes.reset();
  request.memory_bytes = 256 * kGiB;
  const auto unsaid = footprint(gpt_oss_20b(), request);
  ASSERT_TRUE(unsaid.ok());
  EXPECT_EQ(unsaid->kv.groups[0].block_count, 4 * 2 * 7);
}

// Books are kept of each block: absurd amounts must not cost absurd books.
TEST(Footprint, BlocksAreBounded) {
  const auto found = footprint(gpt_oss_20b(), {.kv_bytes = int64_t{9'000'000'000'000'000}});
  ASSERT_TRUE(found.ok());
  EXPECT_LE(found->kv.groups[0].block_count, 1 << 24);
  EXPECT_LE(found->kv.groups[1].block_count, (1 << 24) + found->kv.groups[1].live_count);
}

TEST(Footprint, A3_WhatWasAskedForIsThere) {
  const auto fits = [](const MemoryRequest& request) {
    const auto found = footprint(gpt_oss_20b(), request);
    EXPECT_TRUE(found.ok()) << found.error().message;
    return check_fits(*found);
  };
  EXPECT_TRUE(fits({.kv_bytes = 4 * kGiB, .memory_bytes = 24 * kGiB}).ok());
  EXPECT_TRUE(fits({.memory_bytes = 24 * kGiB}).ok());
  EXPECT_TRUE(fits({.memory_utilization = 1.0, .memory_bytes = 24 * kGiB}).ok());
  const Result<void> much = fits({.kv_bytes = 100 * kGiB, .memory_bytes = 24 * kGiB});
  ASSERT_FALSE(much.ok());
  EXPECT_EQ(much.error().code, ErrorCode::kDoesNotFit);
  EXPECT_EQ(much.error().field, "kv-cache-memory");
  EXPECT_THAT(much.error().message, HasSubstr("--kv-cache-memory asks for 100.0 GiB of 24.0 GiB"));
  EXPECT_THAT(much.error().message, HasSubstr(" GiB is left for it"));
  // More than blocks can be counted: it is said as it was asked for.
  const Result<void> thousand = fits({.kv_bytes = 10'000 * kGiB, .memory_bytes = 24 * kGiB});
  ASSERT_FALSE(thousand.ok());
  EXPECT_THAT(thousand.error().message, HasSubstr("asks for 10000.0 GiB of 24.0 GiB"));
  // Beside the weights it does not fit either; and what is said to be left, does.
  EXPECT_FALSE(fits({.kv_bytes = 16 * kGiB, .memory_bytes = 24 * kGiB}).ok());
  const auto swap = footprint(gpt_oss_20b(), {.swap_bytes = 20 * kGiB, .memory_bytes = 24 * kGiB});
  ASSERT_FALSE(swap.ok());
  EXPECT_THAT(swap.error().message, HasSubstr("--swap-space asks for 20.0 GiB of 24.0 GiB"));
  // Weights larger than memory are read again and again: what is beside them has to fit.
  EXPECT_TRUE(fits({.kv_bytes = 2 * kGiB, .memory_bytes = 8 * kGiB}).ok());
  EXPECT_FALSE(fits({.kv_bytes = 9 * kGiB, .memory_bytes = 8 * kGiB}).ok());
}

TEST(Footprint, BothGroupsKeepAboutAsManyConversations) {
  const auto found = footprint(gpt_oss_20b(), {.kv_bytes = 4 * kGiB});
  ASSERT_TRUE(found.ok());
  const double by_full = found->kv.groups[0].block_count / (4096.0 / 16);
  const double by_window = (found->kv.groups[1].block_count - found->kv.groups[1].live_count) /
                           static_cast<double>(kv::lasting_window_blocks(4096, 128, 16));
  EXPECT_NEAR(by_full, by_window, 0.1);
  EXPECT_GT(by_full, 30);
}

// A context that was asked for goes before the prefix cache's share.
TEST(Footprint, ARequestComesFirst) {
  const int live = 4 * 10 + 32;
  const int fits = 2730 - live;  // blocks of 384 KiB in 1 GiB
  for (const int blocks : {100, 2000, fits}) {
    const auto found = footprint(
        gpt_oss_20b(), {.sequences_max = 4, .context_tokens = blocks * 16, .kv_bytes = kGiB});
    ASSERT_TRUE(found.ok()) << found.error().message;
    EXPECT_EQ(found->context_tokens_max, blocks * 16);
    EXPECT_GE(found->max_sequences(), 1);
    EXPECT_LE(found->kv.bytes(), kGiB);
  }
  EXPECT_FALSE(footprint(gpt_oss_20b(),
                         {.sequences_max = 4, .context_tokens = (fits + 1) * 16, .kv_bytes = kGiB})
                   .ok());
}

TEST(Footprint, RefusesWithNumbers) {
  const auto found = footprint(gpt_oss_20b(), {.context_tokens = 131'072, .kv_bytes = kGiB});
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, ErrorCode::kDoesNotFit);
  EXPECT_THAT(found.error().message, HasSubstr("131072 tokens"));
  EXPECT_EQ(
      footprint(gpt_oss_20b(), {.context_tokens = 200'000, .kv_bytes = 64 * kGiB}).error().code,
      ErrorCode::kInvalidArgument);
}

TEST(Footprint, UtilizationCountsEverything) {
  const auto found =
      footprint(gpt_oss_20b(), {.memory_utilization = 0.9, .memory_bytes = 24 * kGiB});
  ASSERT_TRUE(found.ok()) << found.error().message;
  const auto allowed = static_cast<int64_t>(0.9 * 24.0 * static_cast<double>(kGiB));
  EXPECT_LE(found->bytes(), allowed);
  EXPECT_GT(found->bytes() + found->kv.groups[0].spec.block_bytes, allowed);

  const auto swapping = footprint(
      gpt_oss_20b(), {.swap_bytes = kGiB, .memory_utilization = 0.9, .memory_bytes = 24 * kGiB});
  ASSERT_TRUE(swapping.ok());
  EXPECT_LE(swapping->bytes(), allowed);
  EXPECT_LT(swapping->kv.bytes(), found->kv.bytes());
  EXPECT_GT(swapping->swap.bytes(), kGiB - found->kv.groups[0].spec.block_bytes);
}

TEST(Footprint, UtilizationThatWeightsAloneExceedIsRefused) {
  const auto found =
      footprint(gpt_oss_20b(), {.memory_utilization = 0.5, .memory_bytes = 24 * kGiB});
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, ErrorCode::kDoesNotFit);
  EXPECT_THAT(found.error().message,
              MatchesRegex("--memory-utilization 0.5 of 24.0 GiB of memory are 12.0 GiB; weights "
                           "take 1[0-9].[0-9] GiB, working memory [0-9.]+ [GM]iB, --swap-space 0 "
                           "bytes, which leaves nothing for the KV cache"));
}

TEST(Footprint, TwoWordsAboutTheSameMemoryAreRefused) {
  const auto found = footprint(
      gpt_oss_20b(), {.kv_bytes = kGiB, .memory_utilization = 0.9, .memory_bytes = 24 * kGiB});
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(found.error().message, HasSubstr("--kv-cache-memory and --memory-utilization"));
}

TEST(Footprint, WithoutAWordHalfOfWhatIsLeft) {
  const auto found = footprint(gpt_oss_20b(), {.memory_bytes = 24 * kGiB});
  ASSERT_TRUE(found.ok());
  const int64_t left = 24 * kGiB - found->weights.bytes() - found->workspace.bytes();
  EXPECT_LE(found->kv.bytes(), left / 2);
  EXPECT_GT(found->kv.bytes() + found->kv.groups[0].spec.block_bytes, left / 2);
}

TEST(Footprint, SwapStaysWithinItsBytesAndLeavesLessThanTwoBlocksOver) {
  const auto plain = footprint(gpt_oss_20b(), {.kv_bytes = kGiB});
  ASSERT_TRUE(plain.ok());
  const int64_t block = plain->kv.groups[0].spec.block_bytes;
  for (int64_t bytes = 0; bytes < 3 * kGiB; bytes += 97 * block / 3 + 1) {
    const auto found = footprint(gpt_oss_20b(), {.swap_bytes = bytes, .kv_bytes = kGiB});
    ASSERT_TRUE(found.ok());
    const KvAllocated& swap = found->swap;
    EXPECT_LE(swap.bytes(), bytes);
    EXPECT_EQ(swap.groups[0].block_count == 0, swap.groups[1].block_count == 0);
    if (swap.bytes() > 0) {
      EXPECT_GT(swap.bytes() + block, bytes);
    }
    EXPECT_EQ(swap.dtype, found->kv.dtype);
    EXPECT_EQ(swap.block_tokens, found->kv.block_tokens);
  }
  const auto as_much =
      footprint(gpt_oss_20b(), {.swap_bytes = plain->kv.bytes(), .kv_bytes = kGiB});
  ASSERT_TRUE(as_much.ok());
  EXPECT_EQ(as_much->swap.groups[0].block_count, plain->kv.groups[0].block_count);
  EXPECT_EQ(as_much->swap.groups[1].block_count, plain->kv.groups[1].block_count);
}

TEST(Footprint, ModelsOfOneGroupOnly) {
  families::ModelConfig config = gpt_oss_20b();
  config.layers.assign(24, {families::AttentionKind::kSliding, true});
  EXPECT_FALSE(footprint(config, {.kv_bytes = 1024}).ok());
  const auto sliding = footprint(config, {.kv_bytes = kGiB});
  ASSERT_TRUE(sliding.ok());
  EXPECT_LE(sliding->kv.bytes(), kGiB);
  EXPECT_EQ(sliding->context_tokens_max, config.context_max);
  config.layers.assign(24, {families::AttentionKind::kFull, true});
  const auto full = footprint(config, {.kv_bytes = kGiB});
  ASSERT_TRUE(full.ok());
  EXPECT_GT(full->kv.bytes() + full->kv.groups[0].spec.block_bytes, kGiB);
}

TEST(Footprint, JsonHasTheNamesThatScriptsRead) {
  const auto found = footprint(gpt_oss_20b(), {.kv_bytes = kGiB});
  ASSERT_TRUE(found.ok());
  const Json json = to_json(*found);
  EXPECT_EQ(json.integer("weights"), found->weights.bytes());
  EXPECT_EQ(json.integer("kv_allocated"), found->kv.bytes());
  EXPECT_EQ(json.integer("kv_formula"),
            found->kv_formula.bytes(found->kv.token_count(), found->sequences_max));
  EXPECT_EQ(json.integer("workspace"), found->workspace.bytes());
  EXPECT_EQ(json.integer("max_sequences"), 1);
}

}  // namespace
}  // namespace pelton::cost_model
