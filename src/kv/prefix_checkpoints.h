// Prefix checkpoints: positions at which a hit can still end long after its sequence has gone on,
// because the window blocks before them are evicted last. The engine sets eviction priorities by
// them, cost_model's footprint reserves memory for them. Window blocks where prompts part
// (engine/sequence.h, parts_at) last as long, and nothing is reserved: few prompts share many.
#pragma once

#include <cstdint>

namespace pelton::kv {

// Window blocks of a running prompt are of use to others only where a hit can end. Those before
// every multiple of so many tokens are kept longer, so that a prompt that shares a part finds most
// of it.
inline constexpr int kPrefixCheckpointTokens = 512;

// So far before a prompt's end a later one may part from it and still find its window blocks: a
// question or a closing marker at the end is often what differs.
inline constexpr int kPromptTailTokens = 64;

// Window blocks that a sequence of `token_count` leaves behind to be kept longest: before each
// prefix checkpoint, before its prompt's last tokens, and at its end.
constexpr int64_t lasting_window_blocks(int64_t token_count, int sliding_window, int block_tokens) {
  const int64_t seen =
      (sliding_window - 2 + block_tokens) / block_tokens;  // by the query after one
  const int64_t tail = (sliding_window + kPromptTailTokens) / block_tokens + 1;
  const int64_t spacing =
      kPrefixCheckpointTokens > block_tokens ? kPrefixCheckpointTokens : block_tokens;
  return token_count / spacing * seen + tail + seen + 1;
}

}  // namespace pelton::kv
