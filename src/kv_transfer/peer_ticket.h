// What a gateway gives a worker that is to fetch blocks from another: by it the source knows that
// it may hand them out, which, to whom and until when. Authenticated by a key of the fleet's; good
// once. Travels in the envelope from gateway to worker only, never in what a client writes. Values,
// pure functions; `UsedTickets` is its source's.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "kv/block_hash.h"

namespace pelton::kv_transfer {

// The label under which the fleet's key gives the key of tickets and connections.
inline constexpr std::string_view kPeerLabel = "pelton fleet keys and values v1";

// Of blocks, by their names: these and no others, in this order. Names are salted by tenant and
// made by the gateway, so nobody can be granted another tenant's.
std::string grant_of(std::span<const kv::BlockHash> names);

struct PeerTicket {
  static constexpr size_t kTextMax = 2048;
  static constexpr int64_t kLifeMs = 30'000;

  std::string source;  // PeerTransfers::Place::id of both
  std::string target;
  std::string grant;       // grant_of what may be asked for
  std::string request_id;  // for logs
  int64_t expires_ms = 0;  // since 1970
  std::string nonce;       // no two tickets have the same

  bool operator==(const PeerTicket&) const = default;

  // `key`: 32 bytes.
  std::string seal(std::string_view key) const;
  // Of whichever of `keys` made it. Errors: kInvalidArgument.
  static Result<PeerTicket> open(std::string_view text, std::span<const std::string> keys);
};

// A source's: tickets that have been shown to it. Any thread.
class UsedTickets {
 public:
  // Those beyond are refused until some have expired. Each is kept for kKeptMs at least: if the
  // wall clock is set back, it is not good a second time.
  static constexpr int64_t kKeptMs = 2 * PeerTicket::kLifeMs;
  static constexpr size_t kMax = 1 << 16;

  struct Shown {
    std::string_view source;
    std::string_view target;
    int64_t now_ms = 0;
    int64_t steady_ms = 0;  // of a clock that nobody sets
  };
  // Errors: kInvalidArgument: it is another's, expired, from too far ahead, or was used before.
  Result<void> use(const PeerTicket& ticket, const Shown& shown);

 private:
  std::mutex mutex_;
  struct Use {
    int64_t expires_ms = 0;
    int64_t steady_ms = 0;
  };
  std::map<std::string, Use, std::less<>> uses_;  // by nonce
  int64_t swept_ms_ = 0;                          // by the steady clock
};

}  // namespace pelton::kv_transfer
