// Blocks on the processors: what a sequence has not written is NaN, and nobody reads it.
#include "executor/host_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/thread_pool.h"
#include "checkpoint/checkpoint.h"
#include "cost_model/footprint.h"
#include "executor/local_executor.h"

namespace pelton::executor {
namespace {

constexpr int kBlockTokens = 16;
constexpr int kSequences = 2;
constexpr int kBatch = 64;

bool is_finite(const std::vector<float>& logits) {
  return std::ranges::all_of(logits, [](float one) { return std::isfinite(one); });
}

class HostModelTest : public testing::TestWithParam<tensor::DType> {
 protected:
  HostModelTest()
      : checkpoint_(
            checkpoint::Checkpoint::open(std::string(PELTON_SOURCE_DIR) + "/testdata/golden/tiny")
                .value()) {}

  std::unique_ptr<StepModel> load(bool poisons) {
    const LocalExecutor::Options options{.threads = 1,
                                         .sequences_max = kSequences,
                                         .batch_tokens_max = kBatch,
                                         .block_tokens = kBlockTokens,
                                         .kv_dtype = GetParam(),
                                         .context_tokens = 100,
                                         .kv_bytes = int64_t{16} << 20,
                                         .swap_bytes = int64_t{4} << 20};
    const auto request = LocalExecutor::memory_request(options).value();
    const auto footprint = cost_model::footprint(checkpoint_, request).value();
    auto model = HostModel::load(checkpoint_,
                                 {.batch_tokens_max = kBatch,
                                  .logit_rows_max = kSequences + request.draft_rows_max,
                                  .poisons_blocks = poisons},
                                 footprint, pool_);
    EXPECT_TRUE(model.ok()) << model.error().message;
    return *std::move(model);
  }

  // The last row's logits of `count` tokens from `start` on, with these blocks in each group.
  std::vector<float> step(StepModel& model, const std::vector<int32_t>& blocks, int start,
                          int count, int salt) {
    models::ForwardInput input;
    for (int i = start; i < start + count; ++i) input.tokens.push_back((i * 37 + salt) % 500);
    models::ForwardInput::Sequence sequence{.start = start, .count = count, .tables = {}};
    for (int group = 0; group < model.footprint().kv.groups.size(); ++group) {
      sequence.tables.push_back(blocks.data());
    }
    input.sequences.push_back(sequence);
    input.logit_rows.push_back(count - 1);
    model.begin(input, nullptr, nullptr);
    const float* const logits = model.finish().value();
    return {logits, logits + checkpoint_.config().vocab_size};
  }

  static std::string block_of(StepModel& model, int group, kv::BlockId block) {
    const auto& groups = model.footprint().kv.groups;
    std::string bytes(static_cast<size_t>(groups[group].spec.block_bytes), '\0');
    model.host_blocks()->read_block(group, kv::kDevice, block, bytes);
    return bytes;
  }

  checkpoint::Checkpoint checkpoint_;
  base::ThreadPool pool_{{.threads = 1}};
};

// A prompt in chunks that end within a block and at its end, and tokens after it, in blocks in
// which another sequence was before.
TEST_P(HostModelTest, NobodyReadsWhatASequenceHasNotWritten) {
  const auto plain = load(false);
  const auto poisoned = load(true);
  const std::vector<int32_t> blocks = {5, 2, 7};
  const auto both = [&](int start, int count, int salt) {
    const std::vector<float> expected = step(*plain, blocks, start, count, salt);
    const std::vector<float> got = step(*poisoned, blocks, start, count, salt);
    EXPECT_TRUE(is_finite(got)) << start << " " << count;
    EXPECT_EQ(got, expected) << start << " " << count;
  };
  for (const int salt : {3, 11}) {
    both(0, 10, salt);
    both(10, 6, salt);
    both(16, 21, salt);
    for (int i = 37; i < 42; ++i) both(i, 1, salt);
  }
}

TEST_P(HostModelTest, WhatASequenceHasNotWrittenIsPoison) {
  const auto model = load(true);
  for (const int salt : {3, 11}) {
    step(*model, {5}, 0, 1, salt);
    for (int group = 0; group < model->footprint().kv.groups.size(); ++group) {
      const std::string bytes = block_of(*model, group, 5);
      const int64_t poison = std::ranges::count(bytes, '\xFF');
      EXPECT_GE(poison, std::ssize(bytes) / 2) << group << ": one token of sixteen is written";
      EXPECT_LT(poison, std::ssize(bytes)) << group << ": the first token's";
      EXPECT_NE(block_of(*model, group, 4), bytes) << "a block that is nobody's";
    }
  }
}

// Of int8 the scales are NaN.
TEST_P(HostModelTest, PoisonThatIsReadShows) {
  const auto model = load(true);
  const std::vector<int32_t> blocks = {5, 2};
  step(*model, blocks, 0, 16, 3);
  EXPECT_TRUE(is_finite(step(*model, blocks, 16, 1, 3)));
  // The same token behind a block of which one token of sixteen is written.
  step(*model, {4}, 0, 1, 3);
  EXPECT_FALSE(is_finite(step(*model, {4, 2}, 16, 1, 3)));
}

INSTANTIATE_TEST_SUITE_P(Types, HostModelTest,
                         testing::Values(tensor::DType::kF16, tensor::DType::kBf16,
                                         tensor::DType::kI8));

}  // namespace
}  // namespace pelton::executor
