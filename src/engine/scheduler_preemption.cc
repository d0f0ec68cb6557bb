// How the scheduler makes room: whom it takes back, what is copied to a further tier meanwhile, and
// what becomes of the copy.
#include <algorithm>
#include <optional>
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
    if (!one->holds_blocks()) continue;
    const int copied = one->remaining() == 0 ? 0 : one->computed;
    const std::pair<int, int> cost(tier_for_swap(*one) ? 0 : copied, copied);
    if (least != nullptr && cost >= least_cost) continue;
    least = one;
    least_cost = cost;
  }
  return least;
}

void Scheduler::preempt(Sequence& sequence) {
  if (sequence.chosen > 0) {
    budget_ += sequence.chosen + sequence.draft_max;
    if (!sequence.decoding()) prompt_budget_ += sequence.chosen;
    sequence.chosen = 0;
    sequence.draft_max = 0;
    chosen_.erase(std::find(chosen_.begin(), chosen_.end(), &sequence));
  }
  const bool will_end = sequence.remaining() == 0;
  const std::optional<kv::Tier> tier = will_end ? std::nullopt : tier_for_swap(sequence);
  if (tier) {
    swap_out(sequence, *tier);
    ++counters_.preemptions_swap;
  } else {
    ++(will_end ? counters_.preemptions_costless : counters_.preemptions_recompute);
    counters_.tokens_lost += will_end ? 0 : sequence.computed;
  }
  release_slot(sequence);
  sequence.stage = Sequence::Stage::kWaiting;
  if (!tier) sequence.computed = sequence.settled = 0;
  wait_in_line(sequence);
  events_.push_back({.id = sequence.id,
                     .slot_allocation = tier ? Event::SlotAllocation::kSwappedOut
                                             : Event::SlotAllocation::kPreempted});
}

// Copying is always cheaper than computing: where there is room it is done, in the nearest tier.
std::optional<kv::Tier> Scheduler::tier_for_swap(const Sequence& sequence) const {
  if (sequence.computes_every_token() || sequence.computed_for_sure() <= 0) return std::nullopt;
  const int end = blocks_for(sequence.computed);
  for (kv::Tier tier = kv::kDevice + 1; tier <= kv::kHost; ++tier) {
    bool has_room = true;
    for (int group = 0; group < pools_.group_count(); ++group) {
      const int wanted = end - first_seen_block(group, sequence.computed_for_sure());
      has_room = has_room && wanted <= pools_.pool(group, tier).free_count();
    }
    if (has_room) return tier;
  }
  return std::nullopt;
}

// Steps run in order, so the copies see what the steps in flight have written, and the blocks may
// be handed out at once.
void Scheduler::swap_out(Sequence& sequence, kv::Tier tier) {
  const size_t copies_before = copies_.size();
  for (int group = 0; group < pools_.group_count(); ++group) {
    sequence.swapped_tables.push_back(copy_out(sequence, group, tier));
  }
  sequence.swapped_tier = tier;
  ++swapped_out_count_;
  counters_.blocks_swapped_out += static_cast<int64_t>(copies_.size() - copies_before);
  if (copies_.size() == copies_before) return;
  swapped_out_.push_back(&sequence);
  ++sequence.in_flight;
}

// What the sequence's next query sees in this group, and all after that.
kv::BlockTable Scheduler::copy_out(const Sequence& sequence, int group, kv::Tier tier) {
  kv::BlockPool& pool = pools_.pool(group, tier);
  const auto first = static_cast<size_t>(first_seen_block(group, sequence.computed_for_sure()));
  const auto end = static_cast<size_t>(blocks_for(sequence.computed));
  // A block that an earlier swap has left there under the same name needs no other copy.
  std::vector<BlockId> blocks(end - first, kNoBlock);
  const size_t named = options_.prefix_cache
                           ? std::min(end, static_cast<size_t>(sequence.settled) /
                                               static_cast<size_t>(capacity_.block_tokens))
                           : 0;
  for (size_t i = first; i < named; ++i) {
    blocks[i - first] = pool.find(sequence.hashes[i]);
    if (blocks[i - first] != kNoBlock) pool.share(blocks[i - first]);
  }
  std::vector<BlockId> taken;
  CHECK(pool.take(static_cast<int>(std::count(blocks.begin(), blocks.end(), kNoBlock)), taken));
  size_t next = 0;
  for (size_t i = first; i < end; ++i) {
    if (blocks[i - first] != kNoBlock) continue;
    blocks[i - first] = taken[next++];
    copy_block({.group = group,
                .from_tier = kv::kDevice,
                .to_tier = tier,
                .from = sequence.tables[group].blocks()[i],
                .to = blocks[i - first]});
  }
  kv::BlockTable table(pool);
  table.take_over(static_cast<int>(first), blocks);
  return table;
}

// The step that copied it out is over. What a failed one has left there is unknown: then the
// sequence is computed again.
void Scheduler::commit_swap(Sequence& sequence, bool failed) {
  --sequence.in_flight;
  if (sequence.stage == Sequence::Stage::kEnded) return forget_if_landed(sequence);
  CHECK(sequence.swapped_out());
  if (failed) {
    counters_.tokens_lost += sequence.computed;
    forget_swapped(sequence);
    sequence.computed = sequence.settled = 0;
    return;
  }
  sequence.settled = sequence.computed;  // by earlier steps, which have succeeded too
  if (!options_.prefix_cache) return;
  name_blocks(sequence);
  for (int i = 0; i < sequence.settled / capacity_.block_tokens; ++i) {
    const size_t at = static_cast<size_t>(i);
    for (int group = 0; group < pools_.group_count(); ++group) {
      const BlockId block = sequence.swapped_tables[static_cast<size_t>(group)].blocks()[at];
      if (block == kNoBlock) continue;
      kv::BlockPool& pool = pools_.pool(group, sequence.swapped_tier);
      pool.cache(block, sequence.hashes[at], rank_of(group, sequence, i));
      pool.set_owner(block, sequence.owner);
    }
  }
}

// What the device's pools have evicted so far in this plan is copied to the host's memory, where
// the next hits find it, while there is room that no sequence holds. Window blocks that no hit ends
// at are of no use there. Copies run in the order in which they are written down: this one comes
// before whatever writes the block.
void Scheduler::offload_evicted() {
  for (const kv::BlockPool::Eviction& evicted : pools_.take_evictions()) {
    if (evicted.priority == kv::BlockPool::EvictionPriority::kFirst) continue;
    kv::BlockPool& host = pools_.pool(evicted.group, kv::kHost);
    const BlockId known = host.find(evicted.hash);
    if (known != kNoBlock) {
      host.touch(known);
      continue;
    }
    offload(evicted,
            options_.disk_writes == kv::DiskWrites::kSelective ? ThenDisk::kNo : ThenDisk::kYes);
  }
}

void Scheduler::offload(const kv::BlockPool::Eviction& block, ThenDisk then_disk) {
  std::vector<BlockId> taken;
  if (!pools_.pool(block.group, kv::kHost).take(1, taken)) return;
  copy_block({.group = block.group,
              .from_tier = kv::kDevice,
              .to_tier = kv::kHost,
              .from = block.block,
              .to = taken.front()});
  offloads_.push_back({.group = block.group,
                       .block = taken.front(),
                       .hash = block.hash,
                       .owner = block.owner,
                       .then_disk = then_disk,
                       .priority = block.priority,
                       .epoch = epoch_});
  ++counters_.blocks_offloaded;
}

// The step that copied it is over: from now on it is found.
void Scheduler::commit_offload(const Offload& offload, bool failed) {
  kv::BlockPool& host = pools_.pool(offload.group, kv::kHost);
  if (!failed && offload.epoch == epoch_) {
    host.cache(offload.block, offload.hash, kv::BlockPool::EvictionPriority::kLast);
    if (host.cached(offload.block)) host.set_owner(offload.block, offload.owner);
    if (offload.then_disk == ThenDisk::kYes) {
      disk_.want({.group = offload.group,
                  .name = offload.hash,
                  .owner = offload.owner,
                  .priority = offload.priority});
    }
  }
  host.give_back({&offload.block, 1});
}

void Scheduler::forget_swapped(Sequence& sequence) {
  if (sequence.swapped_out()) --swapped_out_count_;
  sequence.swapped_tables.clear();
}

}  // namespace pelton::engine
