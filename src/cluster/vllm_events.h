// What vLLM's workers publish of their prefix caches (ZMQ, msgpack; SGLang's do likewise): batches
// of events with the blocks' tokens. Their arrays begin with the event's name, and end where a
// version knew no more fields; since June 2026 they are maps with a "type". Both are read, outside
// and inside. Pure.
//
//   [ts, [["BlockStored", [hash…], parent or nil, [token…], 16, lora or nil, "GPU", …], …], rank]
//   {"ts": ts, "events": [{"type": "BlockRemoved", "block_hashes": [hash…], …}], …}
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/token_id.h"

namespace pelton::cluster {

// The frame of a message that numbers its batch.
inline std::string big_endian(int64_t value) {
  std::string bytes;
  for (int shift = 56; shift >= 0; shift -= 8) {
    bytes += static_cast<char>(static_cast<uint64_t>(value) >> shift & 255);
  }
  return bytes;
}

struct VllmEvent {
  enum class Kind { kStored, kRemoved, kCleared };

  Kind kind = Kind::kCleared;
  // As its worker names blocks: 64 bits of whatever that is, an integer or bytes.
  std::vector<uint64_t> hashes;
  std::optional<uint64_t> parent;  // of the first; none: they begin a prompt
  std::vector<TokenId> tokens;     // of all of them
  int block_tokens = 0;
  int group = 0;
  // More than the tokens says what they hold: an adapter, a picture, a salt; or they lie elsewhere
  // than on the device.
  bool is_special = false;
};

// kInvalidArgument: it is no batch, or says what cannot be. Events of other kinds are passed over.
Result<std::vector<VllmEvent>> parse_vllm_batch(std::string_view payload);

enum class VllmForm { kMap, kArray };
// The same, written: of blocks on the device, without adapters, pictures or salts.
std::string encode_vllm_batch(const std::vector<VllmEvent>& events, VllmForm form, double unix_s);

}  // namespace pelton::cluster
