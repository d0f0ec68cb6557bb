// What a scheduler has done since it was made. Plain values.
#pragma once

#include <array>
#include <cstdint>

#include "engine/step_plan.h"
#include "kv/group.h"

namespace pelton::engine {

struct SchedulerCounters {
  // When sequences are scheduled for the first time: tokens of their prompts; of these, found in
  // the prefix cache, on the device or the host; and taken over from another answer to the same
  // request.
  int64_t prompt_tokens = 0;
  int64_t prompt_tokens_cached = 0;
  kv::PerTier<int64_t> prompt_tokens_cached_by_tier{};  // of these, by where they lay
  int64_t prompt_tokens_from_peers = 0;                 // of these, fetched from another worker
  int64_t prompt_tokens_shared = 0;

  int64_t preemptions_recompute = 0;  // blocks returned
  int64_t preemptions_swap = 0;       // blocks copied out
  int64_t preemptions_costless = 0;   // the last token was on its way
  int64_t tokens_lost = 0;            // computed, and thrown away by preemptions

  // Copies of blocks of either group: out to the host, as evicted or of preempted sequences; back
  // from it, hits of others included; and on the device, where answers part.
  int64_t blocks_offloaded = 0;  // evicted on the device, copied to the host
  int64_t blocks_swapped_out = 0;
  int64_t blocks_swapped_in = 0;
  int64_t blocks_forked = 0;

  // Rows with guesses; the guesses; and of those, by their place in the row, the accepted ones.
  static constexpr size_t kDraftPlaces = 64;
  int64_t drafts = 0;
  int64_t draft_tokens = 0;
  int64_t accepted_tokens = 0;
  std::array<int64_t, kDraftPlaces> accepted_by_place{};  // the last: and all behind it
  // Of steps without prompts, where guesses may be computed: rows, what they took, and of that what
  // guessing took.
  int64_t decode_rows = 0;
  int64_t decode_ns = 0;
  int64_t draft_ns = 0;
  // Drafts by who guessed (ExecutorCapacity::proposers).
  struct Proposed {
    int64_t drafts = 0;
    int64_t draft_tokens = 0;
    int64_t accepted_tokens = 0;
    int64_t draft_ns = 0;  // what asking it took, whether or not its guesses were the ones computed
  };
  std::array<Proposed, kProposersMax> by_proposer{};

  int64_t numerical_errors = 0;  // sequences that ended because what was computed is not finite
};

}  // namespace pelton::engine
