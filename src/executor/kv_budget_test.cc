#include "executor/kv_budget.h"

#include <gtest/gtest.h>

namespace pelton::executor {
namespace {

checkpoint::ModelConfig gpt_oss_20b() {
  checkpoint::ModelConfig config;
  config.layer_count = 24;
  config.kv_head_count = 8;
  config.head_size = 64;
  config.sliding_window = 128;
  config.context_max = 131072;
  for (int i = 0; i < 24; ++i) config.layer_is_sliding.push_back(i % 2 == 0);
  return config;
}

TEST(KvBudget, IsExactToTheByte) {
  const Result<KvBudget> budget =
      plan_kv(gpt_oss_20b(), {.sequences_max = 4, .bytes = int64_t{1} << 30});
  ASSERT_TRUE(budget.ok());
  // 24 KiB a token in the full layers, as much in the window layers.
  const int64_t block = 16 * 24 * 1024;
  EXPECT_EQ(budget->bytes,
            block * (budget->storage.full_block_count + budget->storage.window_block_count));
  EXPECT_LE(budget->bytes, int64_t{1} << 30);
  EXPECT_GT(budget->bytes + block, int64_t{1} << 30);
  EXPECT_EQ(budget->context_tokens_max, budget->storage.full_block_count * 16);
}

TEST(KvBudget, TakesNoMoreThanCouldBeUsed) {
  const Result<KvBudget> budget = plan_kv(
      gpt_oss_20b(), {.sequences_max = 2, .context_tokens = 100, .bytes = int64_t{64} << 30});
  ASSERT_TRUE(budget.ok());
  EXPECT_EQ(budget->storage.full_block_count, 2 * 7);
  EXPECT_EQ(budget->context_tokens_max, 100);
}

TEST(KvBudget, AContextShorterThanABlockIsFine) {
  const Result<KvBudget> budget =
      plan_kv(gpt_oss_20b(), {.context_tokens = 8, .free_bytes = int64_t{4} << 30});
  ASSERT_TRUE(budget.ok()) << budget.error().message;
  EXPECT_EQ(budget->context_tokens_max, 8);
}

TEST(KvBudget, RefusesWithNumbers) {
  const Result<KvBudget> budget =
      plan_kv(gpt_oss_20b(), {.context_tokens = 131072, .bytes = int64_t{1} << 30});
  ASSERT_FALSE(budget.ok());
  EXPECT_EQ(budget.error().code, ErrorCode::kDoesNotFit);
  EXPECT_NE(budget.error().message.find("131072 tokens"), std::string::npos);
  EXPECT_EQ(
      plan_kv(gpt_oss_20b(), {.context_tokens = 200000, .bytes = int64_t{64} << 30}).error().code,
      ErrorCode::kDoesNotFit);
}

TEST(KvBudget, WindowBlocksCountToo) {
  checkpoint::ModelConfig config = gpt_oss_20b();
  config.layer_is_sliding.assign(24, true);
  EXPECT_FALSE(plan_kv(config, {.bytes = 1024}).ok());
  EXPECT_TRUE(plan_kv(config, {.bytes = int64_t{1} << 30}).ok());
}

}  // namespace
}  // namespace pelton::executor
