// How the scheduler makes room: whom it takes back, what is copied to the host's memory meanwhile,
// and what becomes of the copy.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "engine/scheduler.h"

namespace pelton::engine {

// Of the later ones that hold anything, the one whose going loses the least work: none if its last
// token is on its way, or if there is room for a copy. Among those the one that is copied soonest;
// the last of equals.
Sequence* Scheduler::whom_to_preempt(const Sequence& needy) const {
  Sequence* least = nullptr;
  std::pair<int, int> least_cost;
  for (size_t i = running_.size(); i-- > 0 && running_[i] != &needy;) {
    Sequence* const one = running_[i];
    if (one->full.blocks().empty()) continue;
    const int copied = one->remaining() == 0 ? 0 : one->computed;
    const std::pair<int, int> cost(can_swap_out(*one) ? 0 : copied, copied);
    if (least != nullptr && cost >= least_cost) continue;
    least = one;
    least_cost = cost;
  }
  return least;
}

void Scheduler::preempt(Sequence& sequence) {
  if (sequence.chosen > 0) {
    budget_ += sequence.chosen;
    if (!sequence.decoding()) prompt_budget_ += sequence.chosen;
    sequence.chosen = 0;
    chosen_.erase(std::find(chosen_.begin(), chosen_.end(), &sequence));
  }
  const bool will_end = sequence.remaining() == 0;
  const bool swaps = !will_end && can_swap_out(sequence);
  if (swaps) {
    swap_out(sequence);
    ++counters_.preemptions_swap;
  } else {
    ++(will_end ? counters_.preemptions_costless : counters_.preemptions_recompute);
    counters_.tokens_lost += will_end ? 0 : sequence.computed;
  }
  leave_seat(sequence);
  sequence.stage = Sequence::Stage::kWaiting;
  if (!swaps) sequence.computed = sequence.settled = 0;
  wait_in_line(sequence);
  events_.push_back({.id = sequence.id,
                     .seating = swaps ? Event::Seating::kSwappedOut : Event::Seating::kPreempted});
}

// Copying is always cheaper than computing: where there is room it is done.
bool Scheduler::can_swap_out(const Sequence& sequence) const {
  const int blocks = full_pool_.blocks_for(sequence.computed);
  if (sequence.computes_every_token()) return false;
  return sequence.computed_for_sure() > 0 && blocks <= host_full_pool_.free_count() &&
         blocks - first_window_entry(sequence.computed_for_sure()) <=
             host_window_pool_.free_count();
}

// Steps run in order, so the copies see what the steps in flight have written, and the blocks may
// be handed out at once.
void Scheduler::swap_out(Sequence& sequence) {
  const size_t copies_before = copies_.size();
  const size_t end = static_cast<size_t>(full_pool_.blocks_for(sequence.computed));
  const auto copy = [&](kv::Group group, const kv::BlockTable& from, kv::BlockTable& to,
                        size_t first) {
    kv::BlockPool& host = pool(group, kv::Tier::kHost);
    // A block that an earlier swap has left there under the same name needs no other copy.
    std::vector<BlockId> blocks(end - first, kNoBlock);
    const size_t named = options_.prefix_cache
                             ? std::min(end, static_cast<size_t>(sequence.settled) /
                                                 static_cast<size_t>(capacity_.block_tokens))
                             : 0;
    for (size_t i = first; i < named; ++i) {
      blocks[i - first] = host.find(sequence.hashes[i]);
      if (blocks[i - first] != kNoBlock) host.share(blocks[i - first]);
    }
    std::vector<BlockId> taken;
    CHECK(host.take(static_cast<int>(std::count(blocks.begin(), blocks.end(), kNoBlock)), taken));
    size_t next = 0;
    for (size_t i = first; i < end; ++i) {
      if (blocks[i - first] != kNoBlock) continue;
      blocks[i - first] = taken[next++];
      copies_.push_back({.group = group,
                         .from_tier = kv::Tier::kDevice,
                         .to_tier = kv::Tier::kHost,
                         .from = from.blocks()[i],
                         .to = blocks[i - first]});
    }
    to.take_over(static_cast<int>(first), blocks);
  };
  copy(kv::Group::kFull, sequence.full, sequence.host_full, 0);
  copy(kv::Group::kWindow, sequence.window, sequence.host_window,
       static_cast<size_t>(first_window_entry(sequence.computed_for_sure())));
  ++swapped_out_count_;
  counters_.blocks_swapped_out += static_cast<int64_t>(copies_.size() - copies_before);
  if (copies_.size() == copies_before) return;
  swapped_out_.push_back(&sequence);
  ++sequence.in_flight;
}

// The step that copied it out is over. What a failed one has left in the host's memory is unknown:
// then the sequence is computed again.
void Scheduler::commit_swap(Sequence& sequence, bool failed) {
  --sequence.in_flight;
  if (sequence.stage == Sequence::Stage::kEnded) return forget_if_landed(sequence);
  CHECK(sequence.swapped_out());
  if (failed) {
    counters_.tokens_lost += sequence.computed;
    forget_host_copy(sequence);
    sequence.computed = sequence.settled = 0;
    return;
  }
  sequence.settled = sequence.computed;  // by earlier steps, which have succeeded too
  if (!options_.prefix_cache) return;
  name_blocks(sequence);
  for (int i = 0; i < sequence.settled / capacity_.block_tokens; ++i) {
    const size_t at = static_cast<size_t>(i);
    const kv::BlockPool::Rank rank = window_rank(sequence, i);
    const BlockId window = sequence.host_window.blocks()[at];
    host_full_pool_.remember(sequence.host_full.blocks()[at], sequence.hashes[at],
                             kv::BlockPool::Rank::kLasting);
    if (window != kNoBlock) host_window_pool_.remember(window, sequence.hashes[at], rank);
  }
}

void Scheduler::forget_host_copy(Sequence& sequence) {
  if (sequence.swapped_out()) --swapped_out_count_;
  sequence.host_full.clear();
  sequence.host_window.clear();
}

}  // namespace pelton::engine
