// What ranks have of a model's weights adds up to one process's, each has what it is planned to
// have, and nothing is there twice but what every rank has whole. (That a rank computes with
// nothing else, models/rank_parts_test says.)
#include "layers/rank_weights.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/checkpoint.h"
#include "checkpoint/family_golden.h"

namespace pelton::layers {
namespace {

using checkpoint::Checkpoint;
using checkpoint::WeightRange;
using checkpoint::WeightRanges;

const std::string kRoot = PELTON_SOURCE_DIR;

bool is_head(std::string_view name) {
  return name == "lm_head.weight" || name == families::kCoarseHead;
}

// Whether ranks have parts of it, by its name and shape: what the docs' table says.
bool is_cut(std::string_view name, const tensor::TensorView& view) {
  if (view.shape.size() == 1 || name.ends_with("bias")) return false;
  return name.find(".self_attn.") != name.npos || name.find(".experts.") != name.npos ||
         (name.find(".mlp.") != name.npos && name.find(".router.") == name.npos);
}

std::vector<WeightRanges> of_ranks(const Checkpoint& checkpoint, const std::vector<int>& weights,
                                   const ExpertTable& experts) {
  std::vector<WeightRanges> ranks;
  for (int rank = 0; rank < static_cast<int>(weights.size()); ++rank) {
    auto ranges = rank_weights(checkpoint, rank, weights, experts);
    EXPECT_TRUE(ranges.ok()) << ranges.error().message;
    ranks.push_back(ranges.ok() ? *ranges : WeightRanges());
  }
  return ranks;
}

// Of one tensor, by their places; what follows directly in one.
std::vector<std::pair<int64_t, int64_t>> places(std::vector<WeightRange> ranges) {
  std::ranges::sort(ranges, {}, &WeightRange::at);
  std::vector<std::pair<int64_t, int64_t>> runs;
  for (const WeightRange& range : ranges) {
    const int64_t end = range.at + std::ssize(range.bytes);
    if (!runs.empty() && runs.back().second == range.at) {
      runs.back().second = end;
    } else {
      runs.emplace_back(range.at, end);  // also where two overlap
    }
  }
  return runs;
}

void expect_sums(const Checkpoint& checkpoint, const std::vector<int>& weights,
                 const ExpertTable& experts) {
  const std::vector<WeightRanges> ranks = of_ranks(checkpoint, weights, experts);
  std::map<std::string_view, std::vector<WeightRange>> of_tensor;
  std::map<std::string_view, std::vector<std::vector<WeightRange>>> by_rank;
  for (const WeightRanges& ranges : ranks) {
    std::map<std::string_view, std::vector<WeightRange>> own;
    for (const WeightRange& range : ranges) {
      const tensor::TensorView& whole = checkpoint.tensors().find(range.tensor)->second;
      ASSERT_EQ(range.bytes.data(), whole.bytes.data() + range.at) << range.tensor;
      own[range.tensor].push_back(range);
      of_tensor[range.tensor].push_back(range);
    }
    for (const auto& [name, view] : checkpoint.tensors()) by_rank[name].push_back(own[name]);
  }
  for (const auto& [name, view] : checkpoint.tensors()) {
    const std::vector<std::pair<int64_t, int64_t>> whole = {{0, std::ssize(view.bytes)}};
    if (is_cut(name, view)) {
      EXPECT_EQ(places(of_tensor[name]), whole) << name;
      continue;
    }
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      if (rank > 0 && is_head(name)) continue;
      EXPECT_EQ(places(by_rank[name][rank]), whole) << name << " of rank " << rank;
    }
  }
}

std::vector<int> even(int ranks) {
  return std::vector<int>(static_cast<size_t>(ranks), 1);
}

TEST(RankWeights, AddUpToOneProcesss) {
  const std::string folder = testing::TempDir() + "rank_weights_moe";
  ASSERT_TRUE(checkpoint::write_family_golden(kRoot + "/testdata/golden/qwen3-moe", folder).ok());
  for (const std::string& model :
       {kRoot + "/models/pelton-box", kRoot + "/testdata/golden/tiny",
        kRoot + "/testdata/golden/qwen3", kRoot + "/testdata/golden/llama3", folder}) {
    SCOPED_TRACE(model);
    const Checkpoint checkpoint = *Checkpoint::open(model);
    for (const std::vector<int>& weights :
         {even(1), even(2), even(3), even(4), std::vector{3, 1}, std::vector{1, 5, 2}}) {
      expect_sums(checkpoint, weights, {});
    }
    if (!checkpoint.config().has_experts()) continue;
    for (const int ranks : {2, 4}) {
      const auto experts = deal_experts(checkpoint.config(), ranks);
      if (experts.ok()) expect_sums(checkpoint, even(ranks), *experts);
    }
  }
  std::filesystem::remove_all(folder);
}

// One rank has all: what one process has.
TEST(RankWeights, OfOneRankAreWhole) {
  const Checkpoint checkpoint = *Checkpoint::open(kRoot + "/models/pelton-box");
  const auto own = rank_weights(checkpoint, 0, {1}, {});
  ASSERT_TRUE(own.ok());
  EXPECT_EQ(checkpoint::range_bytes(*own),
            checkpoint::range_bytes(checkpoint::whole_weights(checkpoint)));
}

// Each has as many bytes as its rows say, counted from the shapes alone.
TEST(RankWeights, AreWhatTheSharesSay) {
  const Checkpoint checkpoint = *Checkpoint::open(kRoot + "/models/pelton-box");
  const families::ModelConfig& config = checkpoint.config();
  for (const std::vector<int>& weights :
       {even(1), even(2), even(3), even(4), std::vector{3, 1}, std::vector{1, 5, 2}}) {
    const auto ranks = static_cast<int>(weights.size());
    const auto shares = RankShares::make(config, weights, {});
    ASSERT_TRUE(shares.ok());
    for (int rank = 0; rank < ranks; ++rank) {
      int64_t planned = 0;
      for (const auto& named : checkpoint.tensors()) {
        const std::string& name = named.first;
        const int64_t bytes = std::ssize(named.second.bytes);
        const auto part = [&](const parallel::Share& share) {
          return bytes * share.count(rank) / share.rows();
        };
        const auto has = [&](std::string_view what) { return name.find(what) != name.npos; };
        if (is_head(name)) {
          planned += rank == 0 ? bytes : part(shares->vocab);
        } else if (!is_cut(name, named.second)) {
          planned += bytes;
        } else if (has("o_proj") || has("down_proj")) {
          planned += part(shares->hidden);
        } else {
          planned += part(has("experts") ? shares->expert_blocks : shares->kv_heads);
        }
      }
      const auto own = rank_weights(checkpoint, rank, weights, {});
      ASSERT_TRUE(own.ok());
      EXPECT_EQ(checkpoint::range_bytes(*own), planned) << rank << " of " << ranks;
    }
  }
}

TEST(RankWeights, OfAnExpertOnSeveralRanksAreOnEach) {
  const Checkpoint checkpoint = *Checkpoint::open(kRoot + "/models/pelton-box");
  ExpertTable experts = *deal_experts(checkpoint.config(), 2);
  const auto bytes_of = [&](int rank) {
    return checkpoint::range_bytes(*rank_weights(checkpoint, rank, {1, 1}, experts));
  };
  const int64_t before = bytes_of(1);
  int64_t expert = 0;  // of the first layer
  for (const auto& [name, view] : checkpoint.tensors()) {
    const bool counts = name.starts_with("model.layers.0.mlp.experts.") && is_cut(name, view);
    if (counts) expert += std::ssize(view.bytes) / checkpoint.config().expert_count;
  }
  ASSERT_GT(expert, 0);
  ASSERT_EQ(experts[0][0], std::vector{0});
  experts[0][0] = {0, 1};
  EXPECT_EQ(bytes_of(1), before + expert);
}

TEST(RankWeights, WhatCannotBeSharedOutIsNamed) {
  families::ModelConfig config = Checkpoint::open(kRoot + "/models/pelton-box")->config();
  config.head_size = 20;
  const auto made = RankShares::make(config, {1, 1}, {});
  ASSERT_FALSE(made.ok());
  EXPECT_THAT(made.error().message, testing::HasSubstr("heads of 20"));
}

}  // namespace
}  // namespace pelton::layers
