// The number of one KV block: an index into storage that an executor owns; which layers' storage,
// and in whose memory.
#pragma once

#include <cstdint>

namespace pelton::kv {

using BlockId = int32_t;

// Where a table has no block: never taken, or given back because no later query sees it.
inline constexpr BlockId kNoBlock = -1;

// Blocks of the full-attention layers, and of the sliding-window layers. Each has its own numbers.
enum class Group { kFull, kWindow };

// The device computes on its own memory only; the host's holds what had to make room there. Each
// has its own numbers.
enum class Tier { kDevice, kHost };

}  // namespace pelton::kv
