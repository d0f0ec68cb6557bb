// The number of one KV block: an index into storage that an executor owns; which layers' storage,
// and in whose memory, say a group and a tier (group.h).
#pragma once

#include <cstdint>

namespace pelton::kv {

using BlockId = int32_t;

// Where a table has no block: never taken, or given back because no later query sees it.
inline constexpr BlockId kNoBlock = -1;

}  // namespace pelton::kv
