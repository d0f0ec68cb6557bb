// What the engine knows of the disk tier: which transfers are on their way, what is to be written,
// who waits for what is read, and whether reading is quicker than computing. Blocks travel between
// the host's memory and the disk only. Owned by the scheduler; engine thread only, without a clock.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kv/block_hash.h"
#include "kv/block_pools.h"
#include "kv/block_transfers.h"

namespace pelton::engine {

class DiskTier {
 public:
  // `pools` outlive it. Without blocks on the disk nothing here does anything.
  explicit DiskTier(kv::BlockPools& pools);

  bool on() const { return on_; }
  void adopt(std::span<const kv::BlockTransfers::Kept> kept);

  // A block that is wanted on the disk.
  struct Wanted {
    int group = 0;
    kv::BlockHash name;
    uint64_t owner = 0;
    // Of window blocks those of prefix checkpoints are kept longer than those of one prompt's end.
    kv::BlockPool::EvictionPriority priority = kv::BlockPool::EvictionPriority::kLast;
  };
  void want(const Wanted& wanted);
  // Begins to write what is wanted and in the host's memory. Not while somebody reads.
  void begin_writes(int64_t now_ns);
  // Of what is wanted and on the device only: to be copied to the host and wanted again.
  std::optional<Wanted> take_uncopied();

  // What one waiting sequence has asked for. Its blocks stay on the host until it is released.
  struct Load {
    int near_blocks = 0;      // of the hit without the disk
    int far_blocks = 0;       // and with it
    int pending = 0;          // transfers
    int64_t expected_ns = 0;  // that these take, those asked for before included; 0: not known
    int64_t give_up_ns = 0;   // from then on it is not waited for; 0: nobody has waited yet
    std::vector<std::pair<int, kv::BlockId>> held;  // group and block on the host
  };
  // Begins to read what the longest hit has on the disk. Nothing: there is none, it would take
  // longer than computing, or the host has no room. The load stays where it is until released.
  std::unique_ptr<Load> load(std::span<const kv::BlockHash> hashes, int64_t now_ns);
  void release(Load& load);
  // How long a load may keep its sequence waiting.
  int64_t patience_ns(const Load& load) const;

  std::vector<kv::BlockTransfer> take_begun() { return std::exchange(begun_, {}); }
  void finish(const kv::TransferResult& result, int64_t now_ns);
  // A write that was begun, and that nobody has been asked for yet, is not done.
  void drop_write(int64_t id);
  // A step computed so many prompt tokens in so long.
  void note_computed(int tokens, int64_t ns);

  // Something is on its way or still to be written.
  bool busy() const { return !transfers_.empty() || !wanted_.empty() || !uncopied_.empty(); }
  // Forgets every block; what is on its way is not listed when it comes.
  void forget_all();
  // The same of this owner's.
  void forget(uint64_t owner);

  struct Counters {
    int64_t blocks_written = 0;
    int64_t blocks_read = 0;
    int64_t blocks_corrupt = 0;  // read, and not what was written: computed again
    int64_t errors = 0;          // transfers that the disk failed
    int64_t writes_dropped = 0;  // wanted, and there was no time, room or disk for it
    int64_t loads = 0;
    int64_t loads_declined = 0;  // computing is quicker
    int64_t loads_late = 0;      // not waited for to the end
    int64_t times_off = 0;       // it failed so often, or was so slow, that it was left alone
  };
  const Counters& counters() const { return counters_; }
  void note_late() { ++counters_.loads_late; }

  // References that transfers and loads hold, for the integrity check.
  template <typename Sees>
  void each_held(const Sees& sees) const {
    for (const auto& [id, transfer] : transfers_) {
      sees(transfer.what.group, kv::kHost, transfer.what.host);
      sees(transfer.what.group, kv::kDisk, transfer.what.slot);
    }
  }

 private:
  struct Transfer {
    kv::BlockTransfer what;
    std::vector<Load*> waiters;  // of a read
    bool is_stale = false;       // all was forgotten meanwhile
    kv::BlockPool::EvictionPriority priority = kv::BlockPool::EvictionPriority::kLast;
  };
  struct NameHash {
    size_t operator()(const std::pair<int, uint64_t>& key) const {
      return static_cast<size_t>(key.second) + static_cast<size_t>(key.first);
    }
  };

  Transfer* transfer_of(int group, const kv::BlockHash& name);
  Transfer& begin(kv::BlockTransfer what);
  Transfer* begin_read(int group, const kv::BlockHash& name, kv::BlockId slot);
  void probe(std::span<const kv::BlockHash> hashes, int far, int64_t now_ns);
  bool off(int64_t now_ns) const { return now_ns < off_until_ns_; }
  bool pays(int64_t bytes, int tokens) const;
  void note_outcome(const kv::TransferResult& result, const kv::BlockTransfer& what,
                    int64_t now_ns);
  bool is_slow(const kv::TransferResult& read, int64_t now_ns);
  void leave_alone(int64_t now_ns);

  kv::BlockPools& pools_;
  bool on_ = false;
  std::deque<Wanted> wanted_;
  std::deque<Wanted> uncopied_;
  std::unordered_map<int64_t, Transfer> transfers_;  // by id; its nodes do not move
  std::unordered_map<std::pair<int, uint64_t>, int64_t, NameHash> by_name_;  // group and name: id
  std::vector<kv::BlockTransfer> begun_;
  int64_t next_id_ = 0;
  int reads_ = 0;   // of the transfers
  int writes_ = 0;  // likewise
  int64_t bytes_to_read_ = 0;
  double read_ns_per_byte_ = 0;       // 0: not known
  double computed_ns_per_token_ = 0;  // likewise
  int64_t probed_ns_ = 0;
  int failures_ = 0;  // one after the other
  // Reads since then, and those of them that took far too long.
  int64_t watched_since_ns_ = 0;
  int64_t watched_until_ns_ = 0;  // the end of the last read
  int64_t watched_reads_ = 0;
  int64_t slow_reads_ = 0;
  int64_t off_until_ns_ = 0;
  int64_t full_until_ns_ = 0;  // no writes before
  Counters counters_;
};

}  // namespace pelton::engine
