// What a worker's prefix cache has come to hold and has let go, as a watch reports it to gateways:
// the first 64 bits of the blocks' names (kv/block_hash.h), on the device only. A value, pure
// functions.
//
//   u8 1: all that was reported before is void; then for each: u8 group << 1 | stored, u64 name
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace pelton::cluster {

struct BlockEvent {
  bool stored = true;  // or removed
  int group = 0;       // of the model's KV groups
  uint64_t name = 0;

  bool operator==(const BlockEvent&) const = default;
};

struct BlockEvents {
  static constexpr size_t kBytesEach = 9;
  static constexpr int kGroupsMax = 127;

  bool clears = false;
  std::vector<BlockEvent> events;  // in order
};

std::string encode(const BlockEvents& events);
// kInvalidArgument: it is cut off, or says what it cannot mean.
Result<BlockEvents> decode_block_events(std::string_view payload);

}  // namespace pelton::cluster
