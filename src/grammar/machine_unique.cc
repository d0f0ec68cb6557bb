// The machine in arrays of unique items: a value goes on there only while it can become one that
// its array lacks, so that no mask leads into a dead end. Mostly counting decides that: of more
// values than the array has items one is new. Where few are left, one is searched for, in one
// spelling of each value: behind [1,2 and a comma, of 1 | 2 | 3, the search meets 1 and 2, which
// are there, and 3; not 1.0, nor, in an object, the same members in another order.
#include <algorithm>
#include <array>
#include <string_view>

#include "grammar/machine.h"

namespace pelton::grammar {
namespace {

// Counts of values end here: no array has as many items.
constexpr uint64_t kMany = 1 << 20;
// For one search. Searches are short where values are few.
constexpr int64_t kSearchWorkMax = 50'000;
// Bytes that a search goes deep, each a call within the last: of any thread's stack a small part.
constexpr int kSearchDepthMax = 1000;

bool has_enough_keys(const ObjectSpec& object) {
  return object.others && object.others->counts && object.others->counts->has_enough();
}

uint64_t times(uint64_t a, uint64_t b) {
  return std::min(kMany, a * std::max<uint64_t>(1, b));
}

// Ends of texts and values first, so that a search of what goes on for ever finds what is short.
// Escapes last: few characters need one. Outside of texts there are no other bytes than the first.
struct SearchOrder {
  static constexpr std::string_view kFirst = "\"]},:1023456789-.tfn[{ruelas";
  std::array<uint8_t, 256> bytes{};

  SearchOrder() {
    size_t count = 0;
    const auto add = [&](uint8_t byte) { bytes[count++] = byte; };
    for (const char byte : kFirst) add(static_cast<uint8_t>(byte));
    for (int byte = 0; byte < 256; ++byte) {
      if (byte != '\\' && kFirst.find(static_cast<char>(byte)) == std::string_view::npos) {
        add(static_cast<uint8_t>(byte));
      }
    }
    add('\\');
  }
};

const SearchOrder& search_order() {
  static const SearchOrder kOrder;
  return kOrder;
}

}  // namespace

void Machine::keep_new(std::vector<uint32_t>& out, size_t out_begin) {
  if (is_searching_ || overflowed_) return;
  size_t kept = out_begin;
  for (size_t i = out_begin; i < out.size(); ++i) {
    const Frame frame = frames_[out[i]];
    const bool is_open = frame.watched == 0 || surely_new(frame, ways_on(frame));
    if (is_open || finds_new(out[i])) out[kept++] = out[i];
  }
  out.resize(kept);
}

// So many different values, or more, can become of what stands there, whatever stands around it.
uint64_t Machine::ways_on(const Frame& frame) const {
  switch (frame.kind) {
    case FrameKind::kString:
      return texts_left(frame);
    case FrameKind::kNumber:
      return json_->values[frame.spec].number->values_at_least[frame.state];
    case FrameKind::kValue:
      return json_->values_at_least[frame.spec];
    case FrameKind::kObject:
      return times(object_ways(frame, nullptr), static_cast<Phase>(frame.phase) == Phase::kColon
                                                    ? values_at_least(member_choices(frame))
                                                    : 1);
    case FrameKind::kKey:
      return keys_left(frame);
    case FrameKind::kArray:
      return array_ways(frame);
    default:
      return 1;
  }
}

uint64_t Machine::texts_left(const Frame& frame) const {
  const StringSpec& spec = string_spec(frame);
  if (!spec.counts || frame.phase != 0) return 1;
  const uint64_t room = spec.chars_max == kNoBound ? kNoBound : spec.chars_max - frame.count;
  const uint64_t short_by = spec.chars_min > frame.count ? spec.chars_min - frame.count : 0;
  return spec.counts->at_least(frame.state, room, short_by);
}

uint64_t Machine::values_at_least(const Choices& choices) const {
  uint64_t most = 1;
  for (const Choice& choice : choices) {
    most = std::max<uint64_t>(most, json_->values_at_least[choice.value]);
  }
  return most;
}

// By what may still come beside the member that is under way. `key`: it has no more yet than a part
// of its key, which may be that of a property. An object of "a": 1 | 2 and, optionally, "b":
// true and "c": true | false has 2 * 2 * 3 ways; with at most two members it has 2 * (1 + 1 + 2).
uint64_t Machine::object_ways(const Frame& object, const Frame* key) const {
  const ObjectSpec& spec = object_of(object);
  if (spec.witnesses != 0 || spec.has_needs) return 1;
  spend(1 + spec.properties.size() / 4);
  const Phase phase = static_cast<Phase>(object.phase);
  const bool has_value_to_come = phase == Phase::kColon || phase == Phase::kValue;
  const uint64_t members =
      object.count + object.missing + (key != nullptr || has_value_to_come ? 1 : 0);
  const bool any_more = members < spec.members_max;
  const bool any_subset = spec.members_max == kNoBound;
  if (any_subset && has_enough_keys(spec)) return kMany;
  const KeyTrieNode* const named =
      key != nullptr && key->aux != kNoNode ? &spec.trie[key->aux] : nullptr;
  uint64_t needed = 1;
  uint64_t subsets = 1;  // of the properties that may be there
  uint64_t single = 0;   // just one of them
  for (size_t i = 0; i < spec.properties.size() && needed < kMany; ++i) {
    const uint64_t bit = uint64_t{1} << (i % 64);
    if (((seen_word(object, i / 64) | spec.forbidden[i / 64]) & bit) != 0) continue;
    const uint64_t values = values_at_least(spec.properties[i].choices);
    const bool is_under_way = named != nullptr && i >= named->key_begin && i < named->key_end;
    if ((spec.required[i / 64] & bit) != 0) {
      needed = times(needed, values);
    } else if (!is_under_way) {
      subsets = times(subsets, 1 + values);
      single = std::min(kMany, single + values);
    }
  }
  if (!any_more) return needed;
  if (has_enough_keys(spec)) {
    single += TextCounts::kEnough - std::min<uint64_t>(TextCounts::kEnough, members);
  }
  // Where more members must come, one that is chosen leaves at least as many ways, by this many.
  const uint64_t short_by = spec.members_min > members ? spec.members_min - members : 0;
  if (short_by > 0) return times(needed, single / short_by);
  const uint64_t none = phase == Phase::kComma && object.missing == 0 && key == nullptr ? 0 : 1;
  return times(needed, any_subset ? subsets - 1 + none : single + none);
}

// Whether it goes on as one of the other keys, each of which makes another object.
uint64_t Machine::keys_left(const Frame& key) const {
  if (key.phase != 0 || !others_allowed(key)) return 1;
  const ObjectSpec& spec = object_of(key);
  const uint64_t texts = spec.others->counts->at_least(key.state, kNoBound, 0);
  // Those that are named, or were there.
  const uint64_t taken = spec.properties.size() + frames_[key.parent].count;
  return texts > taken ? texts - taken : 1;
}

bool Machine::key_has_many(uint32_t top) const {
  const Frame& key = frames_[top];
  const ObjectSpec& spec = object_of(key);
  const TextCounts& counts = *spec.others->counts;
  if (spec.members_max == kNoBound && counts.has_enough()) return true;
  const uint64_t taken = spec.properties.size() + frames_[key.parent].count;
  return counts.has_enough_everywhere() && items_around(top) + taken < TextCounts::kEnough;
}

// By the items behind the one that is under way.
uint64_t Machine::array_ways(const Frame& array) const {
  const ArraySpec& spec = json_->arrays[array.spec];
  if (!spec.counters.empty()) return 1;
  const uint64_t next = array.count + (static_cast<Phase>(array.phase) == Phase::kValue ? 1 : 0);
  if (spec.unique) return unique_array_ways(spec, next);
  uint64_t ways = 1;
  for (uint64_t i = next; i < spec.items_min && i < next + 8; ++i) {
    if (const Choices* choices = item_choices(spec, i))
      ways = times(ways, values_at_least(*choices));
  }
  const uint64_t end = std::max(next, spec.items_min);
  const Choices* const more = item_choices(spec, end);
  if (more == nullptr) return ways;
  if (spec.items_max == kNoBound && end >= spec.prefix.size()) return kMany;
  return times(ways, 1 + values_at_least(*more));
}

// Each item is one of the values that are not there yet: of three, arrays of two have 3 * 2 ways.
uint64_t Machine::unique_array_ways(const ArraySpec& spec, uint64_t next) const {
  uint64_t ways = 1;
  for (uint64_t i = next; i < next + 8; ++i) {
    const Choices* const item = item_choices(spec, i);
    const uint64_t values = item == nullptr ? 0 : values_at_least(*item);
    const uint64_t left = values > i ? values - i : 0;
    if (i >= spec.items_min) return times(ways, 1 + left);
    ways = times(ways, left);
  }
  return ways;
}

// Whether of so many values in the place of `child` one makes every unique array's item around it
// new.
bool Machine::surely_new(const Frame& child, uint64_t ways) const {
  bool is_sure = false;
  for_parents(child, [&](uint32_t index) {
    spend(1);
    if (is_sure) return;
    const Frame& parent = frames_[index];
    if (parent.kind == FrameKind::kObject) {
      const Frame* const key = child.kind == FrameKind::kKey ? &child : nullptr;
      is_sure = parent.watched == 0 || surely_new(parent, times(ways, object_ways(parent, key)));
    } else if (parent.kind != FrameKind::kArray) {
      is_sure = true;
    } else if (json_->arrays[parent.spec].unique) {
      is_sure = ways > parent.count &&
                (parent.watched == 0 ||
                 surely_new(parent, times(ways - parent.count, array_ways(parent))));
    } else {
      is_sure = parent.watched == 0 || surely_new(parent, times(ways, array_ways(parent)));
    }
  });
  return is_sure;
}

uint64_t Machine::items_around(uint32_t top) const {
  uint64_t most = 0;
  for_parents(frames_[top], [&](uint32_t index) {
    const Frame& parent = frames_[index];
    if (parent.watched == 0) return;
    if (parent.kind == FrameKind::kArray && json_->arrays[parent.spec].unique) {
      most = std::max(most, parent.count);
    }
    most = std::max(most, items_around(index));
  });
  return most;
}

// The arrays of unique items around it.
void Machine::add_goals(const Frame& child) {
  for_parents(child, [&](uint32_t index) {
    spend(1);
    const Frame parent = frames_[index];
    const bool is_array = parent.kind == FrameKind::kArray;
    if (parent.watched == 0 || (!is_array && parent.kind != FrameKind::kObject)) return;
    if (is_array && json_->arrays[parent.spec].unique) goals_.push_back(index);
    add_goals(parent);
  });
}

bool Machine::finds_new(uint32_t top) {
  goals_.clear();
  add_goals(frames_[top]);
  if (goals_.empty()) return true;
  const Mark before = mark();
  const Search found = search(std::span(&top, 1));
  take_back(before);
  overflowed_ = budget_.exhausted();
  // What takes too long to look at counts as found, unless the array can do without it.
  return found == Search::kFound || (found == Search::kTooLong && !may_do_without(frames_[top]));
}

// It is an item that has not begun, and nothing but its own array, which may end before it, asks
// for something new.
bool Machine::may_do_without(const Frame& item) const {
  bool may = item.kind == FrameKind::kValue && goals_.size() == 1;
  for_parents(item, [&](uint32_t index) {
    may = may && index == goals_.front() && can_close_array(frames_[index]);
  });
  return may;
}

// Whether one of the goals gets an item that it lacks, and so, by counting, do those around it.
Machine::Search Machine::search(std::span<const uint32_t> tops) {
  is_searching_ = true;
  has_found_ = false;
  search_end_ = budget_.done() + kSearchWorkMax;
  const bool has_ended = search_on(tops, 0);
  is_searching_ = false;
  if (!has_ended) return Search::kNothing;
  return has_found_ ? Search::kFound : Search::kTooLong;
}

// True ends it: one is found, or it takes too long.
bool Machine::search_on(std::span<const uint32_t> tops, int depth) {
  if (depth == kSearchDepthMax) return true;  // too long to look at
  const bool in_text = std::any_of(tops.begin(), tops.end(), [&](uint32_t top) {
    return frames_[top].kind == FrameKind::kString || frames_[top].kind == FrameKind::kKey;
  });
  if (in_text) spend(16 * tops.size());  // for any_takes
  std::vector<uint32_t> out;
  const std::span<const uint8_t> bytes = search_order().bytes;
  for (const uint8_t byte : in_text ? bytes : bytes.first(SearchOrder::kFirst.size())) {
    if (budget_.done() > search_end_ || budget_.exhausted()) return true;
    if (in_text && !any_takes(tops, byte)) continue;
    const Mark before = mark();
    out.clear();
    step(tops, byte, out, 0);
    if (has_found_ || (!out.empty() && search_on(out, depth + 1))) return true;
    take_back(before);
  }
  return false;
}

std::optional<uint64_t> Machine::count_items(uint32_t array, uint64_t most) {
  frames_.clear();
  links_.clear();
  words_.clear();
  push({.kind = FrameKind::kRoot});
  Frame frame = {.kind = FrameKind::kArray, .watched = 1, .spec = array};
  for (uint64_t count = 0; count < most; ++count) {
    std::vector<uint32_t> items;
    goals_.clear();
    open_items(frame, items, 0);
    for (const uint32_t item : items) {
      for_parents(frames_[item], [&](uint32_t parent) { goals_.push_back(parent); });
    }
    const Search found = items.empty() ? Search::kNothing : search(items);
    if (found == Search::kNothing) return count;
    if (found == Search::kTooLong) return std::nullopt;
    frame = found_;
  }
  return most;
}

}  // namespace pelton::grammar
