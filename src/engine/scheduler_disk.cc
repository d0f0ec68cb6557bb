// How the scheduler uses a disk: what is written there when, and what is read for whoever waits.
#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include "base/check.h"
#include "base/random.h"
#include "engine/pinned_at_start.h"
#include "engine/scheduler.h"

namespace pelton::engine {

namespace {

// Blocks that one plan copies to the host for the disk's sake: beside a step that is not seen.
constexpr int kCopiesForDiskMax = 16;

}  // namespace

void Scheduler::adopt_kept(const kv::BlockTransfers& disk) {
  CHECK(next_step_ == 0 && next_id_ == 0, "blocks of the disk after the first request");
  kept_on_ = &disk;
  if (options_.prefix_cache) disk_.adopt(disk.kept());
}

// Steps run in order, a disk does not wait for them: what a step that is not over copies from or to
// a block of the host, nobody may have written over meanwhile.
std::vector<kv::BlockTransfer> Scheduler::take_transfers() {
  for (const kv::BlockTransfer& begun : disk_.take_begun()) held_transfers_.push_back(begun);
  const auto waits = [&](const kv::BlockTransfer& what) {
    return is_copied(what.group, what.host);
  };
  const auto ready = std::stable_partition(held_transfers_.begin(), held_transfers_.end(), waits);
  std::vector<kv::BlockTransfer> transfers(ready, held_transfers_.end());
  held_transfers_.erase(ready, held_transfers_.end());
  return transfers;
}

// The disk would number them, and believe them later, as written behind what erases them. All, or
// one owner's.
void Scheduler::drop_held_writes(std::optional<uint64_t> owner) {
  for (const kv::BlockTransfer& begun : disk_.take_begun()) held_transfers_.push_back(begun);
  std::erase_if(held_transfers_, [&](const kv::BlockTransfer& held) {
    const bool is_dropped =
        held.direction == kv::BlockTransfer::Direction::kWrite && (!owner || held.owner == *owner);
    if (is_dropped) disk_.drop_write(held.id);
    return is_dropped;
  });
}

// Others than steps read and write the host's memory: what steps do there has to be known.
void Scheduler::watch_host_copies() {
  copied_in_.clear();
  for (int group = 0; group < pools_.group_count(); ++group) {
    const int blocks = pools_.pool(group, kv::kHost).block_count();
    copied_in_.push_back(std::vector<int64_t>(static_cast<size_t>(blocks), -1));
  }
}

// By a step that is not over.
bool Scheduler::is_copied(int group, BlockId host) const {
  const int64_t over = uncommitted_.empty() ? next_step_ : uncommitted_.front().step;
  return copied_in_[group][static_cast<size_t>(host)] >= over;
}

// In the plan that is being made.
void Scheduler::copy_block(const BlockCopy& copy) {
  copies_.push_back(copy);
  if (copied_in_.empty()) return;
  const auto note = [&](kv::Tier tier, BlockId block) {
    if (tier == kv::kHost) copied_in_[copy.group][static_cast<size_t>(block)] = next_step_;
  };
  note(copy.from_tier, copy.from);
  note(copy.to_tier, copy.to);
}

void Scheduler::advance_disk() {
  disk_.begin_writes(now_ns_);
  copy_for_disk();
}

void Scheduler::copy_for_disk() {
  for (int i = 0; i < kCopiesForDiskMax; ++i) {
    const std::optional<DiskTier::Wanted> wanted = disk_.take_uncopied();
    if (!wanted) return;
    const BlockId block = pools_.pool(wanted->group, kv::kDevice).find(wanted->name);
    if (block == kNoBlock) continue;  // evicted meanwhile
    offload({.group = wanted->group,
             .block = block,
             .hash = wanted->name,
             .priority = wanted->priority,
             .owner = wanted->owner},
            ThenDisk::kYes);
  }
}

// Of what an ended sequence leaves in the cache: all, or what was found there when it came, which
// is of use more than once. Of window blocks those that a hit may look back into.
void Scheduler::want_on_disk(const Sequence& sequence) {
  if (!options_.prefix_cache || options_.disk_writes == kv::DiskWrites::kEvicted) return;
  const bool all = options_.disk_writes == kv::DiskWrites::kAll;
  const int tokens = all ? sequence.settled : std::min(sequence.cached, sequence.settled);
  const int end =
      std::min(tokens / capacity_.block_tokens, static_cast<int>(sequence.hashes.size()));
  for (int group = 0; group < pools_.group_count(); ++group) {
    const int last_window = first_seen_block(group, end * capacity_.block_tokens);
    for (int i = 0; i < end; ++i) {
      const kv::BlockPool::EvictionPriority priority = rank_of(group, sequence, i);
      const bool is_of_use = i >= last_window || priority == kv::BlockPool::EvictionPriority::kLast;
      if (!is_of_use) continue;
      disk_.want({.group = group,
                  .name = sequence.hashes[static_cast<size_t>(i)],
                  .owner = sequence.owner,
                  .priority = priority});
    }
  }
}

// What is found a second time on the host is worth a place on the disk.
void Scheduler::note_disk_hit(const Sequence& sequence, const Found& found) {
  if (options_.disk_writes != kv::DiskWrites::kSelective || found.by != Found::By::kName) return;
  for (int group = 0; group < found.groups.size(); ++group) {
    const std::vector<Found::Block>& blocks = found.groups[group];
    const auto first = static_cast<size_t>(found.block_count) - blocks.size();
    for (size_t i = 0; i < blocks.size(); ++i) {
      if (blocks[i].tier != kv::kHost) continue;
      disk_.want({.group = group, .name = sequence.hashes[first + i], .owner = sequence.owner});
    }
  }
}

// A sequence is looked up when it comes, so that waiting hides reading, and once more when it is
// next. It waits for what is read for it, but not for long; what came too late is computed.
bool Scheduler::waits_for_disk(Sequence& sequence) {
  if (sequence.load == nullptr && !sequence.looked_on_disk) begin_load(sequence);
  sequence.looked_on_disk = true;
  DiskTier::Load* const load = sequence.load.get();
  if (load == nullptr || load->pending == 0) return false;
  if (load->give_up_ns == 0) load->give_up_ns = now_ns_ + disk_.patience_ns(*load);
  if (now_ns_ < load->give_up_ns) return true;
  disk_.note_late();
  load->far_blocks = load->near_blocks;
  return false;
}

void Scheduler::begin_load(Sequence& sequence) {
  if (!options_.prefix_cache || sequence.computes_every_token() || sequence.swapped_out()) return;
  sequence.load = disk_.load(usable_names(sequence), now_ns_);
}

void Scheduler::release_load(Sequence& sequence) {
  sequence.looked_on_disk = false;
  if (sequence.load == nullptr) return;
  disk_.release(*sequence.load);
  sequence.load = nullptr;
}

// Pinned blocks keep their names: whoever asked for them asked for them for good.
void Scheduler::reset_prefix_cache() {
  ++epoch_;
  struct Pinned {
    int group;
    BlockId block;
    kv::BlockHash name;
    uint64_t owner;
  };
  std::vector<Pinned> pinned;
  for (const Pin& pin : pins_) {
    for (int group = 0; group < pools_.group_count(); ++group) {
      const kv::BlockPool& pool = pools_.pool(group, kv::kDevice);
      for (const BlockId block : pin.tables[group].blocks()) {
        if (block != kNoBlock && pool.cached(block))
          pinned.push_back({group, block, pool.name(block), pool.owner(block)});
      }
    }
  }
  for (int group = 0; group < pools_.group_count(); ++group) {
    for (kv::Tier tier = kv::kDevice; tier < kv::kTierCount; ++tier) {
      pools_.pool(group, tier).evict_all();
    }
  }
  for (const Pinned& one : pinned) {
    kv::BlockPool& pool = pools_.pool(one.group, kv::kDevice);
    pool.cache(one.block, one.name, kv::BlockPool::EvictionPriority::kLast);
    pool.set_owner(one.block, one.owner);
  }
  drop_held_writes(std::nullopt);
  disk_.forget_all();
  peer_tier_.forget_all();
}

// A disk knows tenants by numbers of its key's.
uint64_t Scheduler::owner_of(std::string_view tenant) const {
  return kept_on_ != nullptr ? kept_on_->owner_of(tenant) : base::fnv1a64(tenant);
}

// What is on its way from peers is forgotten whosever it is: it is computed again at worst.
void Scheduler::erase_tenant(std::string_view tenant) {
  ++epoch_;
  const uint64_t owner = owner_of(tenant);
  unpin_if(
      [&](const Pin& pin) { return pin.what.tenant == tenant && pin.what.id != kPinnedAtStart; });
  // What was pinned when the server started is its operator's, and no tenant's.
  std::vector<std::set<BlockId>> of_start(static_cast<size_t>(pools_.group_count()));
  for (const Pin& pin : pins_) {
    for (int group = 0; pin.what.id == kPinnedAtStart && group < pools_.group_count(); ++group) {
      const auto& blocks = pin.tables[group].blocks();
      of_start[static_cast<size_t>(group)].insert(blocks.begin(), blocks.end());
    }
  }
  for (int group = 0; group < pools_.group_count(); ++group) {
    for (kv::Tier tier = kv::kDevice; tier < kv::kTierCount; ++tier) {
      kv::BlockPool& pool = pools_.pool(group, tier);
      for (BlockId block = 0; block < pool.block_count(); ++block) {
        const bool is_of_start =
            tier == kv::kDevice && of_start[static_cast<size_t>(group)].contains(block);
        if (is_of_start) continue;
        if (pool.cached(block) && pool.owner(block) == owner) pool.uncache(block);
      }
    }
  }
  drop_held_writes(owner);
  disk_.forget(owner);
  peer_tier_.forget_all();
}

}  // namespace pelton::engine
