// What two workers say to each other when blocks travel: messages of fixed form, little-endian,
// each in one record of a PeerChannel. The receiver pulls:
//
//   receiver                                   source
//   Hello    who, which layout            →
//                                         ←    Welcome, or Refuse with the field that differs
//   Want     ticket, names, what it has   →
//   (Await   the same, before they exist)
//                                         ←    Have    how long a prefix that makes, what comes
//                                         ←    Data    one block; so many bytes at once at most
//   Credit   so many bytes have landed    →            as the window is, until credit comes
//   Cancel   it is not wanted any more    →
//                                         ←    Done    nothing of this transfer follows
//
// Every message but the first three names its transfer: what comes of one that is over is dropped.
// What answers an Await has a Have before the blocks of each chunk that the source has computed.
// Values, pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"
#include "kv/block_hash.h"
#include "kv/group.h"

namespace pelton::kv_transfer {

// Of all that makes a block of a name what it is, by name, in one order: both sides have the same.
using PeerLayout = std::vector<std::pair<std::string, std::string>>;

// "weights: A there, B here" of the first field that differs; empty: none does.
std::string difference(const PeerLayout& theirs, const PeerLayout& ours);

inline constexpr uint32_t kPeerNamesMax = 1 << 16;  // of one Want: a million tokens
// That a source may have sent and that have not been credited.
inline constexpr uint32_t kPeerWindowBytes = 16u << 20;

struct PeerHello {
  static constexpr size_t kFieldsMax = 32;
  static constexpr size_t kTextMax = 512;

  std::string id;  // PeerTransfers::Place::id
  PeerLayout layout;
  bool operator==(const PeerHello&) const = default;
};
struct PeerWelcome {
  bool operator==(const PeerWelcome&) const = default;
};
struct PeerRefuse {
  std::string why;
  bool operator==(const PeerRefuse&) const = default;
};
struct PeerWant {
  uint32_t transfer = 0;
  uint32_t limit_ms = 0;  // that the answer may take
  std::string ticket;
  std::vector<kv::BlockHash> names;
  kv::PerGroup<std::vector<bool>> held;  // as many each
  bool ahead = false;                    // an Await
  bool operator==(const PeerWant&) const = default;
};
struct PeerHave {
  uint32_t transfer = 0;
  uint32_t prefix_blocks = 0;
  uint32_t blocks = 0;  // that come
  std::string refused;  // why none does, where that is not for want of any
  bool operator==(const PeerHave&) const = default;
};
struct PeerData {
  // Of its record besides the block: with the channel's own bytes less than 64.
  static constexpr size_t kHeaderBytes = 26;

  uint32_t transfer = 0;
  uint8_t group = 0;
  uint32_t sum = 0;  // crc32c of name and block
  kv::BlockHash name;
  std::string_view block;  // of the bytes that were decoded
  bool operator==(const PeerData&) const = default;
};
struct PeerCredit {
  uint32_t transfer = 0;
  uint32_t bytes = 0;
  bool operator==(const PeerCredit&) const = default;
};
struct PeerCancel {
  uint32_t transfer = 0;
  bool operator==(const PeerCancel&) const = default;
};
struct PeerDone {
  uint32_t transfer = 0;
  bool operator==(const PeerDone&) const = default;
};

using PeerMessage = std::variant<PeerHello, PeerWelcome, PeerRefuse, PeerWant, PeerHave, PeerData,
                                 PeerCredit, PeerCancel, PeerDone>;

std::string encode(const PeerMessage& message);
// kInvalidArgument: none, or what it says is out of bounds.
Result<PeerMessage> decode_peer_message(std::string_view bytes);

// A block on its way: begin_data writes what stands before its bytes, which go to kHeaderBytes of
// `message`; then finish_data puts the sum.
void begin_data(std::span<char> message, uint32_t transfer, int group, const kv::BlockHash& name);
void finish_data(std::span<char> message);
// Whether the sum is right.
bool is_whole(const PeerData& data, std::string_view message);

}  // namespace pelton::kv_transfer
