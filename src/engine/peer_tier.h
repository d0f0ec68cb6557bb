// What the engine knows of other workers' caches: which blocks are being fetched, for whom, and
// whether that is quicker than computing; and which of its own it has offered to others. What comes
// lands in the host's memory, where it is found like what was evicted there. Owned by the
// scheduler; engine thread only, without a clock.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kv/block_hash.h"
#include "kv/block_pools.h"
#include "kv/peer_transfers.h"
#include "request/prefix_peer.h"

namespace pelton::engine {

class PeerTier {
 public:
  // `pools` outlive it. Off until turn_on().
  explicit PeerTier(kv::BlockPools& pools) : pools_(pools) {}

  void turn_on() { on_ = true; }
  bool on() const { return on_; }

  // What one waiting sequence has asked for. What has come for it stays on the host until it is
  // released.
  struct Load {
    int near_blocks = 0;     // of the hit without the peer
    int far_blocks = 0;      // and with it, if the peer has what is expected of it
    int64_t transfer = -1;   // that it waits for; -1: none any more
    bool is_late = false;    // it was given up
    int64_t give_up_ns = 0;  // from then on it is not waited for; 0: nobody has waited yet
    std::vector<std::pair<int, kv::BlockId>> held;  // group and block on the host
  };
  struct Asked {
    std::span<const kv::BlockHash> hashes;  // of the blocks that a hit may consist of
    const request::PrefixPeer& peer;
    uint64_t owner = 0;
  };
  // Begins to fetch what the longest expected hit lacks here, or joins whoever does so already.
  // Null: there is nothing, it would take longer than computing, or the host has no room.
  std::unique_ptr<Load> load(const Asked& asked, int64_t now_ns);
  void release(Load& load);
  // How long a load may keep its sequence waiting.
  int64_t patience_ns(const Load& load) const;
  void note_late() { ++counters_.late; }

  std::vector<kv::PeerFetch> take_begun() { return std::exchange(begun_, {}); }
  std::vector<int64_t> take_cancelled() { return std::exchange(cancelled_, {}); }
  void finish(const kv::PeerFetched& fetched, int64_t now_ns);
  // A step computed so many prompt tokens in so long.
  void note_computed(int tokens, int64_t ns);

  // What is here of the longest prefix that it makes whole with what is there; of one that is being
  // computed, what is here of all that it will need.
  kv::PeerOffer offer(const kv::PeerAsk& ask, int64_t now_ns);
  // What has been computed since of those that go on.
  std::vector<kv::PeerOffer> further_offers(int64_t now_ns);
  void end_offer(int64_t id);
  bool any_offered() const { return !offered_.empty(); }
  // Nobody reads them any more: the transfers were revoked.
  void end_all_offers();

  // Something is being fetched, or sent as it is computed.
  bool busy() const { return !transfers_.empty() || !awaited_.empty(); }
  // Forgets what is on its way: it is not listed when it comes.
  void forget_all();

  struct Counters {
    int64_t fetches = 0;     // begun
    int64_t joined = 0;      // prompts that waited for another one's
    int64_t declined = 0;    // computing is quicker
    int64_t no_room = 0;     // the host has none for what they lack
    int64_t left_alone = 0;  // its peer failed lately, or enough is being fetched
    int64_t ahead = 0;       // of those begun: while the peer computed them
    int64_t late = 0;        // not waited for to the end
    int64_t blocks_fetched = 0;
    int64_t bytes_fetched = 0;
    int64_t fetch_ns = 0;  // that these took
    int64_t nothing = 0;   // the peer had nothing of use
    int64_t refused = 0;   // it refused
    int64_t corrupt = 0;   // what came was not what was sent: computed
    int64_t failed = 0;    // it was not reached, was lost or too slow
    int64_t blocks_offered = 0;
    int64_t revoked = 0;  // offers that ended because the blocks were needed here
  };
  const Counters& counters() const { return counters_; }

  // References that transfers and offers hold, for the integrity check.
  template <typename Sees>
  void each_held(const Sees& sees) const {
    for (const auto& [id, transfer] : transfers_) {
      for (int group = 0; group < transfer.rooms.size(); ++group) {
        for (const kv::BlockId room : transfer.rooms[group]) sees(group, kv::kHost, room);
      }
    }
    for (const auto& [id, blocks] : offered_) {
      for (const kv::PeerOffer::Block& one : blocks) sees(one.group, one.tier, one.block);
    }
  }

 private:
  struct Transfer {
    std::vector<kv::BlockHash> names;
    int near_blocks = 0;
    std::string address;
    uint64_t owner = 0;
    kv::PerGroup<std::vector<kv::BlockId>> rooms;
    std::vector<Load*> waiters;
    bool is_stale = false;      // all was forgotten meanwhile
    bool is_cancelled = false;  // nobody waits any more
    bool ahead = false;
  };
  // One that fails again and again is left alone for a while.
  struct Trouble {
    int failures = 0;  // one after the other
    int64_t off_until_ns = 0;
  };

  // A prompt that is being computed here and sent as it is.
  struct Awaited {
    kv::PeerAsk ask;
    int next = 0;  // block: those before it have been offered
    int64_t since_ns = 0;
  };

  bool is_here(int group, const kv::BlockHash& name) const;
  void share(kv::PeerOffer& offer, int group, const kv::BlockHash& name);
  kv::PeerOffer offer_next(Awaited& awaited, int64_t now_ns);
  bool join(Load& load, std::span<const kv::BlockHash> hashes);
  int first_needed(int group, int blocks) const;
  bool plan(kv::PeerFetch& fetch, int near);
  bool any_place(const std::string& address, bool ahead, int64_t now_ns) const;
  bool take_rooms(kv::PeerFetch& fetch, Load& load);
  bool pays(int64_t bytes, int tokens) const;
  void note_outcome(const Transfer& transfer, const kv::PeerFetched& fetched, int64_t now_ns);
  void note_given_up(const Transfer& transfer, const kv::PeerFetched& fetched);

  kv::BlockPools& pools_;
  bool on_ = false;
  std::map<int64_t, Transfer> transfers_;  // its nodes do not move
  std::vector<kv::PeerFetch> begun_;
  std::vector<int64_t> cancelled_;
  std::map<std::string, Trouble> troubles_;  // by address
  std::map<int64_t, std::vector<kv::PeerOffer::Block>> offered_;
  std::map<int64_t, Awaited> awaited_;  // of those, by ask
  int64_t next_id_ = 0;
  double fetch_ns_per_byte_ = 0;      // 0: not known
  double computed_ns_per_token_ = 0;  // likewise
  Counters counters_;
};

}  // namespace pelton::engine
