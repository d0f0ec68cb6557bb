#include "gateway/block_view.h"

#include <algorithm>
#include <utility>

namespace pelton::gateway {
namespace {

// Of the tables' bytes: a tail group keeps few blocks of a prompt, requests on their way are few.
constexpr size_t kWidestShare = 2;
constexpr size_t kTailShare = 4;
constexpr size_t kExpectedShare = 16;
constexpr size_t kDispatchedMax = 4096;
constexpr size_t kAhead = 8;  // names that are fetched before they are written
// From the end of what the widest group holds: an end that a window's blocks were kept for is found
// there or nowhere.
constexpr int kScannedMax = 256;

// A prompt that no worker takes is not named to its end.
constexpr size_t kBlocksMax = 65'536;

}  // namespace

std::vector<kv::BlockHash> block_names(const kv::BlockHasher& hasher,
                                       const kv::BlockHasher::Origin& origin,
                                       std::span<const TokenId> prompt, int block_tokens) {
  const auto block = static_cast<size_t>(block_tokens);
  std::vector<kv::BlockHash> names;
  kv::BlockHash parent = hasher.root(origin);
  for (size_t at = 0; at + block < prompt.size() && names.size() < kBlocksMax; at += block) {
    parent = hasher.extend(parent, prompt.subspan(at, block));
    names.push_back(parent);
  }
  return names;
}

BlockView::BlockView(size_t bytes_max)
    : widest_(bytes_max / kWidestShare),
      tail_(bytes_max / kTailShare),
      expected_(bytes_max / kExpectedShare),
      expected_tail_(bytes_max / kExpectedShare) {}

void BlockView::note_stored(int worker, Group group, const kv::BlockHash& name) {
  (group == Group::kWidest ? widest_ : tail_).add(name, worker);
}

void BlockView::note_removed(int worker, Group group, const kv::BlockHash& name) {
  (group == Group::kWidest ? widest_ : tail_).remove(name, worker);
}

void BlockView::note(const Event& event, const cluster::RoutedGroups& groups) {
  const bool is_widest = event.group == groups.widest;
  if (!is_widest && event.group != groups.tail) return;
  const Group group = is_widest ? Group::kWidest : Group::kTail;
  event.stored ? note_stored(event.worker, group, event.name)
               : note_removed(event.worker, group, event.name);
}

void BlockView::prefetch(const Event& event, const cluster::RoutedGroups& groups) const {
  if (event.group == groups.widest) widest_.prefetch(event.name);
  if (event.group == groups.tail) tail_.prefetch(event.name);
}

int64_t BlockView::expected_ns(double first_s) {
  constexpr double kMostS = 60;
  // Until what it holds by then has been said by its next report, or the one behind that: in
  // between nobody would know of it.
  constexpr double kSaidS = 0.25;
  return static_cast<int64_t>(std::min(2 * first_s + kSaidS, kMostS) * 1e9);
}

void BlockView::forget(int worker) {
  widest_.forget(worker);
  tail_.forget(worker);
  expected_.forget(worker);
  expected_tail_.forget(worker);
  std::erase_if(dispatched_, [&](const Expected& one) { return one.dispatch.worker == worker; });
}

void BlockView::sweep() {
  constexpr size_t kSlots = size_t{1} << 16;  // some hundred microseconds
  for (PrefixIndex* index : {&widest_, &tail_, &expected_, &expected_tail_}) {
    index->sweep(kSlots);
  }
}

size_t BlockView::bytes() const {
  return widest_.bytes() + tail_.bytes() + expected_.bytes() + expected_tail_.bytes();
}

std::span<const kv::BlockHash> BlockView::tail_of(std::span<const kv::BlockHash> names,
                                                  const Dispatch& dispatch) {
  return names.last(std::min(names.size(), static_cast<size_t>(dispatch.tail_blocks)));
}

void BlockView::expect(std::span<const kv::BlockHash> names, const Dispatch& dispatch) {
  expire(dispatch.now_ns);
  if (names.empty() || dispatched_.size() == kDispatchedMax) return;
  for (size_t i = 0; i < names.size(); ++i) {
    if (i + kAhead < names.size()) expected_.prefetch(names[i + kAhead]);
    expected_.add(names[i], dispatch.worker);
  }
  for (const kv::BlockHash& name : tail_of(names, dispatch)) {
    expected_tail_.add(name, dispatch.worker);
  }
  dispatched_.push_back({.dispatch = dispatch, .names = {names.begin(), names.end()}});
}

// In the order in which they were sent; one that was to be held for longer than those behind it
// keeps them back.
void BlockView::expire(int64_t now_ns) {
  while (!dispatched_.empty() && dispatched_.front().dispatch.until_ns <= now_ns) {
    const Expected over = std::move(dispatched_.front());
    dispatched_.pop_front();
    end_expectation(over);
  }
}

// What later ones to the same worker have too is still expected. Names are chains: what two prompts
// share is a beginning, and of the tail's blocks those that lie in both tails.
void BlockView::end_expectation(const Expected& over) {
  const auto& [dispatch, names] = over;
  const auto tail = tail_of(names, dispatch);
  const size_t tail_first = names.size() - tail.size();
  size_t shared = 0;
  std::vector<bool> in_tail(tail.size());
  for (const Expected& later : dispatched_) {
    if (later.dispatch.worker != dispatch.worker || later.names.front() != names.front()) continue;
    const auto [end, other] = std::ranges::mismatch(names, later.names);
    const auto count = static_cast<size_t>(end - names.begin());
    shared = std::max(shared, count);
    const size_t later_first = later.names.size() - tail_of(later.names, later.dispatch).size();
    for (size_t i = std::max(tail_first, later_first); i < count; ++i)
      in_tail[i - tail_first] = true;
  }
  for (size_t i = shared; i < names.size(); ++i) {
    if (i + kAhead < names.size()) expected_.prefetch(names[i + kAhead]);
    expected_.remove(names[i], dispatch.worker);
  }
  for (size_t i = 0; i < tail.size(); ++i) {
    if (!in_tail[i]) expected_tail_.remove(tail[i], dispatch.worker);
  }
}

void BlockView::find(std::span<const kv::BlockHash> names, int tail_blocks, int64_t now_ns,
                     std::span<int> hits) {
  expire(now_ns);
  widest_.find(names, &expected_, hits);
  if (tail_blocks == 0) return;
  for (size_t worker = 0; worker < hits.size(); ++worker) {
    if (hits[worker] == 0) continue;
    hits[worker] = with_tail(names, tail_blocks, static_cast<int>(worker), hits[worker]);
  }
}

// The longest prefix of at most `widest` blocks whose last `tail_blocks` the tail group holds
// too. Example: widest 10, tail 2, held 3 4 5 8: blocks 4 and 5 make a hit of 6.
int BlockView::with_tail(std::span<const kv::BlockHash> names, int tail_blocks, int worker,
                         int widest) {
  int end = widest;  // of the run of held blocks that is being looked at
  const int last = std::max(widest - kScannedMax, 0);
  for (int i = widest - 1; i >= last; --i) {
    const kv::BlockHash& name = names[static_cast<size_t>(i)];
    if (!tail_.holds(name, worker) && !expected_tail_.holds(name, worker)) {
      end = i;
    } else if (end - i == tail_blocks || i == 0) {
      return end;
    }
  }
  return 0;
}

}  // namespace pelton::gateway
