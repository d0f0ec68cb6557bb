// How the scheduler finds finished work again: names of blocks, hits, pins.
#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <utility>

#include "base/check.h"
#include "engine/scheduler.h"
#include "kv/prefix_checkpoints.h"
#include "kv/prefix_match.h"

namespace pelton::engine {

namespace {

// Less is computed sooner than waited for.
constexpr int kSharedTokensMin = 64;
// Of a model, at once; the server says so sooner (server/pinned_prefixes.h).
constexpr size_t kPinsMax = 64;

}  // namespace

// Of an adapter that acts from a position on, the blocks before that one's are the model's own. The
// first that is not says whose it is, and from where: with blocks of 16, position 40 is in the
// third.
kv::BlockHash Scheduler::parent_of_next(const Sequence& sequence) const {
  const kv::BlockHash& before =
      sequence.hashes.empty() ? sequence.first_parent : sequence.hashes.back();
  const request::AdapterRef& adapter = sequence.request.adapter;
  const auto first = static_cast<size_t>(adapter.acts_from / capacity_.block_tokens);
  if (adapter.acts_from == 0 || sequence.hashes.size() != first) return before;
  const auto identity = static_cast<uint64_t>(adapter.identity);
  const std::array<TokenId, 3> acts = {static_cast<TokenId>(identity),
                                       static_cast<TokenId>(identity >> 32), adapter.acts_from};
  return hasher_.extend(before, acts);
}

void Scheduler::name_blocks(Sequence& sequence) const {
  const size_t block_tokens = static_cast<size_t>(capacity_.block_tokens);
  while ((sequence.hashes.size() + 1) * block_tokens <= sequence.tokens.size()) {
    const size_t at = sequence.hashes.size() * block_tokens;
    sequence.hashes.push_back(hasher_.extend(parent_of_next(sequence),
                                             std::span(sequence.tokens).subspan(at, block_tokens)));
  }
}

// At least one token is always computed: its logits are what is sampled from.
Scheduler::Found Scheduler::look_up(Sequence& sequence) const {
  if (sequence.computes_every_token()) return {};
  if (sequence.swapped_out()) return find_swapped_out(sequence);
  Found found = find_by_name(sequence);
  std::optional<Found> fork = find_in_sibling(sequence);
  return fork && fork->tokens > found.tokens ? *std::move(fork) : std::move(found);
}

// Of the blocks that a hit may consist of.
std::span<const kv::BlockHash> Scheduler::usable_names(Sequence& sequence) const {
  name_blocks(sequence);
  const size_t last =
      sequence.scores_prompt() ? sequence.scored.size() : sequence.tokens.size() - 1;
  return std::span(sequence.hashes).first(last / static_cast<size_t>(capacity_.block_tokens));
}

Scheduler::Found Scheduler::find_by_name(Sequence& sequence) const {
  Found found;
  if (!options_.prefix_cache) return found;
  const std::span<const kv::BlockHash> hashes = usable_names(sequence);
  const auto [blocks, parts_at] =
      kv::longest_hit({.hashes = hashes, .furthest = kv::kHost}, pools_);
  found.tokens = blocks * capacity_.block_tokens;
  found.parts_at = parts_at * capacity_.block_tokens;
  found.block_count = blocks;
  found.groups.resize(pools_.group_count());
  for (int group = 0; group < pools_.group_count(); ++group) {
    for (int i = first_seen_block(group, found.tokens); i < blocks; ++i) {
      const kv::BlockPools::Place place =
          pools_.find(group, hashes[static_cast<size_t>(i)], kv::kHost);
      found.groups[group].push_back({.tier = place.tier, .block = place.block});
    }
  }
  return found;
}

// All that was computed, from the sequence's own copy; what is still on the device under its name
// comes from there.
Scheduler::Found Scheduler::find_swapped_out(Sequence& sequence) const {
  Found found{.by = Found::By::kSwap, .tokens = sequence.computed};
  const size_t named = options_.prefix_cache ? static_cast<size_t>(sequence.settled) /
                                                   static_cast<size_t>(capacity_.block_tokens)
                                             : 0;
  // There may be one more block, of a row that was deferred.
  found.block_count = blocks_for(sequence.computed);
  found.groups.resize(pools_.group_count());
  for (int group = 0; group < pools_.group_count(); ++group) {
    const kv::BlockPool& device = pools_.pool(group, kv::kDevice);
    const kv::BlockTable& swapped = sequence.swapped_tables[static_cast<size_t>(group)];
    const auto end = static_cast<size_t>(found.block_count);
    for (size_t i = static_cast<size_t>(swapped.dropped_count()); i < end; ++i) {
      const BlockId here = i < named ? device.find(sequence.hashes[i]) : kNoBlock;
      found.groups[group].push_back(
          here != kNoBlock
              ? Found::Block{.tier = kv::kDevice, .block = here}
              : Found::Block{.tier = sequence.swapped_tier, .block = swapped.blocks()[i]});
    }
  }
  return found;
}

const Sequence* Scheduler::running_sibling(const Sequence& sequence) const {
  if (sequence.family == kNoFamily) return nullptr;
  const Sequence* furthest = nullptr;
  for (const Sequence* one : running_) {
    if (one->family != sequence.family) continue;
    if (furthest == nullptr || one->settled > furthest->settled) furthest = one;
  }
  return furthest;
}

// Then it is worth waiting: the prompt costs one computation.
bool Scheduler::sibling_computes_prompt(const Sequence& sequence) const {
  if (sequence.swapped_out() || sequence.scores_prompt()) return false;
  const Sequence* const sibling = running_sibling(sequence);
  return sibling != nullptr && sibling->settled < sequence.prompt_count - 1;
}

// The prompt less its last token, which is computed once more: its logits are sampled from again,
// with another seed. Whole blocks are shared, the one that is filled in part is copied.
std::optional<Scheduler::Found> Scheduler::find_in_sibling(const Sequence& sequence) const {
  const int tokens = sequence.prompt_count - 1;
  if (sequence.family == kNoFamily || tokens == 0) return std::nullopt;
  if (sequence.scores_prompt()) return std::nullopt;
  const auto serves = [&](const Sequence* one) {
    if (one->family != sequence.family || one->settled < tokens) return false;
    for (int group = 0; group < pools_.group_count(); ++group) {
      if (one->tables[group].dropped_count() > first_seen_block(group, tokens)) return false;
    }
    return true;
  };
  const auto sibling = std::find_if(running_.begin(), running_.end(), serves);
  if (sibling == running_.end()) return std::nullopt;
  Found found{.by = Found::By::kFork, .tokens = tokens, .block_count = blocks_for(tokens)};
  found.groups.resize(pools_.group_count());
  for (int group = 0; group < pools_.group_count(); ++group) {
    const std::vector<BlockId>& blocks = (*sibling)->tables[group].blocks();
    for (int i = first_seen_block(group, tokens); i < found.block_count; ++i) {
      const bool parts = (i + 1) * capacity_.block_tokens > tokens;
      found.groups[group].push_back(
          {.block = blocks[static_cast<size_t>(i)], .will_be_written = parts});
    }
  }
  return found;
}

// Whether a running sequence is about to compute what this one needs next: many that begin alike
// and come at once then cost one computation.
bool Scheduler::comes_soon(const Sequence& arriving, const Found& found) const {
  const size_t usable = (arriving.tokens.size() - 1) / static_cast<size_t>(capacity_.block_tokens);
  const size_t next = static_cast<size_t>(found.block_count);
  const size_t worth_waiting = static_cast<size_t>(blocks_for(kSharedTokensMin));
  if (!options_.prefix_cache || found.by != Found::By::kName) return false;
  if (arriving.computes_every_token() || arriving.scores_prompt()) return false;
  if (next + worth_waiting > usable) return false;
  return std::any_of(running_.begin(), running_.end(), [&](const Sequence* running) {
    const size_t last = next + worth_waiting - 1;
    return running->hashes.size() > last && running->hashes[last] == arriving.hashes[last] &&
           static_cast<size_t>(running->settled) <
               (next + 1) * static_cast<size_t>(capacity_.block_tokens);
  });
}

void Scheduler::adopt(Sequence& sequence, const Found& found) {
  bool any_copied = false;
  hold_copied(found);
  for (int group = 0; group < found.groups.size(); ++group) {
    any_copied = adopt_group(group, sequence.tables[group], found) || any_copied;
  }
  release_copied(found);
  if (found.by == Found::By::kName) {
    sequence.parts_at = found.parts_at;
    keep_last_window(sequence);  // what was found is of use
  }
  sequence.computed = found.tokens;
  // What is copied is not there before the step has succeeded.
  sequence.settled = any_copied ? 0 : found.tokens;
  forget_swapped(sequence);
}

// What is to be copied from a further tier is not to make room there for what the device evicts
// for it.
void Scheduler::hold_copied(const Found& found) {
  for (int group = 0; group < found.groups.size(); ++group) {
    for (const Found::Block& one : found.groups[group]) {
      if (one.tier != kv::kDevice) pools_.pool(group, one.tier).share(one.block);
    }
  }
}

void Scheduler::release_copied(const Found& found) {
  for (int group = 0; group < found.groups.size(); ++group) {
    // From the back, so that a prefix's last block is the first of them to be evicted.
    const auto& blocks = found.groups[group];
    for (auto one = blocks.rbegin(); one != blocks.rend(); ++one) {
      if (one->tier != kv::kDevice) pools_.pool(group, one->tier).give_back({&one->block, 1});
    }
  }
}

void Scheduler::count_prompt(const Sequence& sequence, const Found& found) {
  counters_.prompt_tokens += sequence.prompt_count;
  (found.by == Found::By::kFork ? counters_.prompt_tokens_shared
                                : counters_.prompt_tokens_cached) += sequence.cached;
  for (size_t tier = 0; found.by == Found::By::kName && tier < kv::kTierCount; ++tier) {
    counters_.prompt_tokens_cached_by_tier[tier] += sequence.cached_by_tier[tier];
  }
  counters_.prompt_tokens_from_peers += sequence.cached_from_peer;
}

// A block's tokens count for the furthest tier that any group has it from. What was read for the
// sequence comes from the disk, or from a peer, though it lies on the host by now.
kv::PerTier<int> Scheduler::count_by_tier(Sequence& sequence, const Found& found) const {
  kv::PerTier<int> tokens{};
  const auto was_read = [&](int block) {
    return sequence.load != nullptr && block >= sequence.load->near_blocks &&
           block < sequence.load->far_blocks;
  };
  const auto was_fetched = [&](int block) {
    return sequence.peer_load != nullptr && block >= sequence.peer_load->near_blocks &&
           block < sequence.peer_load->far_blocks;
  };
  sequence.cached_from_peer = 0;
  for (int i = 0; i < found.block_count; ++i) {
    kv::Tier furthest = kv::kDevice;
    for (const std::vector<Found::Block>& blocks : found.groups) {
      const int first = found.block_count - static_cast<int>(blocks.size());
      if (i >= first) furthest = std::max(furthest, blocks[static_cast<size_t>(i - first)].tier);
    }
    if (furthest == kv::kHost && was_read(i)) furthest = kv::kDisk;
    const int left = sequence.cached - i * capacity_.block_tokens;
    const int here = std::clamp(left, 0, capacity_.block_tokens);
    if (furthest == kv::kHost && was_fetched(i)) {
      sequence.cached_from_peer += here;
    } else {
      tokens[static_cast<size_t>(furthest)] += here;
    }
  }
  return tokens;
}

// Whether any block is copied.
bool Scheduler::adopt_group(int group, kv::BlockTable& table, const Found& found) {
  kv::BlockPool& device = pools_.pool(group, kv::kDevice);
  const std::vector<Found::Block>& found_blocks = found.groups[group];
  std::vector<BlockId> blocks;
  int missing = 0;
  // What is found is held before any is taken, which might be the same.
  for (const Found::Block& one : found_blocks) {
    if (one.is_shared()) device.share(one.block);
    missing += one.is_shared() ? 0 : 1;
  }
  std::vector<BlockId> taken;
  CHECK(device.take(missing, taken), "what is found must find room");
  offload_evicted();  // before the blocks are written
  size_t next = 0;
  for (const Found::Block& one : found_blocks) {
    if (one.is_shared()) {
      blocks.push_back(one.block);
      continue;
    }
    blocks.push_back(taken[next++]);
    copy_block({.group = group, .from_tier = one.tier, .from = one.block, .to = blocks.back()});
    ++(one.tier != kv::kDevice ? counters_.blocks_swapped_in : counters_.blocks_forked);
  }
  table.take_over(found.block_count - static_cast<int>(blocks.size()), blocks);
  return missing > 0;
}

// The steps up to `end` have succeeded: their whole blocks may be found by others from now on.
void Scheduler::settle(Sequence& sequence, int end) {
  const int before = sequence.settled / capacity_.block_tokens;
  const int after = end / capacity_.block_tokens;
  sequence.settled = end;
  if (!options_.prefix_cache || before == after) return;
  name_blocks(sequence);
  constexpr size_t kAhead = 4;
  for (int i = before; i < after; ++i) {
    const size_t at = static_cast<size_t>(i);
    for (int group = 0; group < pools_.group_count(); ++group) {
      const size_t soon = std::min(at + kAhead, sequence.hashes.size() - 1);
      pools_.pool(group, kv::kDevice).prefetch(sequence.hashes[soon]);
      const BlockId block = sequence.tables[group].blocks()[at];
      // It may have left the window before the sequence was swapped out.
      if (block == kNoBlock) continue;
      kv::BlockPool& pool = pools_.pool(group, kv::kDevice);
      pool.cache(block, sequence.hashes[at], rank_of(group, sequence, i));
      pool.set_owner(block, sequence.owner);
    }
  }
}

// Where every token is kept, every block is of use to others. Of a window those are kept longer
// that a query right after a prefix checkpoint, near the prompt's end, or where the prompt parts
// from others' looks back into. The last makes a hit of what many prompts begin with, wherever that
// ends: whoever finds its window blocks gone leaves them so that they last.
kv::BlockPool::EvictionPriority Scheduler::rank_of(int group, const Sequence& sequence,
                                                   int block) const {
  const kv::GroupSpec& spec = pools_.spec(group);
  if (!spec.slides()) return kv::BlockPool::EvictionPriority::kLast;
  const int block_tokens = capacity_.block_tokens;
  const int end = (block + 1) * block_tokens;
  const int checkpoint_blocks = std::max(1, kv::kPrefixCheckpointTokens / block_tokens);
  const int checkpoint = (block / checkpoint_blocks + 1) * checkpoint_blocks * block_tokens;
  const bool before_checkpoint = end > checkpoint - spec.sliding_window + 1;
  const bool in_tail =
      end <= sequence.prompt_count &&
      end > sequence.prompt_count - spec.sliding_window - kv::kPromptTailTokens - block_tokens;
  const bool before_parting =
      end <= sequence.parts_at && end > sequence.parts_at - spec.sliding_window + 1;
  return before_checkpoint || in_tail || before_parting ? kv::BlockPool::EvictionPriority::kLast
                                                        : kv::BlockPool::EvictionPriority::kFirst;
}

// What is pinned is gone for everybody else, so it must leave room for the largest live request;
// otherwise the prompt is merely cached.
void Scheduler::pin(Sequence& sequence) {
  if (pins_.size() >= kPinsMax) return;  // however many are asked for at once
  const size_t whole = static_cast<size_t>(sequence.prompt_count / capacity_.block_tokens);
  name_blocks(sequence);
  const std::span<const kv::BlockHash> hashes = std::span(sequence.hashes).first(whole);
  const int blocks = kv::longest_hit({.hashes = hashes, .furthest = kv::kDevice}, pools_).blocks;
  if (blocks == 0) return;  // erased meanwhile
  const auto first = [&](int group) {
    return first_seen_block(group, blocks * capacity_.block_tokens);
  };
  for (int group = 0; group < pools_.group_count(); ++group) {
    const int left =
        capacity_.blocks(group, kv::kDevice) - pinned_[group] - (blocks - first(group));
    for (const auto& [id, live] : sequences_) {
      if (live.stage == Sequence::Stage::kEnded) continue;
      if (blocks_wanted(live, group, live.computed_max()) > left) return;
    }
  }
  if (!leaves_room(first, blocks, sequence.request.pin_room_tokens)) return;
  sequence.pinned_tokens = blocks * capacity_.block_tokens;
  Pin& pin = pins_.emplace_back(Pin{.what = {.id = sequence.request.id,
                                             .tenant = sequence.request.tenant,
                                             .tokens = sequence.pinned_tokens},
                                    .tables = {}});
  for (int group = 0; group < pools_.group_count(); ++group) {
    kv::BlockPool& pool = pools_.pool(group, kv::kDevice);
    std::vector<BlockId> found;
    for (int i = first(group); i < blocks; ++i) {
      found.push_back(pool.find(hashes[static_cast<size_t>(i)]));
    }
    pin.tables.push_back(kv::BlockTable(pool));
    pin.tables.back().adopt(first(group), found);
  }
  note_pins();
}

// For a request of so many tokens that may come.
bool Scheduler::leaves_room(base::FunctionRef<int(int)> first, int blocks, int tokens) const {
  ExecutorCapacity left = unpinned_capacity();
  for (int group = 0; group < pools_.group_count(); ++group) {
    left.groups[group].block_counts[kv::kDevice] -= blocks - first(group);
    if (left.groups[group].block_counts[kv::kDevice] < 0) return false;
  }
  return tokens == 0 || left.sequence_tokens_max() >= tokens;
}

// Also of one that is still computed: whoever asked for it is gone.
void Scheduler::unpin(std::string_view id) {
  for (auto& [number, sequence] : sequences_) {
    if (sequence.request.id == id) sequence.request.pin_prefix = false;
  }
  unpin_if([&](const Pin& pin) { return pin.what.id == id; });
}

void Scheduler::unpin_if(base::FunctionRef<bool(const Pin&)> is_meant) {
  if (pins_.remove_if([&](const Pin& pin) { return is_meant(pin); }) > 0) note_pins();
}

void Scheduler::note_pins() {
  for (int group = 0; group < pools_.group_count(); ++group) pinned_[group] = count_pinned(group);
  auto prefixes = std::make_shared<std::vector<PinnedPrefix>>();
  for (const Pin& pin : pins_) prefixes->push_back(pin.what);
  pinned_prefixes_ = std::move(prefixes);
}

// A block that several pins hold is one block less.
int Scheduler::count_pinned(int group) const {
  std::set<BlockId> blocks;
  for (const Pin& pin : pins_) {
    for (const BlockId block : pin.tables[group].blocks()) {
      if (block != kNoBlock) blocks.insert(block);
    }
  }
  return static_cast<int>(blocks.size());
}

ExecutorCapacity Scheduler::unpinned_capacity() const {
  ExecutorCapacity capacity = capacity_;
  for (int group = 0; group < pinned_.size(); ++group) {
    capacity.groups[group].block_counts[kv::kDevice] -= pinned_[group];
  }
  return capacity;
}

}  // namespace pelton::engine
