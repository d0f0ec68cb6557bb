#include "cost_model/kv_budget.h"

#include <algorithm>

#include <fmt/format.h>

#include "kv/landmarks.h"
#include "tensor/kv_block.h"

namespace pelton::cost_model {
namespace {

using families::ModelConfig;

// By which the groups are balanced. Shorter conversations leave more window blocks behind for each
// full one, longer ones fewer.
constexpr int64_t kMeasureTokens = 4096;

// What is said of each block elsewhere takes memory too: no more of them in a group, however small
// they are and however many bytes there are.
constexpr int64_t kBlocksMax = int64_t{1} << 24;

// As many conversations may wait for their next turn for each that runs, unless the user says how
// much memory there is: that is then used.
constexpr int64_t kIdleForEachRunning = 3;

int64_t blocks_of(int64_t token_count, int64_t block_tokens) {
  return (token_count + block_tokens - 1) / block_tokens;
}

// A sequence's window blocks: those that the next query still sees, plus the one being filled.
// Prefill chunks add their own tokens, but never more than one step's in all.
int64_t live_window_blocks(const ModelConfig& config, const MemoryRequest& request) {
  const int64_t tokens = request.block_tokens;
  const int64_t seen = (config.sliding_window + tokens - 2) / tokens + 1;
  const int64_t in_step = blocks_of(request.batch_tokens_max, tokens);
  return request.sequences_max * (seen + 1) + in_step;
}

// What can be had of each group.
struct Shares {
  int64_t full = 0;
  int64_t window = 0;  // beyond the live ones
};

struct Rest {
  int64_t bytes = 0;
  int64_t full_least = 0;
  int64_t full_most = 0;  // more could never be used
};

// full / window as in a conversation of kMeasureTokens.
Shares divide(const ModelConfig& config, const KvAllocated& kv, const Rest& rest) {
  const int64_t measure_full = blocks_of(kMeasureTokens, kv.block_tokens);
  const int64_t measure_window =
      kv::lasting_window_blocks(kMeasureTokens, config.sliding_window, kv.block_tokens);
  const int64_t measure_bytes =
      measure_full * kv.full_block_bytes + measure_window * kv.window_block_bytes;

  Shares shares{.full = rest.full_most};
  if (kv.full_block_bytes > 0) {
    const int64_t balanced = rest.bytes / measure_bytes * measure_full +
                             rest.bytes % measure_bytes * measure_full / measure_bytes;
    shares.full = std::min(std::max(balanced, rest.full_least), rest.full_most);
  }
  shares.window = blocks_of(shares.full * measure_window, measure_full);
  if (kv.window_block_bytes > 0) {
    const int64_t left = rest.bytes - shares.full * kv.full_block_bytes;
    shares.window = std::min(shares.window, left / kv.window_block_bytes);
  }
  if (kv.full_block_bytes > 0) {
    const int64_t left = rest.bytes - shares.window * kv.window_block_bytes;
    shares.full = std::min(rest.full_most, left / kv.full_block_bytes);
  }
  return shares;
}

Error does_not_fit(const KvAllocated& kv, int64_t context_needed, int64_t allowed,
                   int64_t context_fits) {
  const int64_t full = kv.full_block_bytes * blocks_of(context_needed, kv.block_tokens);
  const int64_t window = kv.window_block_bytes * kv.window_block_live;
  return Error{ErrorCode::kDoesNotFit,
               fmt::format("the KV cache for one sequence of {} tokens needs {} bytes (window "
                           "layers {}, full layers {}); {} are allowed here, enough for {} tokens; "
                           "lower --max-model-len or --max-num-seqs, or raise --kv-cache-memory",
                           context_needed, full + window, window, full, allowed, context_fits),
               "kv-cache-memory"};
}

int count(int64_t blocks) {
  return static_cast<int>(std::min<int64_t>(blocks, INT32_MAX));
}

// Full blocks beyond these would never hold anything.
int64_t useful_blocks(const MemoryRequest& request, const KvAllocated& kv, int64_t context_wanted) {
  const int64_t running = blocks_of(context_wanted, kv.block_tokens) * request.sequences_max;
  if (!request.prefix_cache) return std::min(running, kBlocksMax);
  const bool said = request.kv_bytes || request.memory_utilization;
  if (said && kv.full_block_bytes > 0) return kBlocksMax;
  return std::min(running * (1 + kIdleForEachRunning), kBlocksMax);
}

}  // namespace

Result<KvBudget> plan_kv(const ModelConfig& config, const MemoryRequest& request, int64_t allowed) {
  const int64_t tokens = request.block_tokens;
  const int64_t layer_bytes =
      tensor::kv_block_bytes(request.kv_dtype, {.kv_heads = config.kv_head_count,
                                                .head_size = config.head_size,
                                                .block_tokens = request.block_tokens});
  const int64_t sliding = config.count(families::AttentionKind::kSliding);
  const int64_t live = live_window_blocks(config, request);
  KvAllocated kv{.dtype = request.kv_dtype,
                 .block_tokens = request.block_tokens,
                 .full_block_bytes = (config.layer_count() - sliding) * layer_bytes,
                 .window_block_bytes = sliding * layer_bytes,
                 .window_block_live = count(live)};

  if (request.context_tokens && *request.context_tokens > config.context_max) {
    return Error{ErrorCode::kDoesNotFit,
                 fmt::format("--max-model-len {} is more than the model's {}",
                             *request.context_tokens, config.context_max),
                 "max-model-len"};
  }
  const int64_t context_wanted = request.context_tokens.value_or(config.context_max);
  // Without a wish of the user's any context will do that holds a block.
  const int64_t context_needed =
      request.context_tokens ? context_wanted : std::min(context_wanted, tokens);
  const int64_t useful = useful_blocks(request, kv, context_wanted);

  const int64_t left = allowed - live * kv.window_block_bytes;
  int64_t full_most = 0;
  if (left >= 0) {
    full_most = kv.full_block_bytes == 0 ? useful : std::min(useful, left / kv.full_block_bytes);
  }
  if (full_most * tokens < context_needed) {
    return does_not_fit(kv, context_needed, allowed, std::min(context_wanted, full_most * tokens));
  }
  Shares shares{.full = full_most};
  if (request.prefix_cache) {
    shares = divide(
        config, kv,
        {.bytes = left, .full_least = blocks_of(context_needed, tokens), .full_most = full_most});
  }
  kv.full_block_count = count(shares.full);
  kv.window_block_count = count(live + std::min(shares.window, kBlocksMax));
  return KvBudget{
      .kv = kv,
      .context_tokens_max = count(std::min(context_wanted, kv.full_block_count * tokens))};
}

KvAllocated plan_swap(const KvAllocated& device, int64_t bytes) {
  KvAllocated host = device;
  host.full_block_count = 0;
  host.window_block_count = 0;
  host.window_block_live = 0;
  const double share = static_cast<double>(std::max<int64_t>(bytes, 0)) /
                       std::max(static_cast<double>(device.bytes()), 1.0);
  const auto window = static_cast<int64_t>(share * device.window_block_count);
  if (window < 1) return host;
  // What rounding left goes to the full layers, whose need has no bound.
  const int64_t left = bytes - window * device.window_block_bytes;
  const int64_t full = device.full_block_bytes > 0
                           ? left / device.full_block_bytes
                           : static_cast<int64_t>(share * device.full_block_count);
  if (full < 1) return host;
  host.full_block_count = count(full);
  host.window_block_count = count(window);
  return host;
}

}  // namespace pelton::cost_model
