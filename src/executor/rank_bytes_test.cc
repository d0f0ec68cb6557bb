// What is planned for each rank adds up to one process's, and is what a rank's caches take.
#include "executor/rank_bytes.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "families/kv_groups.h"
#include "layers/rank_weights.h"
#include "models/kv_storage.h"

namespace pelton::executor {
namespace {

using checkpoint::Checkpoint;

const std::string kRoot = PELTON_SOURCE_DIR;

constexpr tensor::DType kTypes[] = {tensor::DType::kF16, tensor::DType::kBf16, tensor::DType::kI8,
                                    tensor::DType::kF8E4m3};

// Of so many blocks in each group.
cost_model::KvAllocated caches_of(const families::KvGroups& groups, tensor::DType dtype,
                                  int blocks) {
  cost_model::KvAllocated kv{.dtype = dtype, .block_tokens = 16};
  for (const kv::GroupSpec& spec : groups.specs) {
    kv.groups.push_back({.spec = spec, .block_count = blocks++});
  }
  return kv;
}

models::KvStorage::Options options_of(const cost_model::KvAllocated& kv) {
  models::KvStorage::Options options{.dtype = kv.dtype, .block_tokens = kv.block_tokens};
  for (const auto& group : kv.groups) options.block_counts.push_back(group.block_count);
  return options;
}

TEST(RankBytes, OfCachesAreWhatEachRankAllocates) {
  for (const char* const model : {"/models/pelton-box", "/testdata/golden/tiny"}) {
    const Checkpoint checkpoint = *Checkpoint::open(kRoot + model);
    for (const tensor::DType dtype : kTypes) {
      const families::KvGroups groups =
          families::kv_groups(checkpoint.config(), {.dtype = dtype, .block_tokens = 16});
      cost_model::Footprint footprint;
      footprint.kv = caches_of(groups, dtype, 40);
      footprint.swap = caches_of(groups, dtype, 7);
      for (const std::vector<int>& weights :
           {std::vector{1}, std::vector{1, 1}, std::vector{3, 1}, std::vector{1, 5, 2}}) {
        const auto planned = plan_rank_bytes(checkpoint, weights, {}, footprint);
        ASSERT_TRUE(planned.ok()) << planned.error().message;
        ASSERT_EQ(planned->size(), weights.size());
        const auto shares = *layers::RankShares::make(checkpoint.config(), weights, {});
        int64_t sum = 0;
        for (size_t rank = 0; rank < weights.size(); ++rank) {
          families::ModelConfig own = checkpoint.config();
          own.kv_head_count = shares.kv_heads.count(static_cast<int>(rank));
          int64_t allocated = 0;
          for (const auto* const kv : {&footprint.kv, &footprint.swap}) {
            allocated += (*models::KvStorage::allocate(own, options_of(*kv))).bytes();
          }
          EXPECT_EQ((*planned)[rank].caches, allocated) << model << ", rank " << rank;
          sum += (*planned)[rank].caches;
        }
        EXPECT_EQ(sum, footprint.kv.bytes() + footprint.swap.bytes());
      }
    }
  }
}

// Of weights a rank has its part of what is cut, and what is whole: neither more nor less.
TEST(RankBytes, OfWeightsAreAPartAndWhatIsWhole) {
  const Checkpoint checkpoint = *Checkpoint::open(kRoot + "/models/pelton-box");
  const auto bytes_of = [&](const std::vector<int>& weights, const layers::ExpertTable& experts) {
    return *plan_rank_bytes(checkpoint, weights, experts, {});
  };
  const int64_t everything = bytes_of({1}, {})[0].weights;
  const std::vector<RankBytes> two = bytes_of({1, 1}, {});
  // The leader's head is whole and a follower has its rows of it, too; else nothing that is cut is
  // there twice: with a quarter of the head for a half, so much less.
  const int64_t head = std::ssize(checkpoint.tensors().find("lm_head.weight")->second.bytes);
  const std::vector<RankBytes> uneven = bytes_of({3, 1}, {});
  EXPECT_EQ(two[0].weights + two[1].weights - (uneven[0].weights + uneven[1].weights), head / 4);
  EXPECT_GT(two[0].weights + two[1].weights, everything);
  EXPECT_LT(two[1].weights, everything);
  const auto table = layers::deal_experts(checkpoint.config(), 2);
  ASSERT_TRUE(table.ok());
  const std::vector<RankBytes> dealt = bytes_of({1, 1}, *table);
  EXPECT_EQ(dealt[0].weights + dealt[1].weights, two[0].weights + two[1].weights);
}

TEST(RankBytes, TravelAsText) {
  const RankBytes bytes{.weights = 13'000'000'000, .caches = 0};
  EXPECT_EQ(*rank_bytes_of(to_text(bytes)), bytes);
  for (const char* const text : {"", "1", "1 ", "1 2 3", "x 2", " 1 2"}) {
    EXPECT_FALSE(rank_bytes_of(text).ok()) << text;
  }
}

}  // namespace
}  // namespace pelton::executor
