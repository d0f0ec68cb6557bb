#include "gateway/prefix_index.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace pelton::gateway {
namespace {

constexpr size_t kSlotsMin = 64;

uint64_t key_of(const kv::BlockHash& name) {
  return name.low;
}

}  // namespace

PrefixIndex::PrefixIndex(size_t bytes_max)
    : slots_(std::bit_floor(std::max(bytes_max / sizeof(Slot), kSlotsMin))),
      size_max_(slots_.size() / 3 * 2) {}

PrefixIndex::Slot* PrefixIndex::find_slot(uint64_t key) {
  for (size_t at = home(key); slots_[at].count != 0; at = (at + 1) & (slots_.size() - 1)) {
    if (slots_[at].key == key) return &slots_[at];
  }
  return nullptr;
}

uint32_t PrefixIndex::list_of(const Slot& slot) const {
  return slot.workers[0] | static_cast<uint32_t>(slot.workers[1]) << 16;
}

std::span<const uint16_t> PrefixIndex::workers_of(const Slot& slot) const {
  if (slot.count == kListed) return lists_[list_of(slot)];
  return std::span(slot.workers).first(slot.count);
}

void PrefixIndex::make_list(Slot& slot) {
  uint32_t list = static_cast<uint32_t>(lists_.size());
  if (free_lists_.empty()) {
    lists_.emplace_back();
  } else {
    list = free_lists_.back();
    free_lists_.pop_back();
  }
  lists_[list].assign(std::begin(slot.workers), std::end(slot.workers));
  slot.workers[0] = static_cast<uint16_t>(list & 0xFFFF);
  slot.workers[1] = static_cast<uint16_t>(list >> 16);
  slot.count = kListed;
}

void PrefixIndex::free_list(Slot& slot) {
  const uint32_t list = list_of(slot);
  std::vector<uint16_t>().swap(lists_[list]);
  free_lists_.push_back(list);
}

void PrefixIndex::add(const kv::BlockHash& name, int worker) {
  CHECK(worker >= 0 && worker < kWorkersMax);
  const uint64_t key = key_of(name);
  const auto holder = static_cast<uint16_t>(worker);
  Slot* slot = find_slot(key);
  if (slot == nullptr) {
    if (size_ == size_max_) evict_one();
    size_t at = home(key);
    while (slots_[at].count != 0) at = (at + 1) & (slots_.size() - 1);
    slot = &slots_[at];
    *slot = {.key = key, .workers = {holder}, .count = 1, .used = true};
    ++size_;
    return;
  }
  slot->used = true;
  const std::span<const uint16_t> known = workers_of(*slot);
  if (std::ranges::find(known, holder) != known.end()) return;
  if (slot->count == kInPlace) make_list(*slot);
  if (slot->count == kListed) {
    lists_[list_of(*slot)].push_back(holder);
  } else {
    slot->workers[slot->count++] = holder;
  }
}

void PrefixIndex::remove(const kv::BlockHash& name, int worker) {
  Slot* slot = find_slot(key_of(name));
  if (slot == nullptr) return;
  const auto holder = static_cast<uint16_t>(worker);
  if (slot->count == kListed) {
    std::vector<uint16_t>& list = lists_[list_of(*slot)];
    std::erase(list, holder);
    if (!list.empty()) return;
    return erase(static_cast<size_t>(slot - slots_.data()));
  }
  uint16_t* const end = slot->workers + slot->count;
  if (std::remove(slot->workers, end, holder) == end) return;
  if (--slot->count == 0) {
    slot->count = 1;  // erase() takes one that is there
    erase(static_cast<size_t>(slot - slots_.data()));
  }
}

// Those behind it move up, so that no search ends at a hole (Knuth 6.4, algorithm R).
void PrefixIndex::erase(size_t at) {
  if (slots_[at].count == kListed) free_list(slots_[at]);
  const size_t mask = slots_.size() - 1;
  size_t hole = at;
  for (size_t next = (at + 1) & mask; slots_[next].count != 0; next = (next + 1) & mask) {
    // It may move if its home is not between the hole and itself.
    const size_t distance = (next - home(slots_[next].key)) & mask;
    if (distance < ((next - hole) & mask)) continue;
    slots_[hole] = slots_[next];
    hole = next;
  }
  slots_[hole] = {};
  --size_;
}

void PrefixIndex::evict_one() {
  for (;;) {
    const size_t at = hand_;
    hand_ = (hand_ + 1) & (slots_.size() - 1);
    Slot& slot = slots_[at];
    if (slot.count == 0) continue;
    if (slot.used) {
      slot.used = false;
      continue;
    }
    ++evictions_;
    return erase(at);
  }
}

void PrefixIndex::forget(int worker) {
  const auto holder = static_cast<uint16_t>(worker);
  for (size_t at = 0; at < slots_.size();) {
    Slot& slot = slots_[at];
    const size_t before = size_;
    if (slot.count != 0) {
      const std::span<const uint16_t> known = workers_of(slot);
      if (std::ranges::find(known, holder) != known.end()) {
        remove({.low = slot.key, .high = 0}, worker);
      }
    }
    if (size_ == before) ++at;  // otherwise another one has moved here
  }
}

std::span<const uint16_t> PrefixIndex::workers_with(const kv::BlockHash& name) {
  Slot* slot = find_slot(key_of(name));
  if (slot == nullptr) return {};
  slot->used = true;
  return workers_of(*slot);
}

bool PrefixIndex::holds(const kv::BlockHash& name, int worker) {
  return std::ranges::find(workers_with(name), static_cast<uint16_t>(worker)) !=
         workers_with(name).end();
}

void PrefixIndex::find(std::span<const kv::BlockHash> names, PrefixIndex* beside,
                       std::span<int> hits) {
  std::ranges::fill(hits, 0);
  std::vector<uint16_t> alive;  // hold every block so far
  const auto contains = [](std::span<const uint16_t> known, uint16_t worker) {
    return std::ranges::find(known, worker) != known.end();
  };
  for (size_t i = 0; i < names.size(); ++i) {
    const std::span<const uint16_t> known = workers_with(names[i]);
    const std::span<const uint16_t> more =
        beside == nullptr ? std::span<const uint16_t>() : beside->workers_with(names[i]);
    if (i == 0) {
      alive.assign(known.begin(), known.end());
      for (const uint16_t worker : more) {
        if (!contains(known, worker)) alive.push_back(worker);
      }
    } else {
      std::erase_if(alive, [&](uint16_t worker) {
        return !contains(known, worker) && !contains(more, worker);
      });
    }
    if (alive.empty()) return;
    for (const uint16_t worker : alive) {
      if (worker < hits.size()) hits[worker] = static_cast<int>(i) + 1;
    }
  }
}

}  // namespace pelton::gateway
