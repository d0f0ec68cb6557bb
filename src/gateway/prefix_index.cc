#include "gateway/prefix_index.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace pelton::gateway {
namespace {

constexpr size_t kSlotsMin = 64;
constexpr size_t kAhead = 8;  // names that are fetched before they are looked up

uint64_t key_of(const kv::BlockHash& name) {
  return name.low;
}

// Of a tag.
uint16_t worker_of(uint16_t tag) {
  return tag & 0xFFF;
}

}  // namespace

PrefixIndex::PrefixIndex(size_t bytes_max)
    : slots_(std::bit_floor(std::max(bytes_max / sizeof(Slot), kSlotsMin))),
      generations_(kWorkersMax),
      forgets_(kWorkersMax),
      size_max_(slots_.size() / 3 * 2),
      held_(kWorkersMax) {}

PrefixIndex::Slot* PrefixIndex::find_slot(uint64_t key) {
  for (size_t at = home(key); slots_[at].count != 0; at = (at + 1) & (slots_.size() - 1)) {
    if (slots_[at].key == key) return &slots_[at];
  }
  return nullptr;
}

uint32_t PrefixIndex::list_of(const Slot& slot) const {
  return slot.tags[0] | static_cast<uint32_t>(slot.tags[1]) << 16;
}

std::span<const uint16_t> PrefixIndex::tags_of(const Slot& slot) const {
  if (slot.count == kListed) return lists_[list_of(slot)];
  return std::span(slot.tags).first(slot.count);
}

void PrefixIndex::make_list(Slot& slot) {
  uint32_t list = static_cast<uint32_t>(lists_.size());
  if (free_lists_.empty()) {
    lists_.emplace_back();
  } else {
    list = free_lists_.back();
    free_lists_.pop_back();
  }
  lists_[list].assign(std::begin(slot.tags), std::end(slot.tags));
  slot.tags[0] = static_cast<uint16_t>(list & 0xFFFF);
  slot.tags[1] = static_cast<uint16_t>(list >> 16);
  slot.count = kListed;
}

void PrefixIndex::free_list(Slot& slot) {
  const uint32_t list = list_of(slot);
  std::vector<uint16_t>().swap(lists_[list]);
  free_lists_.push_back(list);
}

void PrefixIndex::add(const kv::BlockHash& name, int worker) {
  CHECK(worker >= 0 && worker < kWorkersMax);
  ++updates_;
  const uint64_t key = key_of(name);
  const uint16_t added = tag(worker);
  Slot* slot = find_slot(key);
  if (slot != nullptr && sweep_left_ > 0 && clean(static_cast<size_t>(slot - slots_.data()))) {
    slot = nullptr;
  }
  if (slot == nullptr) {
    if (size_ == size_max_) evict_one();
    size_t at = home(key);
    while (slots_[at].count != 0) at = (at + 1) & (slots_.size() - 1);
    slot = &slots_[at];
    *slot = {.key = key, .tags = {added}, .count = 1, .used = true};
    ++size_;
    ++held_[static_cast<size_t>(worker)];
    return;
  }
  slot->used = true;
  const std::span<const uint16_t> known = tags_of(*slot);
  if (std::ranges::find(known, added) != known.end()) return;
  ++held_[static_cast<size_t>(worker)];
  if (slot->count == kInPlace) make_list(*slot);
  if (slot->count == kListed) {
    lists_[list_of(*slot)].push_back(added);
  } else {
    slot->tags[slot->count++] = added;
  }
}

template <typename Gone>
bool PrefixIndex::take_out(size_t at, const Gone& gone) {
  Slot& slot = slots_[at];
  if (slot.count == kListed) {
    std::vector<uint16_t>& list = lists_[list_of(slot)];
    std::erase_if(list, gone);
    if (!list.empty()) return false;
  } else {
    uint16_t* const end = slot.tags + slot.count;
    const auto left = static_cast<uint8_t>(std::remove_if(slot.tags, end, gone) - slot.tags);
    if (left > 0) {
      slot.count = left;
      return false;
    }
  }
  erase(at);
  return true;
}

void PrefixIndex::remove(const kv::BlockHash& name, int worker) {
  ++updates_;
  const Slot* slot = find_slot(key_of(name));
  if (slot == nullptr) return;
  const std::span<const uint16_t> known = tags_of(*slot);
  if (std::ranges::find(known, tag(worker)) == known.end()) return;
  --held_[static_cast<size_t>(worker)];
  take_out(static_cast<size_t>(slot - slots_.data()),
           [removed = tag(worker)](uint16_t one) { return one == removed; });
}

uint16_t PrefixIndex::tag(int worker) const {
  return static_cast<uint16_t>(generations_[static_cast<size_t>(worker)] << kWorkerBits | worker);
}

bool PrefixIndex::is_void(uint16_t tag) const {
  return generations_[worker_of(tag)] != tag >> kWorkerBits;
}

bool PrefixIndex::clean(size_t at) {
  return take_out(at, [this](uint16_t one) { return is_void(one); });
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
    move(next, hole);
    hole = next;
  }
  slots_[hole] = {};
  --size_;
}

// What has not been swept yet and moves to where that has been done is looked at all the same.
void PrefixIndex::move(size_t from, size_t to) {
  const size_t mask = slots_.size() - 1;
  slots_[to] = slots_[from];
  const auto is_unswept = [&](size_t at) { return ((at - sweep_at_) & mask) < sweep_left_; };
  if (!is_unswept(from) || is_unswept(to)) return;
  sweep_left_ = std::min(sweep_left_ + ((sweep_at_ - to) & mask), slots_.size());
  sweep_at_ = to;
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
    for (const uint16_t one : tags_of(slot)) {
      if (!is_void(one)) --held_[worker_of(one)];
    }
    return erase(at);
  }
}

void PrefixIndex::forget(int worker) {
  const auto at = static_cast<size_t>(worker);
  // Before a generation comes again nothing of it may be left.
  if (forgets_[at] == kGenerations - 1) sweep(slots_.size());
  ++forgets_[at];
  generations_[at] = static_cast<uint8_t>((generations_[at] + 1) % kGenerations);
  sweep_left_ = slots_.size();
  held_[at] = 0;
}

bool PrefixIndex::sweep(size_t slots_max) {
  for (size_t looked = 0; looked < slots_max && sweep_left_ > 0; ++looked) {
    // Where one is taken out another one may have come.
    while (slots_[sweep_at_].count != 0 && clean(sweep_at_)) {
    }
    sweep_at_ = (sweep_at_ + 1) & (slots_.size() - 1);
    if (--sweep_left_ == 0) std::ranges::fill(forgets_, 0);
  }
  return sweep_left_ == 0;
}

std::span<const uint16_t> PrefixIndex::tags_with(const kv::BlockHash& name) {
  Slot* slot = find_slot(key_of(name));
  if (slot == nullptr) return {};
  slot->used = true;
  return tags_of(*slot);
}

bool PrefixIndex::holds(const kv::BlockHash& name, int worker) {
  const std::span<const uint16_t> known = tags_with(name);
  return std::ranges::find(known, tag(worker)) != known.end();
}

// A worker that holds every block so far has as many hits as blocks were looked up: each holder is
// looked at once for each block, however many hold it. Example: hits 2 2 1 behind two blocks, the
// third is held by the first and the last worker: 3 2 1.
void PrefixIndex::find(std::span<const kv::BlockHash> names, PrefixIndex* beside,
                       std::span<int> hits) {
  std::ranges::fill(hits, 0);
  for (size_t i = 0; i < names.size(); ++i) {
    if (i + kAhead < names.size()) {
      prefetch(names[i + kAhead]);
      if (beside != nullptr) beside->prefetch(names[i + kAhead]);
    }
    const int so_far = static_cast<int>(i);
    bool any = false;
    for (PrefixIndex* const index : {this, beside}) {
      if (index == nullptr) continue;
      for (const uint16_t one : index->tags_with(names[i])) {
        const uint16_t worker = worker_of(one);
        if (worker >= hits.size() || hits[worker] != so_far || index->is_void(one)) continue;
        hits[worker] = so_far + 1;
        any = true;
      }
    }
    if (!any) return;
  }
}

}  // namespace pelton::gateway
