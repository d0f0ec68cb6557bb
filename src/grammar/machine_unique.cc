// The machine in arrays of unique items: a value goes on there only while it can become one that
// its array lacks, so that no mask leads into a dead end. Mostly that is told by counting: of more
// values than the array has items one is new. Where few are left, one is searched for, in one
// spelling of each value.
#include <algorithm>
#include <array>
#include <string_view>

#include "grammar/machine.h"

namespace pelton::grammar {
namespace {

// Counts of values end here: no array has as many items.
constexpr uint64_t kMany = 1 << 20;
// For one search; what takes longer counts as found. Searches are short where values are few.
constexpr int64_t kSearchWorkMax = 100'000;
// Bytes that a search goes deep, each a call within the last: of any thread's stack a small part.
constexpr int kSearchDepthMax = 1000;

uint64_t times(uint64_t a, uint64_t b) {
  return std::min(kMany, a * std::max<uint64_t>(1, b));
}

// Ends of values first: a search that goes on for ever finds shorter ones before. Escapes last:
// they spell what has been tried.
const std::array<uint8_t, 256>& search_order() {
  static const std::array<uint8_t, 256> kOrder = [] {
    std::array<uint8_t, 256> order{};
    std::array<bool, 256> taken{};
    size_t count = 0;
    const auto add = [&](uint8_t byte) {
      if (!taken[byte]) order[count++] = byte;
      taken[byte] = true;
    };
    taken['\\'] = true;
    for (const char byte : std::string_view(",]}\":1023456789-.tfn[{")) {
      add(static_cast<uint8_t>(byte));
    }
    for (int byte = 0; byte < 256; ++byte) add(static_cast<uint8_t>(byte));
    order[count] = '\\';
    return order;
  }();
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
      return times(object_ways(frame), static_cast<Phase>(frame.phase) == Phase::kColon
                                           ? values_at_least(member_choices(frame))
                                           : 1);
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

// By what may still come beside the member that is under way.
uint64_t Machine::object_ways(const Frame& object) const {
  const ObjectSpec& spec = object_of(object);
  if (spec.witnesses != 0 || spec.has_needs) return 1;
  const bool any_more = spec.members_max == kNoBound;
  if (any_more && spec.others && spec.others->has_many) return kMany;
  spend(1 + spec.properties.size() / 4);
  uint64_t needed = 1, other = 1;
  for (size_t i = 0; i < spec.properties.size() && needed < kMany; ++i) {
    const uint64_t bit = uint64_t{1} << (i % 64);
    if (((seen_word(object, i / 64) | spec.forbidden[i / 64]) & bit) != 0) continue;
    const uint64_t values = values_at_least(spec.properties[i].choices);
    if ((spec.required[i / 64] & bit) != 0) {
      needed = times(needed, values);
    } else if (any_more) {
      other = std::max(other, values);
    }
  }
  return times(needed, other);
}

// By the items behind the one that is under way.
uint64_t Machine::array_ways(const Frame& array) const {
  const ArraySpec& spec = json_->arrays[array.spec];
  if (spec.unique || !spec.counters.empty()) return 1;
  const uint64_t next = array.count + (static_cast<Phase>(array.phase) == Phase::kValue ? 1 : 0);
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

// Whether of so many values in the place of `child` one makes every unique array's item around it
// new.
bool Machine::surely_new(const Frame& child, uint64_t ways) const {
  bool is_sure = false;
  for_parents(child, [&](uint32_t index) {
    spend(1);
    if (is_sure) return;
    const Frame& parent = frames_[index];
    if (parent.kind == FrameKind::kObject) {
      is_sure = parent.watched == 0 || surely_new(parent, times(ways, object_ways(parent)));
    } else if (parent.kind != FrameKind::kArray) {
      is_sure = true;
    } else if (json_->arrays[parent.spec].unique) {
      is_sure = ways > parent.count && surely_new(parent, ways - parent.count);
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

void Machine::add_goals(const Frame& child, uint32_t outermost) {
  for_parents(child, [&](uint32_t index) {
    const Frame parent = frames_[index];
    const bool is_array = parent.kind == FrameKind::kArray;
    const bool goes_on = is_array || parent.kind == FrameKind::kObject;
    if (!goes_on || parent.watched == 0) {
      if (outermost != kNoFrame) goals_.push_back(outermost);
      return;
    }
    add_goals(parent, is_array && json_->arrays[parent.spec].unique ? index : outermost);
  });
}

bool Machine::finds_new(uint32_t top) {
  goals_.clear();
  add_goals(frames_[top], kNoFrame);
  if (goals_.empty()) return true;
  const Mark before = mark();
  const bool found = search(std::span(&top, 1));
  take_back(before);
  overflowed_ = budget_.exhausted();
  return found;
}

// Whether one of the goals gets an item that it lacks.
bool Machine::search(std::span<const uint32_t> tops) {
  is_searching_ = true;
  has_found_ = false;
  search_end_ = budget_.done() + kSearchWorkMax;
  const bool found = search_on(tops, 0);
  is_searching_ = false;
  return found;
}

bool Machine::search_on(std::span<const uint32_t> tops, int depth) {
  if (depth == kSearchDepthMax) return true;  // too long to look at
  const bool in_text = std::any_of(tops.begin(), tops.end(), [&](uint32_t top) {
    return frames_[top].kind == FrameKind::kString || frames_[top].kind == FrameKind::kKey;
  });
  std::vector<uint32_t> out;
  for (const uint8_t byte : search_order()) {
    if (is_json_space(byte) && !in_text) continue;
    if (budget_.done() > search_end_ || budget_.exhausted()) return true;
    const Mark before = mark();
    out.clear();
    step(tops, byte, out, 0);
    if (has_found_ || (!out.empty() && search_on(out, depth + 1))) return true;
    take_back(before);
  }
  return false;
}

uint64_t Machine::count_items(uint32_t array, uint64_t most) {
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
    if (items.empty() || !search(items)) return count;
    if (!has_found_) return most;  // too many to look at
    frame = found_;
  }
  return most;
}

}  // namespace pelton::grammar
