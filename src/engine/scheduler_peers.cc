// How the scheduler uses other workers' caches: what is fetched for whoever waits.
#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.h"
#include "engine/scheduler.h"

namespace pelton::engine {

void Scheduler::turn_on_peers() {
  CHECK(next_step_ == 0 && next_id_ == 0, "peers after the first request");
  peer_tier_.turn_on();
  watch_host_copies();
}

// Those whose rooms no step touches any more.
std::vector<kv::PeerFetch> Scheduler::take_peer_fetches() {
  for (kv::PeerFetch& fetch : peer_tier_.take_begun()) held_fetches_.push_back(std::move(fetch));
  const auto waits = [&](const kv::PeerFetch& fetch) {
    for (int group = 0; group < fetch.rooms.size(); ++group) {
      for (const BlockId room : fetch.rooms[group]) {
        if (is_copied(group, room)) return true;
      }
    }
    return false;
  };
  const auto ready = std::stable_partition(held_fetches_.begin(), held_fetches_.end(), waits);
  std::vector<kv::PeerFetch> fetches(std::make_move_iterator(ready),
                                     std::make_move_iterator(held_fetches_.end()));
  held_fetches_.erase(ready, held_fetches_.end());
  return fetches;
}

void Scheduler::begin_peer_load(Sequence& sequence) {
  if (sequence.computes_every_token()) return;
  // Without a peer it may wait for what another one fetches.
  if (!sequence.request.peer && !peer_tier_.busy()) return;
  const request::PrefixPeer nobody;
  sequence.peer_load = peer_tier_.load({.hashes = usable_names(sequence),
                                        .peer = sequence.request.peer.value_or(nobody),
                                        .owner = sequence.owner},
                                       now_ns_);
}

// Its prompt's keys and values are what is wanted; another request goes on from them.
bool Scheduler::only_fetches(const Sequence& sequence) {
  return sequence.request.peer && sequence.request.peer->ahead;
}

void Scheduler::end_fetched() {
  std::erase_if(fetching_, [&](SequenceId id) {
    const auto found = sequences_.find(id);
    if (found == sequences_.end()) return true;
    Sequence& sequence = found->second;
    if (sequence.peer_load != nullptr && sequence.peer_load->transfer >= 0) return false;
    end(sequence, FinishReason::kLength, std::nullopt);
    return true;
  });
}

// As for the disk: while it waits in line that costs nothing; once it is next, not for long.
bool Scheduler::waits_for_peer(Sequence& sequence) {
  PeerTier::Load& load = *sequence.peer_load;
  if (load.transfer < 0) return false;
  if (load.give_up_ns == 0) load.give_up_ns = now_ns_ + peer_tier_.patience_ns(load);
  if (now_ns_ < load.give_up_ns) return true;
  if (!std::exchange(load.is_late, true)) peer_tier_.note_late();
  load.far_blocks = load.near_blocks;
  return false;
}

void Scheduler::release_peer_load(Sequence& sequence) {
  if (sequence.peer_load == nullptr) return;
  peer_tier_.release(*sequence.peer_load);
  sequence.peer_load = nullptr;
}

}  // namespace pelton::engine
