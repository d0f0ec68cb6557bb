#include "cost_model/kv_budget.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cost_model/byte_text.h"
#include "families/kv_groups.h"
#include "kv/prefix_checkpoints.h"

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

// A sequence's blocks in a window group: those that the next query still sees, plus the one being
// filled. Prefill chunks add their own tokens, but never more than one step's in all.
int64_t live_blocks(const kv::GroupSpec& group, const MemoryRequest& request) {
  if (!group.slides()) return 0;
  const int64_t seen = group.blocks_at_once(INT32_MAX, request.block_tokens);
  const int64_t in_step = blocks_of(request.batch_tokens_max, request.block_tokens);
  return request.sequences_max * (seen + 1) + in_step;
}

// One block in each group that keeps every token: they always have as many.
int64_t context_block_bytes(const KvAllocated& kv) {
  int64_t bytes = 0;
  for (const KvAllocated::Group& group : kv.groups) {
    if (!group.spec.slides()) bytes += group.spec.block_bytes;
  }
  return bytes;
}

int64_t live_bytes_of(const KvAllocated& kv) {
  int64_t bytes = 0;
  for (const KvAllocated::Group& group : kv.groups) {
    bytes += group.live_count * group.spec.block_bytes;
  }
  return bytes;
}

// What can be had.
struct Shares {
  int64_t context_blocks = 0;     // in each group that keeps every token
  kv::PerGroup<int64_t> windows;  // in the others, by group: beyond the live ones
};

struct Rest {
  int64_t bytes = 0;
  int64_t context_least = 0;
  int64_t context_most = 0;  // more could never be used
};

// So many window blocks as belong to the conversations whose context the full blocks hold; where
// bytes are short of that, each window group gets its part of them.
void share_windows(const KvAllocated& kv, int64_t left, Shares& shares) {
  const int64_t measure_context = blocks_of(kMeasureTokens, kv.block_tokens);
  shares.windows.assign(kv.groups.size(), 0);
  double wanted_bytes = 0;
  for (int group = 0; group < kv.groups.size(); ++group) {
    const kv::GroupSpec& spec = kv.groups[group].spec;
    if (!spec.slides()) continue;
    shares.windows[group] = blocks_of(
        shares.context_blocks * conversation_blocks(spec, kv.block_tokens), measure_context);
    wanted_bytes += static_cast<double>(shares.windows[group] * spec.block_bytes);
  }
  for (int group = 0; group < kv.groups.size(); ++group) {
    const kv::GroupSpec& spec = kv.groups[group].spec;
    if (!spec.slides()) continue;
    const auto wanted = static_cast<double>(shares.windows[group] * spec.block_bytes);
    // The last one's part is all that is left, to the byte.
    const int64_t part =
        wanted >= wanted_bytes
            ? left
            : static_cast<int64_t>(static_cast<double>(left) * wanted / wanted_bytes);
    shares.windows[group] = std::min(shares.windows[group], part / spec.block_bytes);
    left -= shares.windows[group] * spec.block_bytes;
    wanted_bytes -= wanted;
  }
}

// Full and window blocks as in a conversation of kMeasureTokens. With 24 KiB a token in either
// group of gpt-oss-20b that is 256 and 86 blocks of 384 KiB: 128 MiB for each conversation.
Shares divide(const KvAllocated& kv, const Rest& rest) {
  const int64_t context_bytes = context_block_bytes(kv);
  const int64_t measure_context = blocks_of(kMeasureTokens, kv.block_tokens);
  int64_t measure_bytes = measure_context * context_bytes;
  for (const KvAllocated::Group& group : kv.groups) {
    if (!group.spec.slides()) continue;
    measure_bytes += conversation_blocks(group.spec, kv.block_tokens) * group.spec.block_bytes;
  }

  Shares shares{.context_blocks = rest.context_most};
  if (context_bytes > 0) {
    const int64_t balanced = rest.bytes / measure_bytes * measure_context +
                             rest.bytes % measure_bytes * measure_context / measure_bytes;
    shares.context_blocks = std::min(std::max(balanced, rest.context_least), rest.context_most);
  }
  share_windows(kv, rest.bytes - shares.context_blocks * context_bytes, shares);
  if (context_bytes > 0) {
    int64_t left = rest.bytes;
    for (int group = 0; group < kv.groups.size(); ++group) {
      left -= shares.windows[group] * kv.groups[group].spec.block_bytes;
    }
    shares.context_blocks = std::min(rest.context_most, left / context_bytes);
  }
  return shares;
}

Error does_not_fit(const KvAllocated& kv, int64_t context_needed, int64_t allowed,
                   int64_t context_fits) {
  const int64_t blocks = blocks_of(context_needed, kv.block_tokens);
  int64_t needed = 0;
  std::vector<std::string> parts;
  for (const KvAllocated::Group& group : kv.groups) {
    const int64_t bytes =
        group.spec.block_bytes * (group.spec.slides() ? group.live_count : blocks);
    needed += bytes;
    parts.push_back(fmt::format("{} layers {}", group.spec.name, byte_text(bytes)));
  }
  return Error{ErrorCode::kDoesNotFit,
               fmt::format("the KV cache for one sequence of {} tokens needs {} ({}); {} are "
                           "allowed here, enough for {} tokens; lower --max-model-len or "
                           "--max-num-seqs, or raise --kv-cache-memory",
                           context_needed, byte_text(needed), fmt::join(parts, ", "),
                           byte_text(allowed), context_fits),
               "kv-cache-memory"};
}

int count(int64_t blocks) {
  return static_cast<int>(std::min<int64_t>(blocks, INT32_MAX));
}

// Blocks of context beyond these would never hold anything.
int64_t useful_blocks(const MemoryRequest& request, const KvAllocated& kv, int64_t context_wanted) {
  const int64_t running = blocks_of(context_wanted, kv.block_tokens) * request.sequences_max;
  if (!request.prefix_cache) return std::min(running, kBlocksMax);
  const bool said = request.kv_bytes || request.memory_utilization;
  if (said && context_block_bytes(kv) > 0) return kBlocksMax;
  return std::min(running * (1 + kIdleForEachRunning), kBlocksMax);
}

// The groups, and what runs in them.
KvAllocated bare_groups(const ModelConfig& config, const MemoryRequest& request) {
  KvAllocated kv{.dtype = request.kv_dtype, .block_tokens = request.block_tokens};
  const families::KvGroups groups = families::kv_groups(
      config, {.dtype = request.kv_dtype, .block_tokens = request.block_tokens});
  for (const kv::GroupSpec& spec : groups.specs) {
    kv.groups.push_back({.spec = spec, .live_count = count(live_blocks(spec, request))});
  }
  return kv;
}

// Of an encoder's blocks, which hold nothing, there are as many as the tokens of two steps can ever
// need: a text has one for each token at most. It is computed whole, so the step is its bound.
Result<KvBudget> plan_encoder_blocks(const ModelConfig& config, const MemoryRequest& request,
                                     KvAllocated kv) {
  const int step = request.batch_tokens_max;
  if (request.context_tokens && *request.context_tokens > step) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--max-model-len {} is more than --max-num-batched-tokens {}, and an "
                             "encoder computes a text whole",
                             *request.context_tokens, step),
                 "max-model-len"};
  }
  kv.groups[0].block_count = count(std::min<int64_t>(2 * int64_t{step}, kBlocksMax));
  return KvBudget{
      .kv = std::move(kv),
      .context_tokens_max = std::min(request.context_tokens.value_or(config.context_max), step)};
}

}  // namespace

int64_t conversation_blocks(const kv::GroupSpec& group, int block_tokens) {
  if (!group.slides()) return blocks_of(kMeasureTokens, block_tokens);
  return kv::lasting_window_blocks(kMeasureTokens, group.sliding_window, block_tokens);
}

Result<KvBudget> plan_kv(const ModelConfig& config, const MemoryRequest& request, int64_t allowed) {
  const int64_t tokens = request.block_tokens;
  KvAllocated kv = bare_groups(config, request);
  if (request.context_tokens && *request.context_tokens > config.context_max) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--max-model-len {} is more than the model's {}",
                             *request.context_tokens, config.context_max),
                 "max-model-len"};
  }
  if (config.is_encoder()) return plan_encoder_blocks(config, request, std::move(kv));
  const int64_t context_wanted = request.context_tokens.value_or(config.context_max);
  // Where the user has not said, any context will do that holds a block.
  const int64_t context_needed =
      request.context_tokens ? context_wanted : std::min(context_wanted, tokens);
  const int64_t useful = useful_blocks(request, kv, context_wanted);

  const int64_t left = allowed - live_bytes_of(kv);
  const int64_t context_bytes = context_block_bytes(kv);
  int64_t context_most = 0;
  if (left >= 0)
    context_most = context_bytes == 0 ? useful : std::min(useful, left / context_bytes);
  if (context_most * tokens < context_needed) {
    return does_not_fit(kv, context_needed, allowed,
                        std::min(context_wanted, context_most * tokens));
  }
  Shares shares{.context_blocks = context_most};
  shares.windows.assign(kv.groups.size(), 0);
  if (request.prefix_cache) {
    shares = divide(kv, {.bytes = left,
                         .context_least = blocks_of(context_needed, tokens),
                         .context_most = context_most});
  }
  for (int i = 0; i < kv.groups.size(); ++i) {
    KvAllocated::Group& group = kv.groups[i];
    group.block_count = group.spec.slides()
                            ? count(group.live_count + std::min(shares.windows[i], kBlocksMax))
                            : count(shares.context_blocks);
  }
  return KvBudget{
      .kv = kv,
      .context_tokens_max = count(std::min(context_wanted, shares.context_blocks * tokens))};
}

KvAllocated plan_swap(const KvAllocated& device, int64_t bytes) {
  KvAllocated none = device;
  for (KvAllocated::Group& group : none.groups) group.block_count = group.live_count = 0;
  KvAllocated host = none;
  const double share = static_cast<double>(std::max<int64_t>(bytes, 0)) /
                       std::max(static_cast<double>(device.bytes()), 1.0);
  int64_t left = bytes;
  for (int i = 0; i < host.groups.size(); ++i) {
    KvAllocated::Group& group = host.groups[i];
    if (!group.spec.slides()) continue;
    group.block_count = count(static_cast<int64_t>(share * device.groups[i].block_count));
    if (group.block_count < 1) return none;
    left -= group.bytes();
  }
  const int64_t context_bytes = context_block_bytes(device);
  if (context_bytes == 0) return host;
  // What rounding left goes to the full layers, whose need has no bound.
  const int64_t blocks = left / context_bytes;
  if (blocks < 1) return none;
  for (KvAllocated::Group& group : host.groups) {
    if (!group.spec.slides()) group.block_count = count(blocks);
  }
  return host;
}

}  // namespace pelton::cost_model
