// The machine inside JSON: values, objects, arrays, numbers, literals. The text of strings and keys
// is in machine_text.cc.
#include <algorithm>
#include <bit>

#include "grammar/machine.h"

namespace pelton::grammar {
namespace {

constexpr uint64_t kPrime = 0x9e3779b97f4a7c15;
constexpr uint64_t kObjectSeed = 0x0b1ec7;
constexpr uint64_t kArraySeed = 0xa99a7;
constexpr uint64_t kNumberSeed = 0x4e4b;
constexpr uint32_t kOtherKey = 0x8000'0000;

constexpr std::string_view kLiterals[] = {"null", "true", "false"};

// What a number's frame keeps in `phase`, so that 1, 1.0 and -0 hash as equal numbers do.
constexpr uint8_t kNegative = 1;
constexpr uint8_t kInFraction = 2;
constexpr uint8_t kFractionHashed = 4;
constexpr uint8_t kNotZero = 8;

uint64_t finished(uint64_t hash) {
  hash ^= hash >> 32;
  return hash * kPrime;
}

}  // namespace

void Machine::step_value(const Frame& from, uint8_t byte, std::vector<uint32_t>& out,
                         size_t out_begin) {
  const ValueSpec& value = json_->values[from.spec];
  switch (byte) {
    case '"':
      for (uint32_t i = 0; i < value.strings.size(); ++i) {
        const StringSpec& text = value.strings[i];
        const DfaState start = text.text->table.start;
        push_top({.parent = from.parent,
                  .kind = FrameKind::kString,
                  .watched = from.watched,
                  .spec = from.spec,
                  .state = start,
                  .aux = i},
                 out, out_begin);
      }
      return;
    case '{':
      for (const uint32_t object : value.objects) open_object(from, object, out, out_begin);
      return;
    case '[':
      for (const uint32_t array : value.arrays) {
        const uint8_t watched = from.watched != 0 || json_->arrays[array].unique ? 1 : 0;
        push_top({.parent = from.parent,
                  .kind = FrameKind::kArray,
                  .phase = static_cast<uint8_t>(Phase::kOpened),
                  .watched = watched,
                  .spec = array,
                  .hash = kArraySeed},
                 out, out_begin);
      }
      return;
    case 'n':
    case 't':
    case 'f': {
      const uint32_t which = byte == 'n' ? 0 : byte == 't' ? 1 : 2;
      const bool allowed = which == 0 ? value.null_ : which == 1 ? value.true_ : value.false_;
      if (!allowed) return;
      push_top({.parent = from.parent,
                .kind = FrameKind::kLiteral,
                .watched = from.watched,
                .spec = which,
                .count = 1},
               out, out_begin);
      return;
    }
    default:
      break;
  }
  if (!value.number) return;
  const DfaState state = value.number->dfa.next(value.number->dfa.start(), byte);
  if (state == kDeadState) return;
  Frame frame = {.parent = from.parent,
                 .kind = FrameKind::kNumber,
                 .watched = from.watched,
                 .spec = from.spec,
                 .state = state,
                 .hash = kNumberSeed};
  number_digit(frame, byte);
  push_top(frame, out, out_begin);
}

// Equal numbers get equal hashes, however they are spelled. Of 1.50: 1 is hashed; the point is kept
// back (kInFraction) until a digit other than 0 follows, so . and 5 are hashed together; the last 0
// is counted and never hashed: 1.5. Of 1.0 just the 1. -0 is negative but kNotZero is not set: 0.
void Machine::number_digit(Frame& frame, uint8_t byte) const {
  if (frame.watched == 0) {
    frame.hash = 0;
    return;
  }
  if (byte == '-' && frame.phase == 0 && frame.count == 0 && frame.hash == kNumberSeed) {
    frame.phase |= kNegative;
    return;
  }
  if (byte == '.') {
    frame.phase |= kInFraction;
    return;
  }
  const auto add = [&](uint8_t c) { frame.hash = (frame.hash ^ c) * kPrime + 1; };
  if ((frame.phase & kInFraction) != 0 && byte == '0') {
    ++frame.count;  // counts only if something other than zeros follows
    return;
  }
  if (byte >= '1' && byte <= '9') frame.phase |= kNotZero;
  if ((frame.phase & kInFraction) != 0) {
    if ((frame.phase & kFractionHashed) == 0) add('.');
    frame.phase |= kFractionHashed;
    for (; frame.count > 0; --frame.count) add('0');
  }
  add(byte);
}

uint64_t Machine::number_hash(const Frame& frame) {
  const bool negative = (frame.phase & kNegative) != 0 && (frame.phase & kNotZero) != 0;
  return finished(negative ? ~frame.hash : frame.hash);
}

bool Machine::number_may_end(const Frame& frame) const {
  if (is_searching_ && (frame.phase & kInFraction) != 0 && frame.count > 0) return false;
  return json_->values[frame.spec].number->dfa.accepts(frame.state);
}

void Machine::step_number(uint32_t top, uint8_t byte, std::vector<uint32_t>& out,
                          size_t out_begin) {
  Frame frame = frames_[top];
  const NumberDfa& number = *json_->values[frame.spec].number;
  const DfaState next = number.dfa.next(frame.state, byte);
  if (next == kDeadState) return;
  frame.state = next;
  number_digit(frame, byte);
  // No search goes on to what only spells the same number once more.
  const bool adds_nothing = byte == '.' || (byte == '0' && (frame.phase & kInFraction) != 0);
  if (is_searching_ && adds_nothing && number.any_digit_matters[next] == 0) return;
  push_top(frame, out, out_begin);
}

void Machine::step_literal(const Frame& from, uint32_t top, uint8_t byte,
                           std::vector<uint32_t>& out, size_t out_begin) {
  const std::string_view text = kLiterals[from.spec];
  if (static_cast<uint8_t>(text[from.count]) != byte) return;
  Frame frame = from;
  ++frame.count;
  if (frame.count == text.size()) {
    finish(top, finished(frame.spec + 1), out, out_begin);
  } else {
    push_top(frame, out, out_begin);
  }
}

void Machine::open_object(const Frame& from, uint32_t object, std::vector<uint32_t>& out,
                          size_t out_begin) {
  const ObjectSpec& spec = json_->objects[object];
  Frame frame = {.parent = from.parent,
                 .kind = FrameKind::kObject,
                 .phase = static_cast<uint8_t>(Phase::kOpened),
                 .watched = from.watched,
                 .spec = object,
                 .missing = spec.required_count,
                 .hash = kObjectSeed};
  if (spec.words() > 1) {
    frame.bits = words_.size();
    words_.insert(words_.end(), spec.words(), 0);
  }
  push_top(frame, out, out_begin);
}

void Machine::step_object(uint32_t top, uint8_t byte, std::vector<uint32_t>& out,
                          size_t out_begin) {
  if (skip_space(top, byte, out, out_begin)) return;
  Frame frame = frames_[top];
  const Phase phase = static_cast<Phase>(frame.phase);
  if (phase == Phase::kColon) {
    if (byte != ':') return;
    open_member(frame, member_choices(frame), out, out_begin);
    return;
  }
  if (byte == '"' && phase != Phase::kAfter) {
    if (phase == Phase::kComma || can_open_key(frame)) open_key(top, out, out_begin);
  } else if (byte == '}' && phase != Phase::kComma) {
    if (can_close_object(frame)) finish(top, finished(frame.hash), out, out_begin);
  } else if (byte == ',' && phase == Phase::kAfter) {
    if (!can_open_key(frame)) return;
    frame.phase = static_cast<uint8_t>(Phase::kComma);
    frame.spaces = 0;
    push_top(frame, out, out_begin);
  }
}

// Behind a key.
const Choices& Machine::member_choices(const Frame& object) const {
  const ObjectSpec& spec = object_of(object);
  return (object.aux & kOtherKey) != 0 ? spec.others->classes[object.aux & ~kOtherKey]
                                       : spec.properties[object.aux].choices;
}

void Machine::open_member(const Frame& object, const Choices& choices, std::vector<uint32_t>& out,
                          size_t out_begin) {
  for (const Choice& choice : choices) {
    Frame waiting = object;
    waiting.phase = static_cast<uint8_t>(Phase::kValue);
    waiting.spaces = 0;
    waiting.state |= choice.counts;
    waiting.aux = (object.watched & kInOrder) != 0 ? object.aux + 1 : 0;
    const uint32_t parent = push(waiting);
    push_top({.parent = parent,
              .kind = FrameKind::kValue,
              .watched = object.watched,
              .spec = choice.value},
             out, out_begin);
  }
}

uint64_t Machine::seen_word(const Frame& object, size_t word) const {
  return object_of(object).words() > 1 ? words_[object.bits + word] : object.bits;
}

// The properties that must be there, given those that are.
uint64_t Machine::needed_word(const Frame& object, const ObjectSpec& spec, size_t word) const {
  uint64_t needed = spec.required[word];
  if (!spec.has_needs) return needed;
  spend(spec.properties.size() / 4);
  for (size_t i = 0; i < spec.properties.size(); ++i) {
    if ((seen_word(object, i / 64) >> (i % 64) & 1) == 0) continue;
    for (const uint32_t other : spec.properties[i].needs) {
      if (other / 64 == word) needed |= uint64_t{1} << (other % 64);
    }
  }
  return needed;
}

// Of at most two members, one of which must be "a": behind {"b":1 there is room for "a" alone.
bool Machine::only_required(const Frame& object, const ObjectSpec& spec) const {
  return spec.members_max != kNoBound && object.count + object.missing >= spec.members_max;
}

// The properties that may still come.
uint64_t Machine::open_word(const Frame& object, const ObjectSpec& spec, size_t word) const {
  uint64_t open = ~(seen_word(object, word) | spec.forbidden[word]);
  if (only_required(object, spec)) open &= needed_word(object, spec, word);
  if (!spec.has_needs || spec.members_max == kNoBound) return open;
  // What a property brings with it must have room too.
  for (uint64_t left = open; left != 0; left &= left - 1) {
    const uint32_t bit = static_cast<uint32_t>(std::countr_zero(left));
    const uint32_t property = static_cast<uint32_t>(word * 64 + bit);
    if (property >= spec.properties.size()) break;
    if (object.count + 1 + missing_with(object, spec, property) > spec.members_max) {
      open &= ~(uint64_t{1} << bit);
    }
  }
  return open;
}

uint64_t Machine::missing_with(const Frame& object, const ObjectSpec& spec,
                               uint32_t property) const {
  uint64_t missing = 0;
  spend(spec.words());
  for (size_t word = 0; word < spec.words(); ++word) {
    uint64_t needed = needed_word(object, spec, word);
    for (const uint32_t other : spec.properties[property].needs) {
      if (other / 64 == word) needed |= uint64_t{1} << (other % 64);
    }
    if (property / 64 == word) needed &= ~(uint64_t{1} << (property % 64));
    missing += static_cast<uint64_t>(std::popcount(needed & ~seen_word(object, word)));
  }
  return missing;
}

bool Machine::any_open(const Frame& object, const ObjectSpec& spec, uint32_t begin,
                       uint32_t end) const {
  for (uint32_t word = begin / 64; begin < end; ++word) {
    const uint32_t word_end = std::min(end, (word + 1) * 64);
    const uint32_t length = word_end - begin;
    const uint64_t range = (length == 64 ? ~uint64_t{0} : (uint64_t{1} << length) - 1)
                           << (begin % 64);
    if ((open_word(object, spec, word) & range) != 0) return true;
    begin = word_end;
  }
  return false;
}

bool Machine::can_open_key(const Frame& object) const {
  const ObjectSpec& spec = object_of(object);
  if (object.count >= spec.members_max) return false;
  if (spec.others && !only_required(object, spec) &&
      has_new_key(object, {spec.others->dfa->table.start, 0, 0})) {
    return true;
  }
  return any_open(object, spec, 0, static_cast<uint32_t>(spec.properties.size()));
}

bool Machine::can_close_object(const Frame& object) const {
  const ObjectSpec& spec = object_of(object);
  return object.missing == 0 && object.count >= spec.members_min &&
         (object.state & spec.witnesses) == spec.witnesses;
}

void Machine::set_seen(Frame& object, const ObjectSpec& spec, uint32_t property) {
  const uint64_t bit = uint64_t{1} << (property % 64);
  spend(spec.words());
  if (spec.words() > 1) {
    const uint64_t place = words_.size();
    words_.resize(place + spec.words());
    std::copy_n(words_.begin() + static_cast<long>(object.bits), spec.words(),
                words_.begin() + static_cast<long>(place));
    words_[place + property / 64] |= bit;
    object.bits = place;
  } else {
    object.bits |= bit;
  }
  if (!spec.has_needs) {
    if ((spec.required[property / 64] & bit) != 0) --object.missing;
    return;
  }
  object.missing = 0;
  for (size_t word = 0; word < spec.words(); ++word) {
    object.missing += static_cast<uint32_t>(
        std::popcount(needed_word(object, spec, word) & ~seen_word(object, word)));
  }
}

const Choices* Machine::item_choices(const ArraySpec& spec, uint64_t index) const {
  if (index >= spec.items_max) return nullptr;
  if (index < spec.prefix.size()) return &spec.prefix[index];
  return spec.rest.empty() ? nullptr : &spec.rest;
}

bool Machine::can_close_array(const Frame& array) const {
  const ArraySpec& spec = json_->arrays[array.spec];
  if (array.count < spec.items_min) return false;
  for (size_t i = 0; i < spec.counters.size(); ++i) {
    if ((array.bits >> (16 * i) & 0xffff) < spec.counters[i].min) return false;
  }
  return true;
}

// Whether the array can end within `left` items behind the next one, all counters considered.
bool Machine::leaves_enough(const Frame& array, uint32_t counts, uint64_t left) const {
  const ArraySpec& spec = json_->arrays[array.spec];
  if (spec.items_needed.empty()) return true;
  uint64_t counted = array.bits;
  for (size_t i = 0; i < spec.counters.size(); ++i) {
    if ((counts >> i & 1) != 0 && (counted >> (16 * i) & 0xffff) < 0xffff) {
      counted += uint64_t{1} << (16 * i);
    }
  }
  const uint64_t items = array.count + 1;
  const uint16_t needed = spec.needed(items, spec.count_state(counted, items));
  return needed != ArraySpec::kNever && needed <= left;
}

// The next item, by each of its choices that leaves the counters within reach.
void Machine::open_items(const Frame& array, std::vector<uint32_t>& out, size_t out_begin) {
  const ArraySpec& spec = json_->arrays[array.spec];
  const Choices* choices = item_choices(spec, array.count);
  if (choices == nullptr) return;
  const uint64_t left = spec.items_max == kNoBound ? kNoBound : spec.items_max - array.count - 1;
  for (const Choice& choice : *choices) {
    bool possible = true;
    for (size_t i = 0; i < spec.counters.size(); ++i) {
      const uint64_t had = array.bits >> (16 * i) & 0xffff;
      const uint64_t count = had + (choice.counts >> i & 1);
      if (spec.counters[i].max != 0xffff && count > spec.counters[i].max) possible = false;
      if (count < spec.counters[i].min && spec.counters[i].min - count > left) possible = false;
      // Enough already, and no more counting is needed: the plain choice stands for this one.
      if (spec.counters[i].max == 0xffff && count > spec.counters[i].min && count > had) {
        possible = false;
      }
    }
    if (!possible || !leaves_enough(array, choice.counts, left)) continue;
    Frame waiting = array;
    waiting.phase = static_cast<uint8_t>(Phase::kValue);
    waiting.spaces = 0;
    waiting.aux = choice.counts;
    const Frame item = {.parent = push(waiting),
                        .kind = FrameKind::kValue,
                        .spaces = array.spaces,
                        .watched = array.watched,
                        .spec = choice.value};
    push_top(item, out, out_begin);
  }
}

void Machine::step_array(uint32_t top, uint8_t byte, std::vector<uint32_t>& out, size_t out_begin) {
  if (skip_space(top, byte, out, out_begin)) return;
  Frame frame = frames_[top];
  const Phase phase = static_cast<Phase>(frame.phase);
  if (byte == ']' && phase != Phase::kComma) {
    if (can_close_array(frame)) finish(top, finished(frame.hash), out, out_begin);
    return;
  }
  if (phase == Phase::kAfter) {
    if (byte != ',') return;
    frame.spaces = 0;
    open_items(frame, out, out_begin);
    return;
  }
  // Just opened: the first byte of the first item.
  std::vector<uint32_t> items;
  frame.spaces = 0;
  open_items(frame, items, 0);
  step(items, byte, out, out_begin);
}

}  // namespace pelton::grammar
