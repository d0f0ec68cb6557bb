#include "executor/kv_budget.h"

#include <algorithm>

#include <fmt/format.h>

namespace pelton::executor {
namespace {

int64_t blocks_of(int64_t token_count, int64_t block_tokens) {
  return (token_count + block_tokens - 1) / block_tokens;
}

// A sequence's window blocks: those that the next query still sees, plus the one being filled.
// Prefill chunks add their own tokens, but never more than one step's in all.
int64_t window_blocks(const checkpoint::ModelConfig& config, const KvRequest& request) {
  const int64_t tokens = request.block_tokens;
  const int64_t seen = (config.sliding_window + tokens - 2) / tokens + 1;
  const int64_t in_step = (request.batch_tokens_max + tokens - 1) / tokens;
  return request.sequences_max * (seen + 1) + in_step;
}

}  // namespace

Result<KvBudget> plan_kv(const checkpoint::ModelConfig& config, const KvRequest& request) {
  KvBudget budget;
  budget.storage.dtype = request.dtype;
  budget.storage.block_tokens = request.block_tokens;
  const int64_t full_bytes = models::KvStorage::full_block_bytes(config, budget.storage);
  const int64_t window_bytes = models::KvStorage::window_block_bytes(config, budget.storage);
  const int64_t window_count = window_blocks(config, request);
  const int64_t tokens = request.block_tokens;

  if (request.context_tokens && *request.context_tokens > config.context_max) {
    return Error{ErrorCode::kDoesNotFit,
                 fmt::format("--max-model-len {} is more than the model's {}",
                             *request.context_tokens, config.context_max),
                 "max-model-len"};
  }
  const int64_t context_wanted = request.context_tokens.value_or(config.context_max);
  const int64_t full_wanted = blocks_of(context_wanted, tokens);
  // More than this could never be used.
  const int64_t full_useful = full_wanted * request.sequences_max;

  const int64_t allowed = request.bytes.value_or(request.free_bytes / 2);
  const int64_t for_full = allowed - window_count * window_bytes;
  int64_t full_count = 0;
  if (for_full >= 0) {
    full_count = full_bytes == 0 ? full_useful : std::min(full_useful, for_full / full_bytes);
  }
  const int64_t context_fits = std::min(context_wanted, full_count * tokens);
  // Without a wish of the user's any context will do that holds a block.
  const int64_t context_needed =
      request.context_tokens ? context_wanted : std::min(context_wanted, tokens);
  if (context_fits < context_needed) {
    return Error{
        ErrorCode::kDoesNotFit,
        fmt::format("the KV cache for one sequence of {} tokens needs {} bytes (window layers {}, "
                    "full layers "
                    "{}); {} are allowed here, enough for {} tokens; lower --max-model-len or "
                    "--max-num-seqs, or "
                    "raise --kv-cache-memory",
                    context_needed,
                    full_bytes * blocks_of(context_needed, tokens) + window_count * window_bytes,
                    window_count * window_bytes, full_bytes * blocks_of(context_needed, tokens),
                    allowed, context_fits),
        "kv-cache-memory"};
  }
  budget.storage.full_block_count = static_cast<int>(std::min<int64_t>(full_count, INT32_MAX));
  budget.storage.window_block_count = static_cast<int>(window_count);
  budget.context_tokens_max = static_cast<int>(context_fits);
  budget.bytes = budget.storage.full_block_count * full_bytes + window_count * window_bytes;
  return budget;
}

}  // namespace pelton::executor
