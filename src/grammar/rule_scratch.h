// What the machine notes while it follows rules at one place of a text (machine_rules.cc). Ways
// that are at the same state of a rule there have the same future: they are one arrival, whose
// parents are all that called. So a place costs no more than states times parents, however
// ambiguous the grammar is (Scott and Johnstone, GLL parsing, 2010). One thread; emptied for each
// place, its memory kept.
//
// Of root ::= "i" root | "i" root "e" root | "x" (whose else is it?), behind iiix: the innermost
// call returns to "an e may follow" (E) of the third i, which may also end; so the second and the
// first are at E as well, and the text may be over. The first i is of the root and the others of
// its callable copy (ebnf_network.h): one arrival at the root's E, one at the copy's E with two
// parents, and kDone: three tops; behind fifty i and an x still three, one of them with 49 parents.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace pelton::grammar {

// Numbers by pairs of numbers, emptied at no cost.
class PairMap {
 public:
  PairMap() : slots_(64) {}

  void clear() {
    size_ = 0;
    if (++epoch_ != 0) return;
    for (Slot& slot : slots_) slot.epoch = 0;
    epoch_ = 1;
  }
  // What stands at the pair; new ones get `value`. Tells through `is_new`, which was the case.
  struct Found {
    uint32_t value;
    bool is_new;
  };
  Found find_or_put(uint32_t a, uint32_t b, uint32_t value) {
    if (2 * size_ >= slots_.size()) grow();
    Slot& slot = slot_of(uint64_t{a} << 32 | b);
    if (slot.epoch == epoch_) return {slot.value, false};
    slot = {uint64_t{a} << 32 | b, value, epoch_};
    ++size_;
    return {value, true};
  }

 private:
  struct Slot {
    uint64_t key = 0;
    uint32_t value = 0;
    uint32_t epoch = 0;
  };
  Slot& slot_of(uint64_t key) {
    const size_t mask = slots_.size() - 1;
    size_t at = (key * 0x9e3779b97f4a7c15 >> 32) & mask;
    while (slots_[at].epoch == epoch_ && slots_[at].key != key) at = (at + 1) & mask;
    return slots_[at];
  }
  void grow() {
    std::vector<Slot> old(2 * slots_.size());
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.epoch == epoch_) slot_of(slot.key) = slot;
    }
  }

  std::vector<Slot> slots_;
  size_t size_ = 0;
  uint32_t epoch_ = 1;
};

struct RuleScratch {
  static constexpr uint32_t kNone = 0xffff'ffff;
  static constexpr uint32_t kPending = 0xffff'fffe;
  // A parent is a frame, or with this bit a call that is made at this very place.
  static constexpr uint32_t kCallBit = 0x4000'0000;
  // Instead of a state: the parent's child is done.
  static constexpr uint32_t kReturn = 0xffff'fffe;

  // Ways that are at one state.
  struct Arrival {
    uint32_t state = 0;
    uint32_t parents = kNone;  // the first in parent_links
    uint32_t calls_begin = 0;  // its own in `calls`
    uint32_t calls_end = 0;
    uint32_t parent = kNone;  // all parents, as frames say it; once asked for
  };
  struct Call {
    uint32_t arrival = 0;
    uint32_t to = 0;            // where the caller goes on
    uint32_t frame = kNone;     // once asked for
    bool has_returned = false;  // the called rule can be empty here
  };
  struct ParentLink {
    uint32_t parent = 0;
    uint32_t next = kNone;
  };

  void clear() {
    arrivals.clear();
    calls.clear();
    parent_links.clear();
    todo.clear();
    known.clear();
    places.clear();
  }

  std::vector<Arrival> arrivals;
  std::vector<Call> calls;
  std::vector<ParentLink> parent_links;
  std::vector<std::pair<uint32_t, uint32_t>> todo;  // state, parent
  PairMap known;                                    // states with parents that were met
  PairMap places;                                   // states to arrivals
  std::vector<uint32_t> recent_calls;  // frames by a hash of what they are; may be out of date
};

}  // namespace pelton::grammar
