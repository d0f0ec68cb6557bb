// Counters of one array together (`contains`): which of them an item counts for is a matter of its
// value, so that each being within reach does not say that all are. Of arrays of two items that
// contain a 1 and contain a 2, the second item must be what the first is not; where at most one
// item may be below 3, no further one may be a 2 once there is a 1; and of places that differ
// (`prefixItems`) not each may have what counts.
//
// Of the first: counts of a 1 and of a 2 have the states 0: none, 1: a 1, 2: a 2, 3: both. No value
// counts for both, so items_needed is {2, 1, 1, 0}. A first item that counts for neither leads to
// state 0, which needs 2 items where only one may follow: it is not allowed.
#include <algorithm>

#include "grammar/schema_tables.h"

namespace pelton::grammar {
namespace {

constexpr uint64_t kCellsMax = 1 << 16;

bool is_bounded(const Counter& counter) {
  return counter.max != 0xffff;
}

// Bits of the counters that have a maximum.
uint32_t bounded_of(const ArraySpec& array) {
  uint32_t bounded = 0;
  for (size_t i = 0; i < array.counters.size(); ++i) {
    if (is_bounded(array.counters[i])) bounded |= 1u << i;
  }
  return bounded;
}

// Which counters an item in that place can count for, one mask a choice.
std::vector<uint32_t> masks_of(const Choices& choices) {
  std::vector<uint32_t> masks;
  for (const Choice& choice : choices) masks.push_back(choice.counts);
  std::sort(masks.begin(), masks.end());
  masks.erase(std::unique(masks.begin(), masks.end()), masks.end());
  return masks;
}

struct Counted {
  uint64_t counts = 0;  // 16 bits each
  uint64_t items = 0;
};

// What a state of ArraySpec::count_state stands for.
Counted counted_in(const ArraySpec& array, uint64_t state) {
  Counted counted;
  for (size_t i = 0; i < array.counters.size(); ++i) {
    const Counter& counter = array.counters[i];
    const uint64_t states = (is_bounded(counter) ? counter.max : counter.min) + 1;
    counted.counts |= state % states << (16 * i);
    state /= states;
  }
  counted.items = state;
  return counted;
}

bool may_end(const ArraySpec& array, const Counted& counted) {
  if (array.counts_items && counted.items < array.items_min) return false;
  for (size_t i = 0; i < array.counters.size(); ++i) {
    if ((counted.counts >> (16 * i) & 0xffff) < array.counters[i].min) return false;
  }
  return true;
}

// With one more item that counts for `mask`; nothing where that is too many.
std::optional<Counted> with_item(const ArraySpec& array, Counted counted, uint32_t mask) {
  for (size_t i = 0; i < array.counters.size(); ++i) {
    if ((mask >> i & 1) == 0) continue;
    if ((counted.counts >> (16 * i) & 0xffff) >= array.counters[i].max) return std::nullopt;
    counted.counts += uint64_t{1} << (16 * i);
  }
  ++counted.items;
  return counted;
}

// One row of ArraySpec::items_needed: of an item of one of `masks` and what `next`, the row of the
// place behind it, says. Without `next` that is the row itself.
std::vector<uint16_t> row_of(const ArraySpec& array, const std::vector<uint32_t>& masks,
                             const std::vector<uint16_t>* next) {
  std::vector<uint16_t> row(array.count_states(), ArraySpec::kNever);
  for (uint64_t state = row.size(); state-- > 0;) {  // what has counted more is known before
    const Counted counted = counted_in(array, state);
    if (may_end(array, counted)) {
      row[state] = 0;
      continue;
    }
    for (const uint32_t mask : masks) {
      const std::optional<Counted> with = with_item(array, counted, mask);
      if (!with) continue;
      const uint64_t to = array.count_state(with->counts, with->items);
      const uint16_t behind = (next != nullptr ? *next : row)[to];
      if (behind != ArraySpec::kNever) row[state] = std::min<uint16_t>(row[state], behind + 1);
    }
  }
  return row;
}

std::vector<uint16_t> items_needed(const ArraySpec& array) {
  std::vector<std::vector<uint16_t>> rows = {row_of(array, masks_of(array.rest), nullptr)};
  for (size_t i = array.prefix.size(); i-- > 0;) {
    rows.push_back(row_of(array, masks_of(array.prefix[i]), &rows.back()));
  }
  std::vector<uint16_t> needed;
  for (size_t i = rows.size(); i-- > 0;)
    needed.insert(needed.end(), rows[i].begin(), rows[i].end());
  return needed;
}

}  // namespace

Result<bool> SchemaTables::count_contains() {
  bool any = false;
  for (ArraySpec& array : tables_->arrays) {
    if (array.counters.empty() || array.items_max < array.items_min) continue;
    const uint32_t bounded = bounded_of(array);
    const bool ends_by_itself =
        std::all_of(array.rest.begin(), array.rest.end(),
                    [&](const Choice& choice) { return (choice.counts & bounded) != 0; });
    // Each by itself is looked at while matching.
    const bool is_alone = array.counters.size() == 1 && array.prefix.empty();
    if (is_alone && bounded != 0 && ends_by_itself) {
      array.items_max = std::min<uint64_t>(array.items_max, array.counters[0].max);
      any = any || array.items_max < array.items_min;
    }
    if (is_alone) continue;
    array.counts_items = bounded != 0 && (ends_by_itself || !array.prefix.empty());
    const uint64_t cells = array.count_states() * (array.prefix.size() + 1);
    if (cells > kCellsMax || !budget_.step(cells) || !budget_.take(cells * sizeof(uint16_t))) {
      return Error{ErrorCode::kUnsupported, "too many `contains` at once, or too large a count",
                   ""};
    }
    array.items_needed = items_needed(array);
    const uint16_t needed = array.needed(0, 0);
    if (needed != ArraySpec::kNever && needed <= array.items_max) continue;
    array.items_min = 1;  // nothing satisfies it
    array.items_max = 0;
    any = true;
  }
  return any;
}

}  // namespace pelton::grammar
