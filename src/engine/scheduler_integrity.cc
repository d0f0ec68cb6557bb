// What a scheduler holds, and what must be true of it between any two calls.
#include <algorithm>

#include "base/check.h"
#include "engine/scheduler.h"

namespace pelton::engine {

Ledger Scheduler::ledger() const {
  Ledger ledger;
  for (kv::Tier tier = kv::kDevice; tier < kv::kTierCount; ++tier) {
    for (int group = 0; group < pools_.group_count(); ++group) {
      const kv::BlockPool& pool = pools_.pool(group, tier);
      ledger.blocks[static_cast<size_t>(tier)].push_back(
          {.total = pool.block_count(),
           .free = pool.empty_count(),
           .kept = pool.unreferenced_count(),
           .held = pool.used_count(),
           .pinned = tier == kv::kDevice ? pinned_[group] : 0});
    }
  }
  ledger.prefixes = pinned_prefixes_;
  ledger.running = running_count();
  ledger.waiting = waiting_count();
  ledger.swapped_out = swapped_out_count();
  ledger.draining = static_cast<int>(sequences_.size()) - ledger.running - ledger.waiting;
  ledger.slots_free = static_cast<int>(free_slots_.size());
  ledger.pooled_slots_free = static_cast<int>(free_pooled_slots_.size());
  ledger.steps_in_flight = static_cast<int>(uncommitted_.size());
  return ledger;
}

namespace {

// How often each block of each pool is in a table.
class TableEntries {
 public:
  explicit TableEntries(const kv::BlockPools& pools) : pools_(pools) {
    for (kv::Tier tier = kv::kDevice; tier < kv::kTierCount; ++tier) {
      for (int group = 0; group < pools.group_count(); ++group) {
        counts_[static_cast<size_t>(tier)].push_back(
            std::vector<int>(static_cast<size_t>(pools.pool(group, tier).block_count()), 0));
      }
    }
  }

  void add(int group, kv::Tier tier, const kv::BlockTable& table) {
    std::vector<int>& counts = counts_[static_cast<size_t>(tier)][group];
    for (const BlockId block : table.blocks()) {
      if (block != kNoBlock) ++counts[static_cast<size_t>(block)];
    }
  }

  void add(int group, kv::Tier tier, BlockId block) {
    ++counts_[static_cast<size_t>(tier)][group][static_cast<size_t>(block)];
  }

  void check() const {
    for (kv::Tier tier = kv::kDevice; tier < kv::kTierCount; ++tier) {
      for (int group = 0; group < pools_.group_count(); ++group) {
        const std::vector<int>& counts = counts_[static_cast<size_t>(tier)][group];
        const kv::BlockPool& pool = pools_.pool(group, tier);
        for (size_t i = 0; i < counts.size(); ++i) {
          CHECK(counts[i] == pool.ref_count(static_cast<BlockId>(i)),
                kv::pool_name(pools_.spec(group), tier) + " block lost");
        }
      }
    }
  }

 private:
  const kv::BlockPools& pools_;
  kv::PerTier<kv::PerGroup<std::vector<int>>> counts_;
};

}  // namespace

void Scheduler::check_integrity() const {
  pools_.check_integrity();
  TableEntries entries(pools_);
  check_slots();
  for (const Sequence* sequence : running_) {
    for (int group = 0; group < pools_.group_count(); ++group) {
      entries.add(group, kv::kDevice, sequence->tables[group]);
    }
    check_settled(*sequence);
  }
  for (int group = 0; group < pools_.group_count(); ++group) {
    for (const Pin& pin : pins_) entries.add(group, kv::kDevice, pin.tables[group]);
    CHECK(count_pinned(group) == pinned_[group]);
  }
  for (const UncommittedStep& step : uncommitted_) {
    for (const Offload& one : step.offloads) entries.add(one.group, kv::kHost, one.block);
  }
  disk_.each_held(
      [&](int group, kv::Tier tier, BlockId block) { entries.add(group, tier, block); });
  peer_tier_.each_held(
      [&](int group, kv::Tier tier, BlockId block) { entries.add(group, tier, block); });
  for (const auto& [id, sequence] : sequences_) {
    if (sequence.peer_load == nullptr) continue;
    for (const auto& [group, block] : sequence.peer_load->held) {
      entries.add(group, kv::kHost, block);
    }
  }
  for (const auto& [id, sequence] : sequences_) {
    if (sequence.load == nullptr) continue;
    for (const auto& [group, block] : sequence.load->held) entries.add(group, kv::kHost, block);
  }
  CHECK(std::is_sorted(running_.begin(), running_.end(), Earlier{}));
  int waiting = 0;
  int swapped_out = 0;
  for (const auto& [id, sequence] : sequences_) {
    if (sequence.stage != Sequence::Stage::kWaiting) {
      CHECK(!sequence.swapped_out(), "a copy of what is on the device, or of nothing");
      continue;
    }
    if (sequence.swapped_out()) ++swapped_out;
    for (size_t i = 0; i < sequence.swapped_tables.size(); ++i) {
      entries.add(static_cast<int>(i), sequence.swapped_tier, sequence.swapped_tables[i]);
    }
    CHECK(sequence.swapped_out() == (sequence.computed > 0));
    for (const kv::BlockTable& table : sequence.tables) CHECK(table.blocks().empty());
    if (!only_fetches(sequence)) ++waiting;
  }
  CHECK(swapped_out == swapped_out_count_);
  CHECK(waiting == queue_.waiting_count(), "somebody waits who is not in line");
  entries.check();
  if (uncommitted_.empty()) {
    const auto fetching =
        std::ranges::count_if(sequences_, [](const auto& one) { return only_fetches(one.second); });
    CHECK(sequences_.size() == running_.size() + static_cast<size_t>(waiting + fetching),
          "a sequence is lost");
  }
}

void Scheduler::check_slots() const {
  std::vector<bool> slots(static_cast<size_t>(capacity_.slot_count()), false);
  const auto count_free = [&](const std::vector<Slot>& free, bool pooled) {
    for (const Slot slot : free) {
      CHECK(!slots[static_cast<size_t>(slot)], "a slot is free twice");
      CHECK((slot >= capacity_.sequences_max) == pooled, "a slot of another kind");
      slots[static_cast<size_t>(slot)] = true;
    }
  };
  count_free(free_slots_, false);
  count_free(free_pooled_slots_, true);
  for (const Sequence* sequence : running_) {
    CHECK(sequence->stage == Sequence::Stage::kRunning);
    CHECK(!slots[static_cast<size_t>(sequence->slot)], "a slot is taken twice");
    slots[static_cast<size_t>(sequence->slot)] = true;
  }
  CHECK(std::find(slots.begin(), slots.end(), false) == slots.end(), "a slot is lost");
}

// Nothing is promised as computed that is not, and every block that the next query sees is there.
void Scheduler::check_settled(const Sequence& sequence) const {
  CHECK(sequence.settled <= sequence.computed);
  CHECK(sequence.in_flight > 0 || sequence.settled == sequence.computed, "a step was not settled");
  for (int group = 0; group < pools_.group_count(); ++group) {
    const std::vector<BlockId>& blocks = sequence.tables[group].blocks();
    CHECK(static_cast<int>(blocks.size()) * capacity_.block_tokens >= sequence.computed);
    for (int i = first_seen_block(group, sequence.computed); i < blocks_for(sequence.computed);
         ++i) {
      CHECK(blocks[static_cast<size_t>(i)] != kNoBlock, "a block that is seen is missing");
    }
  }
}

}  // namespace pelton::engine
