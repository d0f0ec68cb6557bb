// What arrays of unique items ask of a schema's tables: how many values there are at least, so that
// the machine rarely searches for one (machine_unique.cc), and which arrays are never full.
#include <algorithm>

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
  if (array.unique || !array.counters.empty()) return 1;
  uint64_t count = 1;
  for (uint64_t i = 0; i < std::min<uint64_t>(array.items_min, 8); ++i) {
    count = times(count, values_at_least(i < array.prefix.size() ? array.prefix[i] : array.rest));
  }
  if (array.items_max <= array.items_min) return count;
  if (array.items_max == kNoBound && !array.rest.empty()) return kMany;
  const bool in_prefix = array.items_min < array.prefix.size();
  return times(count, 1 + values_at_least(in_prefix ? array.prefix[array.items_min] : array.rest));
}

uint64_t SchemaTables::values_at_least(const ObjectSpec& object) const {
  if (object.witnesses != 0 || object.has_needs) return 1;
  const bool any_more =
      object.members_max == kNoBound && object.members_min <= object.required_count;
  if (any_more && object.others && object.others->has_many) return kMany;
  uint64_t count = 1;
  for (size_t i = 0; i < object.properties.size(); ++i) {
    const uint64_t bit = uint64_t{1} << (i % 64);
    if ((object.forbidden[i / 64] & bit) != 0) continue;
    const uint64_t values = values_at_least(object.properties[i].choices);
    if ((object.required[i / 64] & bit) != 0) {
      count = times(count, values);
    } else if (any_more) {
      count = times(count, 1 + values);
    }
  }
  return count;
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

// Each item is the first that is found beside those before it. Where all places offer the same
// values that finds as many as there are.
Result<bool> SchemaTables::empty_unique() {
  const auto grammar = Grammar::from_json_tables(std::make_unique<JsonTables>(*tables_));
  bool any = false;
  for (uint32_t i = 0; i < tables_->arrays.size(); ++i) {
    ArraySpec& array = tables_->arrays[i];
    if (!array.unique || array.items_min < 2 || array.items_min > kItemsTried) continue;
    if (array.items_max < array.items_min) continue;
    if (array.prefix.empty() && values_at_least(array.rest) >= array.items_min) continue;
    WorkBudget work({.deadline = budget_.deadline});
    const uint64_t count = Machine(*grammar, work).count_items(i, array.items_min);
    budget_.step(static_cast<uint64_t>(work.done()) / 8);
    if (budget_.exhausted || work.exhausted()) {
      return Error{ErrorCode::kDoesNotFit,
                   "uniqueItems: it takes too long to find out whether so many different items "
                   "can be had",
                   ""};
    }
    if (count >= array.items_min) continue;
    if (!array.prefix.empty()) {
      return Error{ErrorCode::kUnsupported,
                   "uniqueItems beside prefixItems (items) whose places share few values is not "
                   "supported: give them values that differ, or leave uniqueItems out",
                   ""};
    }
    array.items_max = 0;  // below items_min: nothing satisfies it
    any = true;
  }
  return any;
}

}  // namespace pelton::grammar
