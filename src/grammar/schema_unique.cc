// What arrays of unique items ask of a schema's tables: how many values there are at least, so that
// the machine rarely searches for one (machine_unique.cc), and which arrays are never full.
#include <algorithm>
#include <iterator>
#include <string_view>

#include <fmt/format.h>

#include "grammar/grammar.h"
#include "grammar/machine.h"
#include "grammar/schema_tables.h"

namespace pelton::grammar {
namespace {

constexpr uint64_t kMany = 1 << 20;
// Members of members are counted so deep.
constexpr int kRounds = 4;
// An array that must have more items is taken to have them, unless its values can be counted.
constexpr uint64_t kItemsTried = 256;

uint64_t times(uint64_t a, uint64_t b) {
  return std::min(kMany, a * std::max<uint64_t>(1, b));
}

Error shares_few(std::string_view beside) {
  return Error{ErrorCode::kUnsupported,
               fmt::format("uniqueItems beside {} whose places share few values is not supported: "
                           "give them values that differ, or leave uniqueItems out",
                           beside),
               ""};
}

Choices those_of(const Choices& choices, uint32_t counter_bit) {
  Choices found;
  std::copy_if(choices.begin(), choices.end(), std::back_inserter(found),
               [&](const Choice& choice) {
                 return counter_bit == 0 ? choice.counts == 0 : (choice.counts & counter_bit) != 0;
               });
  return found;
}

}  // namespace

std::shared_ptr<const TextCounts> SchemaTables::text_counts(
    const std::shared_ptr<const StringDfa>& text) {
  std::shared_ptr<const TextCounts>& known = text_counts_[text.get()];
  if (!known) {
    known = std::make_shared<const TextCounts>(*text);
    budget_.step(text->table.next.size());
    budget_.take(text->table.state_count() * 8);
    texts_counted_.push_back(text);
  }
  return known;
}

uint64_t SchemaTables::values_at_least(const Choices& choices) const {
  uint64_t most = 1;
  for (const Choice& choice : choices) {
    most = std::max<uint64_t>(most, tables_->values_at_least[choice.value]);
  }
  return most;
}

uint64_t SchemaTables::values_at_least(const ArraySpec& array) const {
  if (!array.counters.empty()) return 1;
  uint64_t count = 1;
  if (array.unique) {  // each item is one of the values that are not there yet
    for (uint64_t i = 0; i < 8; ++i) {
      const Choices& item = i < array.prefix.size() ? array.prefix[i] : array.rest;
      const uint64_t values = i < array.items_max && !item.empty() ? values_at_least(item) : 0;
      const uint64_t left = values > i ? values - i : 0;
      if (i >= array.items_min) return times(count, 1 + left);
      count = times(count, left);
    }
    return count;
  }
  for (uint64_t i = 0; i < std::min<uint64_t>(array.items_min, 8); ++i) {
    count = times(count, values_at_least(i < array.prefix.size() ? array.prefix[i] : array.rest));
  }
  if (array.items_max <= array.items_min) return count;
  if (array.items_max == kNoBound && !array.rest.empty()) return kMany;
  const bool in_prefix = array.items_min < array.prefix.size();
  return times(count, 1 + values_at_least(in_prefix ? array.prefix[array.items_min] : array.rest));
}

uint64_t SchemaTables::values_at_least(const ObjectSpec& object) const {
  if (object.witnesses != 0) return 1;
  const bool any_more =
      object.members_max > object.required_count && object.members_min <= object.required_count;
  const bool any_subset = object.members_max == kNoBound;
  const bool has_keys = object.others && object.others->counts->has_enough();
  if (any_more && has_keys) return any_subset ? kMany : uint64_t{TextCounts::kEnough};
  uint64_t count = 1;
  uint64_t single = 1;  // with none of those that may be there, or just one
  for (size_t i = 0; i < object.properties.size(); ++i) {
    const uint64_t bit = uint64_t{1} << (i % 64);
    if ((object.forbidden[i / 64] & bit) != 0) continue;
    const uint64_t values = values_at_least(object.properties[i].choices);
    const bool is_required = (object.required[i / 64] & bit) != 0;
    if (!is_required && !object.properties[i].needs.empty()) continue;  // then others must come
    if (is_required) {
      count = times(count, values);
    } else if (any_more && any_subset) {
      count = times(count, 1 + values);
    } else if (any_more) {
      single += values;
    }
  }
  return times(count, single);
}

void SchemaTables::count_values() {
  tables_->values_at_least.assign(tables_->values.size(), 1);
  for (int round = 0; round < kRounds; ++round) {
    for (size_t i = tables_->values.size(); i-- > 0;) {
      ValueSpec& value = tables_->values[i];
      if (!budget_.step(4 + value.strings.size())) return;
      uint64_t count = (value.null_ ? 1 : 0) + (value.true_ ? 1 : 0) + (value.false_ ? 1 : 0);
      if (value.number) count += value.number->values_at_least[value.number->dfa.start()];
      uint64_t texts = 0, arrays = 0, objects = 0;
      for (StringSpec& text : value.strings) {
        if (!text.counts) text.counts = text_counts(text.text);
        texts = std::max(
            texts, text.counts->at_least(text.text->table.start, text.chars_max, text.chars_min));
      }
      for (const uint32_t array : value.arrays) {
        arrays = std::max(arrays, values_at_least(tables_->arrays[array]));
      }
      for (const uint32_t object : value.objects) {
        objects = std::max(objects, values_at_least(tables_->objects[object]));
      }
      count = std::min(kMany, count + texts + arrays + objects);
      tables_->values_at_least[i] = static_cast<uint32_t>(std::max<uint64_t>(1, count));
    }
  }
}

// So many different values, at most `most`.
Result<uint64_t> SchemaTables::values_of(const Choices& choices, uint64_t most) {
  if (choices.empty() || most == 0) return uint64_t{0};
  if (most > kItemsTried || values_at_least(choices) >= most) return most;
  auto tables = std::make_unique<JsonTables>(*tables_);
  tables->arrays.push_back({.rest = choices, .unique = true});
  const auto array = static_cast<uint32_t>(tables->arrays.size() - 1);
  budget_.step(tables->values.size() + tables->objects.size() + tables->arrays.size());
  const auto grammar = Grammar::from_json_tables(std::move(tables));
  WorkBudget work({.deadline = budget_.deadline});
  const std::optional<uint64_t> count = Machine(*grammar, work).count_items(array, most);
  budget_.step(static_cast<uint64_t>(work.done()) / 8);
  if (count && !budget_.exhausted && !work.exhausted()) return *count;
  return Error{ErrorCode::kDoesNotFit,
               "uniqueItems: it takes too long to find out whether so many different items can be "
               "had",
               ""};
}

// All places offer the same, and items are counted in one way at most: whatever is there, of the
// values that count as many are left as must still come, and of all there are enough.
Result<bool> SchemaTables::lacks_items(const ArraySpec& array) {
  const Counter counter = array.counters.empty() ? Counter{} : array.counters[0];
  const bool is_bounded = counter.max != 0xffff;
  const uint64_t least = array.items_min;
  TRY_ASSIGN(const uint64_t plain, values_of(those_of(array.rest, 0), least));
  TRY_ASSIGN(const uint64_t counting,
             values_of(those_of(array.rest, 1),
                       is_bounded ? std::max<uint64_t>(counter.min, least) : counter.min));
  const uint64_t beside = is_bounded ? std::min<uint64_t>(counting, counter.max) : 0;
  return counting < counter.min || plain + beside < least;
}

// Several counters without maxima: an item that is there has been counted wherever it can be, so of
// the values for a counter that still lacks some, as many are new.
Result<bool> SchemaTables::lacks_counted_items(const ArraySpec& array) {
  bool needs_one_each = true;
  for (size_t i = 0; i < array.counters.size(); ++i) {
    const uint64_t least = array.counters[i].min;
    TRY_ASSIGN(const uint64_t counting, values_of(those_of(array.rest, 1u << i), least));
    if (counting < least) return true;
    needs_one_each = needs_one_each && least <= 1;
  }
  TRY_ASSIGN(const uint64_t plain, values_of(those_of(array.rest, 0), array.items_min));
  if (plain < array.items_min) return true;
  if (array.items_max == kNoBound || needs_one_each || has_many_everywhere(array)) return false;
  return shares_few("contains and maxItems");
}

bool SchemaTables::has_many_everywhere(const ArraySpec& array) const {
  const auto has_many = [&](const Choices& choices) {
    return std::all_of(choices.begin(), choices.end(), [&](const Choice& choice) {
      return tables_->values_at_least[choice.value] >= TextCounts::kEnough;
    });
  };
  return has_many(array.rest) && std::all_of(array.prefix.begin(), array.prefix.end(), has_many);
}

// Whichever values the places before it have, each has one that is new: it offers more than there
// are places before it, or at least than those with which it shares any. Of three required places,
// 1 or 2, 1 or 3, and 2 or 3: [2, 3 leaves nothing for the third, which offers 2 values and shares
// some with 2 places: refused. With 2, 3 or 4 it offers more; with 4 alone it shares none: both are
// taken.
Result<void> SchemaTables::check_places(const ArraySpec& array) {
  const auto place = [&](uint64_t i) -> const Choices& {
    return i < array.prefix.size() ? array.prefix[i] : array.rest;
  };
  const uint64_t prefix = array.prefix.size();
  for (uint64_t i = 1; i < array.items_min; ++i) {
    if (i >= prefix) i = array.items_min - 1;  // the last one is the hardest
    TRY_ASSIGN(const uint64_t own, values_of(place(i), i + 1));
    if (own > i) continue;
    uint64_t shared = i >= prefix ? i - prefix : 0;
    for (uint64_t j = 0; j < std::min(i, prefix) && shared < own; ++j) {
      TRY_ASSIGN(const uint64_t other, values_of(place(j), kItemsTried));
      Choices both = place(i);
      both.insert(both.end(), place(j).begin(), place(j).end());
      const uint64_t apart = own + other;
      uint64_t together = 0;  // where there are too many to look at they may share some
      if (apart <= kItemsTried) {
        TRY_ASSIGN(together, values_of(both, apart));
      }
      if (together < apart) ++shared;
    }
    if (own <= shared) return shares_few("prefixItems (items)");
  }
  return {};
}

// Finds arrays that cannot have as many items as they must. What may be had by some items and not
// by others is refused: no text that a mask allows may end in a place without a way on.
Result<bool> SchemaTables::empty_unique() {
  bool any = false;
  for (ArraySpec& array : tables_->arrays) {
    if (!array.unique || array.items_max < array.items_min) continue;
    const auto& counters = array.counters;
    const bool is_bounded = std::any_of(counters.begin(), counters.end(),
                                        [](const Counter& one) { return one.max != 0xffff; });
    bool is_empty = false;
    if (array.prefix.empty() && counters.size() <= 1) {
      TRY_ASSIGN(is_empty, lacks_items(array));
    } else if (array.prefix.empty() && !is_bounded) {
      TRY_ASSIGN(is_empty, lacks_counted_items(array));
    } else if (counters.empty()) {
      TRY(check_places(array));
    } else if (!has_many_everywhere(array)) {
      return shares_few(array.prefix.empty() ? "contains with maxContains"
                                             : "prefixItems (items) and contains");
    }
    if (!is_empty) continue;
    array.items_min = 1;  // nothing satisfies it
    array.items_max = 0;
    any = true;
  }
  return any;
}

}  // namespace pelton::grammar
