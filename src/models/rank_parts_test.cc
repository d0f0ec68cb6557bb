// A model computed by several ranks gives one process's logits, to the bit: any number of ranks,
// even and uneven shares, ranks without heads, experts cut and dealt out to whomever, weights as
// shipped and packed, chunks of any size.
// Ranks are threads here, each with a model, a cache and its part of the weights alone, as
// processes have.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>
#include <thread>

#include <gtest/gtest.h>
#include <unistd.h>

#include "checkpoint/checkpoint.h"
#include "checkpoint/family_golden.h"
#include "layers/rank_part.h"
#include "layers/rank_weights.h"
#include "models/kv_storage.h"
#include "models/model.h"
#include "models/pack_model.h"
#include "parallel/shm_transport.h"

namespace pelton::models {
namespace {

using checkpoint::Checkpoint;

constexpr int kTokens = 48;
constexpr int kBlocks = 4;
const std::string kRoot = PELTON_SOURCE_DIR;

// How a prompt is fed: the same to every rank.
struct Way {
  std::vector<TokenId> tokens;
  std::vector<int> chunks;
  tensor::DType kv_dtype = tensor::DType::kF16;
};

Way draw_way(std::mt19937& random, int vocab) {
  constexpr tensor::DType kTypes[] = {tensor::DType::kF16, tensor::DType::kBf16, tensor::DType::kI8,
                                      tensor::DType::kF8E4m3};
  Way way{.kv_dtype = kTypes[random() % 4]};
  for (int i = 0; i < kTokens; ++i) {
    way.tokens.push_back(static_cast<TokenId>(random() % static_cast<uint32_t>(vocab)));
  }
  for (int left = kTokens; left > 0; left -= way.chunks.back()) {
    way.chunks.push_back(std::min(left, 1 + static_cast<int>(random() % 20)));
  }
  return way;
}

// The logits of every token; of a rank that is not the leader: none. part: null, or the rank's.
std::vector<float> logits_of(const Checkpoint& checkpoint, const Way& way, layers::RankPart* part) {
  base::ThreadPool pool({.threads = 1, .pin = false});
  auto kernels = std::move(kernels::make_kernels(kernels::KernelChoice::kAuto, pool)).value();
  auto loaded = load_model(checkpoint, *kernels,
                           {.batch_tokens_max = kTokens, .logit_rows_max = kTokens, .part = part});
  EXPECT_TRUE(loaded.ok()) << loaded.error().message;
  if (!loaded.ok()) return {};
  families::ModelConfig kept = checkpoint.config();
  if (part != nullptr) kept.kv_head_count = part->kv_heads().count(part->rank());
  KvStorage::Options storage{.dtype = way.kv_dtype};
  storage.block_counts.assign(families::kv_groups(kept, {}).specs.size(), kBlocks);
  KvStorage kv = std::move(KvStorage::allocate(kept, storage)).value();
  const int32_t blocks[kBlocks] = {2, 0, 3, 1};
  kv::PerGroup<const int32_t*> tables;
  tables.assign(kv.groups().specs.size(), blocks);
  std::vector<float> all;
  int start = 0;
  for (const int chunk : way.chunks) {
    ForwardInput input;
    input.tokens.assign(way.tokens.begin() + start, way.tokens.begin() + start + chunk);
    input.sequences.push_back({.start = start, .count = chunk, .tables = tables});
    for (int row = 0; row < chunk; ++row) input.logit_rows.push_back(row);
    const float* const got = (*loaded)->forward(input, kv, nullptr);
    if (part == nullptr || part->is_leader()) {
      all.insert(all.end(), got, got + int64_t{chunk} * checkpoint.config().vocab_size);
    }
    start += chunk;
  }
  return all;
}

// The same model, of which all that is not this rank's is no numbers: what it computes with is what
// it reads ahead, locks and looks at.
Checkpoint only_part(const Checkpoint& whole, int rank, const std::vector<int>& weights,
                     const layers::ExpertTable& experts) {
  Checkpoint part = std::move(Checkpoint::open(whole.folder())).value();
  const auto ranges = layers::rank_weights(whole, rank, weights, experts);
  EXPECT_TRUE(ranges.ok()) << ranges.error().message;
  if (!ranges.ok()) return part;
  for (const auto& [name, view] : whole.tensors()) {
    const auto memory = std::make_shared<std::vector<uint64_t>>(view.bytes.size() / 8 + 1, ~0ull);
    auto* const bytes = reinterpret_cast<uint8_t*>(memory->data());
    for (const checkpoint::WeightRange& range : *ranges) {
      if (range.tensor == name) std::ranges::copy(range.bytes, bytes + range.at);
    }
    tensor::TensorView own = view;
    own.bytes = {bytes, view.bytes.size()};
    part.replace(name, std::move(own), memory);
  }
  return part;
}

std::vector<float> logits_of_ranks(const Checkpoint& checkpoint, const Way& way,
                                   const std::vector<int>& weights,
                                   const layers::ExpertTable& experts) {
  const auto count = static_cast<int>(weights.size());
  constexpr size_t kPartBytes = 64 << 10;  // small: some exchanges take several
  const int file = *parallel::ShmTransport::make_file(count, kPartBytes);
  std::vector<std::vector<float>> logits(weights.size());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < count; ++rank) {
    threads.emplace_back([&, rank] {
      auto transport = std::move(parallel::ShmTransport::map(file, {.ranks = count,
                                                                    .rank = rank,
                                                                    .part_bytes = kPartBytes,
                                                                    .spin_ns = 10'000}))
                           .value();
      parallel::Exchange exchange(*transport);
      const Checkpoint own = only_part(checkpoint, rank, weights, experts);
      auto part = layers::RankPart::make(own, exchange, weights, experts);
      EXPECT_TRUE(part.ok()) << part.error().message;
      if (part.ok()) logits[static_cast<size_t>(rank)] = logits_of(own, way, &*part);
      EXPECT_FALSE(exchange.failed());
    });
  }
  for (std::thread& thread : threads) thread.join();
  ::close(file);
  return logits[0];
}

// Who has which expert: as many each, but any; or whoever it happens to be, so that some have none
// and others the same ones.
layers::ExpertTable draw_experts(std::mt19937& random, const families::ModelConfig& config,
                                 int ranks) {
  layers::ExpertTable table = *layers::deal_experts(config, ranks);
  const bool evenly = random() % 2 == 0;
  for (std::vector<std::vector<int>>& layer : table) {
    std::shuffle(layer.begin(), layer.end(), random);
    for (std::vector<int>& owners : layer) {
      const auto some = random() % (uint32_t{1} << ranks);
      if (evenly || some == 0) continue;
      owners.clear();
      for (int rank = 0; rank < ranks; ++rank) {
        if ((some >> rank) % 2 == 1) owners.push_back(rank);
      }
    }
  }
  return table;
}

// Runs drawn by a seed that is printed.
void expect_same_bits(const Checkpoint& checkpoint, int runs) {
  const char* const given = std::getenv("PELTON_SEED");
  const auto seed = given != nullptr ? static_cast<uint32_t>(std::strtoul(given, nullptr, 10))
                                     : std::random_device{}();
  SCOPED_TRACE(::testing::Message() << "PELTON_SEED=" << seed);
  std::mt19937 random(seed);
  if (std::getenv("PELTON_FULL") != nullptr) runs *= 10;
  for (int run = 0; run < runs; ++run) {
    const Way way = draw_way(random, checkpoint.config().vocab_size);
    const std::vector<float> alone = logits_of(checkpoint, way, nullptr);
    std::vector<int> weights(static_cast<size_t>(run % 4 + 1), 1);
    if (run >= 4) {
      for (int& weight : weights) weight = 1 + static_cast<int>(random() % 4);
    }
    std::vector<layers::ExpertTable> tables(1);  // an empty one: they are cut
    if (checkpoint.config().has_experts()) {
      const auto ranks = static_cast<int>(weights.size());
      tables.push_back(draw_experts(random, checkpoint.config(), ranks));
    }
    for (const layers::ExpertTable& experts : tables) {
      const std::vector<float> together = logits_of_ranks(checkpoint, way, weights, experts);
      ASSERT_EQ(together.size(), alone.size());
      ASSERT_EQ(std::memcmp(together.data(), alone.data(), alone.size() * sizeof(float)), 0)
          << "run " << run << ", " << weights.size() << " ranks, experts "
          << (experts.empty() ? "cut" : "dealt out");
    }
  }
}

TEST(RankParts, OfGptOssAsShipped) {
  expect_same_bits(*Checkpoint::open(kRoot + "/models/pelton-box"), 8);
}

TEST(RankParts, OfAnotherShape) {
  expect_same_bits(*Checkpoint::open(kRoot + "/testdata/golden/tiny"), 8);
}

class PackedRankParts : public ::testing::TestWithParam<WeightChoice> {};

TEST_P(PackedRankParts, GiveTheSameBits) {
  namespace fs = std::filesystem;
  const fs::path folder = testing::TempDir() + "rank_parts_" + std::to_string(::getpid());
  fs::create_directories(folder);
  const std::string box = kRoot + "/models/pelton-box";
  fs::copy_file(box + "/config.json", folder / "config.json", fs::copy_options::overwrite_existing);
  base::ThreadPool pool({.threads = 2, .pin = false});
  const Checkpoint source = std::move(Checkpoint::open(box)).value();
  const auto go_on = [](std::string_view, int64_t, int64_t) { return true; };
  const auto made = pack_model(source, {.weights = GetParam()}, folder, pool, go_on);
  ASSERT_TRUE(made.ok()) << made.error().message;
  expect_same_bits(*Checkpoint::open(folder), 8);
  fs::remove_all(folder);
}

INSTANTIATE_TEST_SUITE_P(Weights, PackedRankParts,
                         ::testing::Values(WeightChoice::kInt8, WeightChoice::kShipped));

TEST(RankParts, OfDenseModels) {
  expect_same_bits(*Checkpoint::open(kRoot + "/testdata/golden/qwen3"), 4);
  expect_same_bits(*Checkpoint::open(kRoot + "/testdata/golden/llama3"), 4);
  // A case without weights of its own: what blocks add is scaled.
  const std::string granite = testing::TempDir() + "rank_parts_granite";
  ASSERT_TRUE(checkpoint::write_family_golden(kRoot + "/testdata/golden/granite", granite).ok());
  expect_same_bits(*Checkpoint::open(granite), 4);
  std::filesystem::remove_all(granite);
}

// Experts that have a tensor each, and none of theirs a bias.
TEST(RankParts, OfExpertsWithATensorEach) {
  for (const char* const name : {"qwen3-moe", "mixtral"}) {
    const std::string folder = testing::TempDir() + "rank_parts_" + name;
    const std::string golden = kRoot + "/testdata/golden/" + name;
    ASSERT_TRUE(checkpoint::write_family_golden(golden, folder).ok());
    expect_same_bits(*Checkpoint::open(folder), 4);
    std::filesystem::remove_all(folder);
  }
}

// Nothing is kept twice: the ranks' caches are one process's, whatever the shares.
TEST(RankParts, CachesAddUpToOneProcesss) {
  const Checkpoint checkpoint = *Checkpoint::open(kRoot + "/models/pelton-box");
  const families::ModelConfig& config = checkpoint.config();
  for (const std::vector<int>& weights :
       {std::vector{1, 1}, std::vector{1, 3}, std::vector{1, 1, 1}}) {
    const auto share = parallel::Share::make(config.kv_head_count, 1, weights);
    int64_t sum = 0;
    for (int rank = 0; rank < share.ranks(); ++rank) {
      families::ModelConfig kept = config;
      kept.kv_head_count = share.count(rank);
      sum += families::kv_groups(kept, {}).layer_block_bytes[0];
    }
    EXPECT_EQ(sum, families::kv_groups(config, {}).layer_block_bytes[0]);
  }
}

}  // namespace
}  // namespace pelton::models
