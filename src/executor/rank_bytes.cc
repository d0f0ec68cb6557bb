#include "executor/rank_bytes.h"

#include <charconv>

#include <fmt/format.h>

#include "families/kv_groups.h"
#include "layers/rank_weights.h"

namespace pelton::executor {
namespace {

// As many blocks, each of so many key/value heads.
int64_t cache_bytes(const families::ModelConfig& model, const cost_model::KvAllocated& kv,
                    int heads) {
  families::ModelConfig own = model;
  own.kv_head_count = heads;
  const families::KvGroups groups =
      families::kv_groups(own, {.dtype = kv.dtype, .block_tokens = kv.block_tokens});
  int64_t bytes = 0;
  for (int group = 0; group < kv.groups.size(); ++group) {
    bytes += groups.specs[group].block_bytes * kv.groups[group].block_count;
  }
  return bytes;
}

}  // namespace

Result<std::vector<RankBytes>> plan_rank_bytes(const checkpoint::Checkpoint& checkpoint,
                                               const std::vector<int>& weights,
                                               const layers::ExpertTable& experts,
                                               const cost_model::Footprint& footprint) {
  TRY_ASSIGN(const layers::RankShares shares,
             layers::RankShares::make(checkpoint.config(), weights, experts));
  std::vector<RankBytes> planned;
  for (int rank = 0; rank < shares.kv_heads.ranks(); ++rank) {
    TRY_ASSIGN(const checkpoint::WeightRanges own,
               layers::rank_weights(checkpoint, rank, weights, experts));
    const int heads = shares.kv_heads.count(rank);
    planned.push_back({.weights = checkpoint::range_bytes(own),
                       .caches = cache_bytes(checkpoint.config(), footprint.kv, heads) +
                                 cache_bytes(checkpoint.config(), footprint.swap, heads)});
  }
  return planned;
}

std::string to_text(const RankBytes& bytes) {
  return fmt::format("{} {}", bytes.weights, bytes.caches);
}

Result<RankBytes> rank_bytes_of(std::string_view text) {
  RankBytes bytes;
  const char* const end = text.data() + text.size();
  const auto weights = std::from_chars(text.data(), end, bytes.weights);
  if (weights.ec == std::errc() && weights.ptr != end && *weights.ptr == ' ') {
    const auto caches = std::from_chars(weights.ptr + 1, end, bytes.caches);
    if (caches.ec == std::errc() && caches.ptr == end) return bytes;
  }
  return Error{ErrorCode::kBadConfig, fmt::format("'{}' are no bytes of a rank", text)};
}

}  // namespace pelton::executor
