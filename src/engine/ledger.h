// What the engine holds, counted at one moment between two steps: every claim that nothing leaks
// rests on it. When nothing waits and nobody reads, only remembered and pinned blocks are left.
// Plain values.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kv/group.h"

namespace pelton::engine {

// A prompt's beginning that stays computed, of one tenant's requests.
struct PinnedPrefix {
  std::string id;      // of the request that asked for it
  std::string tenant;  // empty: all who have no name of their own
  int tokens = 0;
};

struct Ledger {
  struct Blocks {
    int total = 0;
    int free = 0;    // hold nothing
    int kept = 0;    // hold a computed prefix that nobody uses now; free as soon as needed
    int held = 0;    // by sequences and pins; pinned ones included
    int pinned = 0;  // for good

    bool released() const { return held == pinned && free + kept + held == total; }
  };
  // Those beyond the device are held by sequences that were swapped out.
  kv::PerTier<kv::PerGroup<Blocks>> blocks;

  int running = 0;            // sequences with a slot
  int waiting = 0;            // sequences without
  int swapped_out = 0;        // of these, with blocks in the host's memory
  int draining = 0;           // ended, and a submitted step still names them
  int slots_free = 0;         // of sequences that sample
  int pooled_slots_free = 0;  // of those of which an embedding is made
  int steps_in_flight = 0;
  int streams = 0;            // with a writer: their requests have not ended
  int queued = 0;             // accepted, never had a slot
  int64_t queued_tokens = 0;  // of their prompts
  int64_t kv_events = 0;      // so far
  int64_t kv_events_dropped = 0;
  int64_t integrity_checks = 0;                               // passed so far
  std::shared_ptr<const std::vector<PinnedPrefix>> prefixes;  // that are pinned; null: none is

  const Blocks& of(int group, kv::Tier tier) const {
    return blocks[static_cast<size_t>(tier)][group];
  }

  // Nothing that a request could have left behind.
  bool clean() const {
    for (const kv::PerGroup<Blocks>& tier : blocks) {
      for (const Blocks& counted : tier) {
        if (!counted.released()) return false;
      }
    }
    return running == 0 && waiting == 0 && draining == 0 && steps_in_flight == 0 && streams == 0 &&
           queued == 0 && queued_tokens == 0;
  }
};

}  // namespace pelton::engine
