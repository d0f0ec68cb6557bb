// Naming blocks (aim: 2 GB/s) and looking an 8 k prompt up (aim: under 5 us for each 1 k tokens,
// naming its blocks included).
#include <vector>

#include <benchmark/benchmark.h>

#include "base/check.h"
#include "base/random.h"
#include "kv/block_hash.h"
#include "kv/prefix_match.h"

namespace pelton::kv {
namespace {

constexpr int kBlockTokens = 16;

std::vector<TokenId> make_prompt(size_t count) {
  std::vector<TokenId> tokens;
  for (size_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<TokenId>(base::random_bits(1, i) % 200'000));
  }
  return tokens;
}

std::vector<BlockHash> names(const BlockHasher& hasher, std::span<const TokenId> tokens) {
  std::vector<BlockHash> hashes;
  constexpr size_t kStep = kBlockTokens;
  hashes.reserve(tokens.size() / kStep);
  BlockHash parent = hasher.root({.salt = "tenant"});
  for (size_t at = 0; at + kStep <= tokens.size(); at += kStep) {
    parent = hasher.extend(parent, tokens.subspan(at, kStep));
    hashes.push_back(parent);
  }
  return hashes;
}

void hash_blocks(benchmark::State& state) {
  const BlockHasher hasher(1);
  const std::vector<TokenId> prompt = make_prompt(8192);
  for (auto _ : state) benchmark::DoNotOptimize(names(hasher, prompt).data());
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(prompt.size()) * 4);
}
BENCHMARK(hash_blocks);

// In a pool that caches a hundred thousand blocks of others.
void look_up_8k(benchmark::State& state) {
  constexpr int kBlocks = 100'000;
  const BlockHasher hasher(1);
  const std::vector<TokenId> prompt = make_prompt(8192);
  BlockPools pools({.groups = {{{.name = "full"}, {kBlocks}},
                               {{.name = "window", .sliding_window = 128}, {kBlocks}}},
                    .block_tokens = kBlockTokens});
  const std::vector<BlockHash> own = names(hasher, prompt);
  for (int group = 0; group < pools.group_count(); ++group) {
    BlockPool& pool = pools.pool(group, kDevice);
    std::vector<BlockId> taken;
    CHECK(pool.take(kBlocks, taken));
    for (size_t i = 0; i < taken.size(); ++i) {
      const BlockHash hash =
          i < own.size() ? own[i] : BlockHash{base::random_bits(2, i), base::random_bits(3, i)};
      pool.cache(taken[i], hash, BlockPool::EvictionPriority::kLast);
    }
  }
  int hit = 0;
  for (auto _ : state) {
    const std::vector<BlockHash> hashes = names(hasher, prompt);
    hit = longest_hit({.hashes = hashes}, pools).blocks;
    benchmark::DoNotOptimize(hit);
  }
  CHECK(hit == static_cast<int>(own.size()));
  state.counters["us_per_1k_tokens"] =
      benchmark::Counter(static_cast<double>(state.iterations()) * 8.192 / 1e6,
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK(look_up_8k)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace pelton::kv
