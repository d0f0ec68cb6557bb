#include "engine/disk_tier.h"

#include <algorithm>

#include "base/check.h"
#include "kv/prefix_match.h"

namespace pelton::engine {

using kv::BlockId;
using kv::BlockPool;
using kv::kNoBlock;
using Direction = kv::BlockTransfer::Direction;
using Outcome = kv::TransferResult::Outcome;

namespace {

// Blocks that are waited for to be written: what is more is not worth its place in line.
constexpr size_t kWantedMax = 1 << 16;
constexpr int kWritesMax = 16;
// Looked at in one go.
constexpr int kLooksMax = 64;
// Reading has to be so much quicker than computing: both are estimates.
constexpr double kWorthwhile = 0.8;
constexpr int64_t kPatienceNs = 50'000'000;
constexpr int64_t kPatiencePerTokenNs = 250;
// A load that takes longer than that is waited for twice as long as it was expected to take, and
// never for more than half of what computing would take.
constexpr double kPatienceOfExpected = 2;
constexpr double kPatienceShare = 0.5;
// A disk that failed so often in a row is left alone for so long.
constexpr int kFailuresMax = 3;
constexpr int64_t kOffNs = 30'000'000'000;
// Likewise one of whose reads within so long more than one of a hundred, and more than one, took
// five times what a request waits for all of its blocks.
constexpr int64_t kWatchedNs = 10'000'000'000;
constexpr int64_t kSlowReadNs = 5 * kPatienceNs;
constexpr int64_t kSlowShare = 100;
constexpr int64_t kSlowReadsMin = 2;
// How often a disk that is too slow is asked whether it still is.
constexpr int64_t kProbeNs = 1'000'000'000;

// What was seen last counts a quarter; half if it is better, so that a bad time is soon forgotten.
void note(double& known, double seen) {
  known = known == 0 ? seen : known + (seen - known) / (seen < known ? 2 : 4);
}

}  // namespace

DiskTier::DiskTier(kv::BlockPools& pools) : pools_(pools) {
  for (int group = 0; group < pools.group_count(); ++group) {
    on_ = on_ || pools.pool(group, kv::kDisk).block_count() > 0;
  }
}

void DiskTier::adopt(std::span<const kv::BlockTransfers::Kept> kept) {
  // Blocks are numbered by slot: all are taken, and those that hold nothing given back.
  for (int group = 0; group < pools_.group_count(); ++group) {
    BlockPool& disk = pools_.pool(group, kv::kDisk);
    std::vector<BlockId> taken;
    CHECK(disk.take(disk.block_count(), taken));
    for (const kv::BlockTransfers::Kept& one : kept) {
      if (one.group != group || disk.find(one.name) != kNoBlock) continue;
      disk.cache(one.slot, one.name, BlockPool::EvictionPriority::kLast);
      disk.set_owner(one.slot, one.owner);
    }
    // The oldest is the first to be evicted: it is given back first.
    for (const kv::BlockTransfers::Kept& one : kept) {
      if (one.group == group && disk.ref_count(one.slot) > 0) disk.give_back({&one.slot, 1});
    }
    std::erase_if(taken, [&](BlockId slot) { return disk.ref_count(slot) == 0; });
    disk.give_back(taken);
  }
}

void DiskTier::want(const Wanted& wanted) {
  if (!on_) return;
  if (wanted_.size() >= kWantedMax) {
    ++counters_.writes_dropped;
    return;
  }
  wanted_.push_back(wanted);
}

void DiskTier::begin_writes(int64_t now_ns) {
  if (off(now_ns) || now_ns < full_until_ns_) {
    counters_.writes_dropped += static_cast<int64_t>(wanted_.size());
    wanted_.clear();
  }
  for (int looks = 0; looks < kLooksMax && reads_ == 0 && writes_ < kWritesMax; ++looks) {
    if (wanted_.empty()) return;
    const Wanted wanted = wanted_.front();
    wanted_.pop_front();
    BlockPool& disk = pools_.pool(wanted.group, kv::kDisk);
    const BlockId there = disk.find(wanted.name);
    if (there != kNoBlock) {
      disk.touch(there);
      continue;
    }
    if (transfer_of(wanted.group, wanted.name) != nullptr) continue;
    BlockPool& host = pools_.pool(wanted.group, kv::kHost);
    const BlockId block = host.find(wanted.name);
    if (block == kNoBlock) {
      const bool is_on_device =
          pools_.pool(wanted.group, kv::kDevice).find(wanted.name) != kNoBlock;
      if (is_on_device) uncopied_.push_back(wanted);
      continue;
    }
    std::vector<BlockId> taken;
    if (!disk.take(1, taken)) {
      ++counters_.writes_dropped;
      continue;
    }
    host.share(block);
    Transfer& transfer = begin({.direction = Direction::kWrite,
                                .group = wanted.group,
                                .host = block,
                                .slot = taken.front(),
                                .name = wanted.name,
                                .owner = wanted.owner});
    transfer.priority = wanted.priority;
  }
}

std::optional<DiskTier::Wanted> DiskTier::take_uncopied() {
  if (uncopied_.empty()) return std::nullopt;
  const Wanted wanted = uncopied_.front();
  uncopied_.pop_front();
  return wanted;
}

DiskTier::Transfer* DiskTier::transfer_of(int group, const kv::BlockHash& name) {
  const auto found = by_name_.find({group, name.low});
  if (found == by_name_.end()) return nullptr;
  Transfer& transfer = transfers_.at(found->second);
  return transfer.what.name == name ? &transfer : nullptr;
}

DiskTier::Transfer& DiskTier::begin(kv::BlockTransfer what) {
  what.id = next_id_++;
  begun_.push_back(what);
  by_name_[{what.group, what.name.low}] = what.id;
  if (what.direction == Direction::kRead) {
    ++reads_;
    bytes_to_read_ += pools_.spec(what.group).block_bytes;
  } else {
    ++writes_;
  }
  return transfers_.emplace(what.id, Transfer{.what = what, .waiters = {}}).first->second;
}

// Bytes that others have asked for come first.
bool DiskTier::pays(int64_t bytes, int tokens) const {
  if (read_ns_per_byte_ == 0 || computed_ns_per_token_ == 0) return true;
  const double reading = static_cast<double>(bytes + bytes_to_read_) * read_ns_per_byte_;
  return reading < kWorthwhile * tokens * computed_ns_per_token_;
}

std::unique_ptr<DiskTier::Load> DiskTier::load(std::span<const kv::BlockHash> hashes,
                                               int64_t now_ns) {
  if (!on_ || off(now_ns)) return nullptr;
  const int near = kv::longest_hit({.hashes = hashes, .furthest = kv::kHost}, pools_).blocks;
  const int far = kv::longest_hit({.hashes = hashes, .furthest = kv::kDisk}, pools_).blocks;
  if (far <= near) return nullptr;
  struct Read {
    int group;
    size_t index;
    kv::BlockPools::Place place;
  };
  std::vector<Read> reads;
  int64_t bytes = 0;
  for (int group = 0; group < pools_.group_count(); ++group) {
    int new_blocks = 0;
    const int first = kv::first_seen_block(far, pools_.spec(group), pools_.block_tokens());
    for (int i = first; i < far; ++i) {
      const auto at = static_cast<size_t>(i);
      const kv::BlockPools::Place place = pools_.find(group, hashes[at], kv::kDisk);
      if (place.tier == kv::kDevice) continue;
      reads.push_back({.group = group, .index = at, .place = place});
      if (place.tier != kv::kDisk || transfer_of(group, hashes[at]) != nullptr) continue;
      ++new_blocks;
      bytes += pools_.spec(group).block_bytes;
    }
    // Half of the host's memory is for others.
    const BlockPool& host = pools_.pool(group, kv::kHost);
    if (new_blocks > host.free_count() - host.block_count() / 2) return nullptr;
  }
  if (!pays(bytes, (far - near) * pools_.block_tokens())) {
    ++counters_.loads_declined;
    probe(hashes, far, now_ns);
    return nullptr;
  }
  ++counters_.loads;
  const double expected_ns = static_cast<double>(bytes + bytes_to_read_) * read_ns_per_byte_;
  auto load = std::make_unique<Load>(Load{.near_blocks = near,
                                          .far_blocks = far,
                                          .expected_ns = static_cast<int64_t>(expected_ns),
                                          .held = {}});
  // What is on the host is held before room is made there.
  for (const Read& read : reads) {
    if (read.place.tier != kv::kHost) continue;
    pools_.pool(read.group, kv::kHost).share(read.place.block);
    load->held.emplace_back(read.group, read.place.block);
  }
  for (const Read& read : reads) {
    if (read.place.tier != kv::kDisk) continue;
    Transfer* transfer = transfer_of(read.group, hashes[read.index]);
    if (transfer == nullptr)
      transfer = begin_read(read.group, hashes[read.index], read.place.block);
    if (transfer == nullptr || transfer->what.direction != Direction::kRead) continue;
    transfer->waiters.push_back(load.get());
    ++load->pending;
  }
  return load;
}

// Null: the host has no room after all.
DiskTier::Transfer* DiskTier::begin_read(int group, const kv::BlockHash& name, BlockId slot) {
  std::vector<BlockId> taken;
  if (!pools_.pool(group, kv::kHost).take(1, taken)) return nullptr;
  pools_.pool(group, kv::kDisk).share(slot);
  return &begin({.direction = Direction::kRead,
                 .group = group,
                 .host = taken.front(),
                 .slot = slot,
                 .name = name});
}

// A block that nobody waits for: it says how fast a slow disk is by now.
void DiskTier::probe(std::span<const kv::BlockHash> hashes, int far, int64_t now_ns) {
  if (now_ns - probed_ns_ < kProbeNs || reads_ > 0) return;
  for (int group = 0; group < pools_.group_count(); ++group) {
    const kv::BlockHash& last = hashes[static_cast<size_t>(far) - 1];
    const kv::BlockPools::Place place = pools_.find(group, last, kv::kDisk);
    if (place.tier != kv::kDisk || transfer_of(group, last) != nullptr) continue;
    probed_ns_ = now_ns;
    begin_read(group, last, place.block);
    return;
  }
}

void DiskTier::release(Load& load) {
  if (load.pending > 0) {
    for (auto& [id, transfer] : transfers_) std::erase(transfer.waiters, &load);
  }
  load.pending = 0;
  // From the back, so that a prefix's last block is the first of them to be evicted.
  for (auto held = load.held.rbegin(); held != load.held.rend(); ++held) {
    pools_.pool(held->first, kv::kHost).give_back({&held->second, 1});
  }
  load.held.clear();
}

int64_t DiskTier::patience_ns(const Load& load) const {
  const int64_t tokens = int64_t{load.far_blocks - load.near_blocks} * pools_.block_tokens();
  const auto expected = kPatienceOfExpected * static_cast<double>(load.expected_ns);
  const double computing = kPatienceShare * static_cast<double>(tokens) * computed_ns_per_token_;
  return std::max(kPatienceNs + kPatiencePerTokenNs * tokens,
                  static_cast<int64_t>(std::min(expected, computing)));
}

void DiskTier::finish(const kv::TransferResult& result, int64_t now_ns) {
  const auto found = transfers_.find(result.id);
  CHECK(found != transfers_.end(), "the result of a transfer that nobody asked for");
  const Transfer transfer = std::move(found->second);
  transfers_.erase(found);
  const kv::BlockTransfer& what = transfer.what;
  const auto named = by_name_.find({what.group, what.name.low});
  if (named != by_name_.end() && named->second == what.id) by_name_.erase(named);
  note_outcome(result, what, now_ns);
  BlockPool& host = pools_.pool(what.group, kv::kHost);
  BlockPool& disk = pools_.pool(what.group, kv::kDisk);
  const bool is_good = result.outcome == Outcome::kDone && !transfer.is_stale;
  if (what.direction == Direction::kWrite) {
    if (is_good) {
      disk.cache(what.slot, what.name, transfer.priority);
      disk.set_owner(what.slot, what.owner);
    }
  } else if (is_good) {
    host.cache(what.host, what.name, BlockPool::EvictionPriority::kLast);
    const BlockId block = host.find(what.name);  // another one, if it came there meanwhile
    host.set_owner(block, disk.owner(what.slot));
    for (Load* const load : transfer.waiters) {
      host.share(block);
      load->held.emplace_back(what.group, block);
    }
  } else if (disk.cached(what.slot)) {
    disk.uncache(what.slot);
  }
  for (Load* const load : transfer.waiters) --load->pending;
  disk.give_back({&what.slot, 1});
  host.give_back({&what.host, 1});
}

void DiskTier::drop_write(int64_t id) {
  const auto found = transfers_.find(id);
  CHECK(found != transfers_.end(), "a write that was not begun");
  const kv::BlockTransfer what = found->second.what;
  transfers_.erase(found);
  const auto named = by_name_.find({what.group, what.name.low});
  if (named != by_name_.end() && named->second == id) by_name_.erase(named);
  --writes_;
  ++counters_.writes_dropped;
  pools_.pool(what.group, kv::kDisk).give_back({&what.slot, 1});
  pools_.pool(what.group, kv::kHost).give_back({&what.host, 1});
}

void DiskTier::note_outcome(const kv::TransferResult& result, const kv::BlockTransfer& what,
                            int64_t now_ns) {
  const bool is_read = what.direction == Direction::kRead;
  const int64_t bytes = pools_.spec(what.group).block_bytes;
  --(is_read ? reads_ : writes_);
  if (is_read) bytes_to_read_ -= bytes;
  switch (result.outcome) {
    case Outcome::kDone:
      failures_ = 0;
      ++(is_read ? counters_.blocks_read : counters_.blocks_written);
      break;
    case Outcome::kCorrupt:
      ++counters_.blocks_corrupt;
      break;
    case Outcome::kFull:
      ++counters_.errors;
      full_until_ns_ = now_ns + kOffNs;
      break;
    case Outcome::kFailed:
      ++counters_.errors;
      if (++failures_ >= kFailuresMax) leave_alone(now_ns);
      break;
  }
  if (is_read && !off(now_ns) && is_slow(result, now_ns)) leave_alone(now_ns);
  // What writing takes says something until there is something better.
  const bool says_speed = result.outcome == Outcome::kDone && bytes > 0 && result.ns > 0;
  if (says_speed && (is_read || read_ns_per_byte_ == 0)) {
    note(read_ns_per_byte_, static_cast<double>(result.ns) / static_cast<double>(bytes));
  }
}

// What it answers after seconds it has answered, and is none the better for it.
bool DiskTier::is_slow(const kv::TransferResult& read, int64_t now_ns) {
  // Of a disk whose reads take longer than that, each behind the other, two are enough all the
  // same.
  const bool was_idle = now_ns - read.ns - watched_until_ns_ > kWatchedNs;
  const bool is_over = now_ns - watched_since_ns_ > kWatchedNs;
  if (is_over && (was_idle || watched_reads_ >= kSlowReadsMin)) {
    watched_since_ns_ = now_ns - std::min(read.ns, kWatchedNs);
    watched_reads_ = slow_reads_ = 0;
  }
  watched_until_ns_ = now_ns;
  ++watched_reads_;
  if (read.ns > kSlowReadNs) ++slow_reads_;
  return slow_reads_ >= kSlowReadsMin && slow_reads_ * kSlowShare > watched_reads_;
}

void DiskTier::leave_alone(int64_t now_ns) {
  failures_ = 0;
  watched_reads_ = slow_reads_ = 0;
  off_until_ns_ = now_ns + kOffNs;
  ++counters_.times_off;
}

void DiskTier::note_computed(int tokens, int64_t ns) {
  constexpr int kTellingTokens = 32;  // of fewer a step's fixed costs are most
  if (tokens < kTellingTokens || ns <= 0) return;
  note(computed_ns_per_token_, static_cast<double>(ns) / tokens);
}

void DiskTier::forget_all() {
  wanted_.clear();
  uncopied_.clear();
  by_name_.clear();
  for (auto& [id, transfer] : transfers_) transfer.is_stale = true;
}

void DiskTier::forget(uint64_t owner) {
  std::erase_if(wanted_, [&](const Wanted& one) { return one.owner == owner; });
  std::erase_if(uncopied_, [&](const Wanted& one) { return one.owner == owner; });
  for (auto& [id, transfer] : transfers_) {
    const kv::BlockTransfer& what = transfer.what;
    const bool is_read = what.direction == Direction::kRead;
    const uint64_t whose =
        is_read ? pools_.pool(what.group, kv::kDisk).owner(what.slot) : what.owner;
    if (whose != owner) continue;
    transfer.is_stale = true;
    by_name_.erase({what.group, what.name.low});
  }
}

}  // namespace pelton::engine
