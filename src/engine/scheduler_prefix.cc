// How the scheduler finds finished work again: names of blocks, hits, pins.
#include <algorithm>
#include <set>

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
Scheduler::Hit Scheduler::look_up(Sequence& sequence) const {
  Hit hit;
  if (!options_.prefix_cache) return hit;
  name_blocks(sequence);
  const size_t usable = (sequence.tokens.size() - 1) / static_cast<size_t>(capacity_.block_tokens);
  const std::span<const kv::BlockHash> hashes = std::span(sequence.hashes).first(usable);
  const int blocks = kv::longest_hit({.hashes = hashes, .window_tokens = capacity_.window_tokens},
                                     full_pool_, window_pool_);
  const int first = kv::first_window_block(blocks, capacity_.window_tokens, capacity_.block_tokens);
  for (int i = 0; i < blocks; ++i) {
    hit.full.push_back(full_pool_.find(hashes[static_cast<size_t>(i)]));
    if (i >= first) hit.window.push_back(window_pool_.find(hashes[static_cast<size_t>(i)]));
  }
  return hit;
}

// Whether a running sequence is about to compute what this one needs next: many that begin alike
// and come at once then cost one computation.
bool Scheduler::comes_soon(const Sequence& arriving, const Hit& hit) const {
  const size_t usable = (arriving.tokens.size() - 1) / static_cast<size_t>(capacity_.block_tokens);
  const size_t next = hit.full.size();
  const size_t worth_waiting = static_cast<size_t>(full_pool_.blocks_for(kSharedTokensMin));
  if (!options_.prefix_cache || next + worth_waiting > usable) return false;
  return std::any_of(running_.begin(), running_.end(), [&](const Sequence* running) {
    const size_t last = next + worth_waiting - 1;
    return running->hashes.size() > last && running->hashes[last] == arriving.hashes[last] &&
           static_cast<size_t>(running->settled) <
               (next + 1) * static_cast<size_t>(capacity_.block_tokens);
  });
}

void Scheduler::adopt(Sequence& sequence, const Hit& hit) {
  sequence.full.adopt(0, hit.full);
  sequence.window.adopt(static_cast<int>(hit.full.size() - hit.window.size()), hit.window);
  sequence.computed = static_cast<int>(hit.full.size()) * capacity_.block_tokens;
  sequence.settled = sequence.computed;
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
    window_pool_.remember(sequence.window.blocks()[at], sequence.hashes[at],
                          window_rank(sequence, i));
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
