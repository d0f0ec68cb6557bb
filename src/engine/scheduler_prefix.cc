// How the scheduler finds finished work again: names of blocks, hits, pins.
#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "base/check.h"
#include "engine/scheduler.h"
#include "kv/landmarks.h"
#include "kv/prefix_match.h"

namespace pelton::engine {

namespace {

// Less is computed sooner than waited for.
constexpr int kSharedTokensMin = 64;

}  // namespace

void Scheduler::name_blocks(Sequence& sequence) const {
  const size_t block_tokens = static_cast<size_t>(capacity_.block_tokens);
  while ((sequence.hashes.size() + 1) * block_tokens <= sequence.tokens.size()) {
    const size_t at = sequence.hashes.size() * block_tokens;
    const kv::BlockHash parent = sequence.hashes.empty() ? sequence.origin : sequence.hashes.back();
    sequence.hashes.push_back(
        hasher_.extend(parent, std::span(sequence.tokens).subspan(at, block_tokens)));
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

Scheduler::Found Scheduler::find_by_name(Sequence& sequence) const {
  Found found;
  if (!options_.prefix_cache) return found;
  name_blocks(sequence);
  const size_t last =
      sequence.scores_prompt() ? sequence.scored.size() : sequence.tokens.size() - 1;
  const size_t usable = last / static_cast<size_t>(capacity_.block_tokens);
  const std::span<const kv::BlockHash> hashes = std::span(sequence.hashes).first(usable);
  const int blocks = kv::longest_hit({.hashes = hashes, .window_tokens = capacity_.window_tokens},
                                     kv::GroupPools{full_pool_, host_full_pool_},
                                     kv::GroupPools{window_pool_, host_window_pool_});
  const int first = kv::first_window_block(blocks, capacity_.window_tokens, capacity_.block_tokens);
  found.tokens = blocks * capacity_.block_tokens;
  for (int i = 0; i < blocks; ++i) {
    const kv::BlockHash& hash = hashes[static_cast<size_t>(i)];
    found.full.push_back(find_block(kv::Group::kFull, hash));
    if (i >= first) found.window.push_back(find_block(kv::Group::kWindow, hash));
  }
  return found;
}

// On the device if it is there, otherwise in the host's memory.
Scheduler::Found::Block Scheduler::find_block(kv::Group group, const kv::BlockHash& hash) const {
  const bool full = group == kv::Group::kFull;
  const BlockId here = (full ? full_pool_ : window_pool_).find(hash);
  if (here != kNoBlock) return {.tier = kv::Tier::kDevice, .block = here};
  return {.tier = kv::Tier::kHost,
          .block = (full ? host_full_pool_ : host_window_pool_).find(hash)};
}

// All that was computed, from the sequence's own copy; what is still on the device under its name
// comes from there.
Scheduler::Found Scheduler::find_swapped_out(Sequence& sequence) const {
  Found found{.by = Found::By::kSwap, .tokens = sequence.computed};
  const size_t named = options_.prefix_cache ? static_cast<size_t>(sequence.settled) /
                                                   static_cast<size_t>(capacity_.block_tokens)
                                             : 0;
  const auto find = [&](const kv::BlockPool& device, const kv::BlockTable& host,
                        std::vector<Found::Block>& blocks) {
    // There may be one more block, of a row that was deferred.
    const auto end = static_cast<size_t>(device.blocks_for(sequence.computed));
    for (size_t i = static_cast<size_t>(host.dropped_count()); i < end; ++i) {
      const BlockId here = i < named ? device.find(sequence.hashes[i]) : kNoBlock;
      blocks.push_back(here != kNoBlock
                           ? Found::Block{.tier = kv::Tier::kDevice, .block = here}
                           : Found::Block{.tier = kv::Tier::kHost, .block = host.blocks()[i]});
    }
  };
  find(full_pool_, sequence.host_full, found.full);
  find(window_pool_, sequence.host_window, found.window);
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
  const int blocks = full_pool_.blocks_for(tokens);
  const int first = first_window_entry(tokens);
  const auto serves = [&](const Sequence* one) {
    if (one->family != sequence.family || one->settled < tokens) return false;
    return one->window.dropped_count() <= first;
  };
  const auto sibling = std::find_if(running_.begin(), running_.end(), serves);
  if (sibling == running_.end()) return std::nullopt;
  Found found{.by = Found::By::kFork, .tokens = tokens};
  for (int i = 0; i < blocks; ++i) {
    const size_t at = static_cast<size_t>(i);
    const bool parts = (i + 1) * capacity_.block_tokens > tokens;
    found.full.push_back({.block = (*sibling)->full.blocks()[at], .will_be_written = parts});
    if (i < first) continue;
    found.window.push_back({.block = (*sibling)->window.blocks()[at], .will_be_written = parts});
  }
  return found;
}

// Whether a running sequence is about to compute what this one needs next: many that begin alike
// and come at once then cost one computation.
bool Scheduler::comes_soon(const Sequence& arriving, const Found& found) const {
  const size_t usable = (arriving.tokens.size() - 1) / static_cast<size_t>(capacity_.block_tokens);
  const size_t next = found.full.size();
  const size_t worth_waiting = static_cast<size_t>(full_pool_.blocks_for(kSharedTokensMin));
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
  const int window_first = static_cast<int>(found.full.size() - found.window.size());
  const bool full_copied = adopt_group(kv::Group::kFull, sequence.full, 0, found.full);
  const bool window_copied =
      adopt_group(kv::Group::kWindow, sequence.window, window_first, found.window);
  sequence.computed = found.tokens;
  // What is copied is not there before the step has succeeded.
  sequence.settled = full_copied || window_copied ? 0 : found.tokens;
  forget_host_copy(sequence);
}

// Whether any block is copied.
bool Scheduler::adopt_group(kv::Group group, kv::BlockTable& table, int first,
                            std::span<const Found::Block> found) {
  kv::BlockPool& device = pool(group, kv::Tier::kDevice);
  std::vector<BlockId> blocks;
  int missing = 0;
  // What is found is held before any is taken, which might be the same.
  for (const Found::Block& one : found) {
    if (one.is_shared()) device.share(one.block);
    missing += one.is_shared() ? 0 : 1;
  }
  std::vector<BlockId> taken;
  CHECK(device.take(missing, taken), "what is found must find room");
  size_t next = 0;
  for (const Found::Block& one : found) {
    if (one.is_shared()) {
      blocks.push_back(one.block);
      continue;
    }
    blocks.push_back(taken[next++]);
    copies_.push_back(
        {.group = group, .from_tier = one.tier, .from = one.block, .to = blocks.back()});
    ++(one.tier == kv::Tier::kHost ? counters_.blocks_swapped_in : counters_.blocks_forked);
  }
  table.take_over(first, blocks);
  return missing > 0;
}

// The steps up to `end` have succeeded: their whole blocks may be found by others from now on.
void Scheduler::settle(Sequence& sequence, int end) {
  const int before = sequence.settled / capacity_.block_tokens;
  const int after = end / capacity_.block_tokens;
  sequence.settled = end;
  if (!options_.prefix_cache || before == after) return;
  name_blocks(sequence);
  for (int i = before; i < after; ++i) {
    const size_t at = static_cast<size_t>(i);
    full_pool_.remember(sequence.full.blocks()[at], sequence.hashes[at],
                        kv::BlockPool::Rank::kLasting);
    const BlockId window = sequence.window.blocks()[at];
    if (window == kNoBlock) continue;  // it had left the window before the sequence was swapped out
    window_pool_.remember(window, sequence.hashes[at], window_rank(sequence, i));
  }
}

// Kept longer: what a query right after a landmark or near the prompt's end looks back into.
kv::BlockPool::Rank Scheduler::window_rank(const Sequence& sequence, int block) const {
  const int block_tokens = capacity_.block_tokens;
  const int end = (block + 1) * block_tokens;
  const int landmark_blocks = std::max(1, kv::kLandmarkTokens / block_tokens);
  const int landmark = (block / landmark_blocks + 1) * landmark_blocks * block_tokens;
  const bool before_landmark = end > landmark - capacity_.window_tokens + 1;
  const bool in_tail =
      end <= sequence.prompt_count &&
      end > sequence.prompt_count - capacity_.window_tokens - kv::kPromptTailTokens - block_tokens;
  return before_landmark || in_tail ? kv::BlockPool::Rank::kLasting : kv::BlockPool::Rank::kPassing;
}

// What is pinned is gone for everybody else, so it must leave room for the largest live request;
// otherwise the prompt is merely remembered.
void Scheduler::pin(Sequence& sequence) {
  const size_t whole = static_cast<size_t>(sequence.prompt_count / capacity_.block_tokens);
  name_blocks(sequence);
  const std::span<const kv::BlockHash> hashes = std::span(sequence.hashes).first(whole);
  const int blocks = kv::longest_hit({.hashes = hashes, .window_tokens = capacity_.window_tokens},
                                     full_pool_, window_pool_);
  const int first = kv::first_window_block(blocks, capacity_.window_tokens, capacity_.block_tokens);
  const int full_left = capacity_.full_block_count - pinned_full_ - blocks;
  const int window_left = capacity_.window_block_count - pinned_window_ - (blocks - first);
  for (const auto& [id, live] : sequences_) {
    if (live.stage == Sequence::Stage::kEnded) continue;
    if (full_pool_.blocks_for(live.computed_max()) > full_left) return;
    if (window_span(live) > window_left) return;
  }
  Pin& pin = pins_.emplace_back(full_pool_, window_pool_);
  std::vector<BlockId> full;
  std::vector<BlockId> window;
  for (int i = 0; i < blocks; ++i) {
    full.push_back(full_pool_.find(hashes[static_cast<size_t>(i)]));
    if (i >= first) window.push_back(window_pool_.find(hashes[static_cast<size_t>(i)]));
  }
  pin.full.adopt(0, full);
  pin.window.adopt(first, window);
  pinned_full_ = count_pinned(&Pin::full);
  pinned_window_ = count_pinned(&Pin::window);
}

// A block that several pins hold is one block less.
int Scheduler::count_pinned(kv::BlockTable Pin::*table) const {
  std::set<BlockId> blocks;
  for (const Pin& pin : pins_) {
    for (const BlockId block : (pin.*table).blocks()) {
      if (block != kNoBlock) blocks.insert(block);
    }
  }
  return static_cast<int>(blocks.size());
}

ExecutorCapacity Scheduler::unpinned_capacity() const {
  ExecutorCapacity capacity = capacity_;
  capacity.full_block_count -= pinned_full_;
  capacity.window_block_count -= pinned_window_;
  return capacity;
}

}  // namespace pelton::engine
