// The machine inside the text of strings and keys: JSON's escapes around an automaton over what
// they stand for. Both spellings of a character are taken, the raw one and the escape, but an
// escape is begun only where some way to end it is allowed, so that a mask never leads into a dead
// end.
//
// In a string of at most one character, \ud83d\ude00: phases kBackslash, kU, kU1, kU2, kU3; D83D is
// a high surrogate, so kLow and it stays in aux2; kLowBackslash, kLowU, kLow1, kLow2, kLow3, and
// then 10000 + (3D << 10) + 200 = 1F600 goes through the automaton as the bytes F0 9F 98 80: one
// character. Of the texts "a" and a line feed, \n and \u000a are taken, but \u0061 is not: where
// not every character may come, only control characters are spelled with \u.
#include <algorithm>
#include <string_view>

#include "grammar/machine.h"

namespace pelton::grammar {
namespace {

constexpr uint64_t kPrime = 0x9e3779b97f4a7c15;
constexpr uint32_t kOtherKey = 0x8000'0000;

// Where in an escape: "\", "\u", one, two, three digits; the same again for the low surrogate.
enum Escape : uint8_t {
  kPlain,
  kBackslash,
  kU,
  kU1,
  kU2,
  kU3,
  kLow,
  kLowBackslash,
  kLowU,
  kLow1,
  kLow2,
  kLow3
};

int hex_value(uint8_t byte) {
  if (byte >= '0' && byte <= '9') return byte - '0';
  if (byte >= 'a' && byte <= 'f') return byte - 'a' + 10;
  if (byte >= 'A' && byte <= 'F') return byte - 'A' + 10;
  return -1;
}

// What the letter after a backslash stands for, or -1.
int short_escape(uint8_t byte) {
  switch (byte) {
    case '"':
      return '"';
    case '\\':
      return '\\';
    case '/':
      return '/';
    case 'b':
      return '\b';
    case 'f':
      return '\f';
    case 'n':
      return '\n';
    case 'r':
      return '\r';
    case 't':
      return '\t';
    default:
      return -1;
  }
}

constexpr std::string_view kShortEscaped = "\"\\/\b\f\n\r\t";

uint64_t add_to_hash(uint64_t hash, uint8_t byte) {
  return (hash ^ byte) * kPrime + (hash >> 47);
}

// Where in the properties' names `byte` leads.
uint32_t child_of(const ObjectSpec& object, uint32_t node, uint8_t byte) {
  if (node == kNoNode) return kNoNode;
  const KeyTrieNode& parent = object.trie[node];
  for (uint32_t i = 0; i < parent.child_count; ++i) {
    if (object.trie[parent.child_begin + i].byte == byte) return parent.child_begin + i;
  }
  return kNoNode;
}

uint64_t finished_text(uint64_t hash) {
  constexpr uint64_t kTextSeed = 0x7e87;  // the empty text is not null
  return (hash + kTextSeed) * kPrime;
}

template <typename Feed>
bool feed_code_point(Frame& frame, uint32_t code, const Feed& feed) {
  if (code < 0x80) return feed(frame, static_cast<uint8_t>(code));
  if (code < 0x800) {
    return feed(frame, static_cast<uint8_t>(0xC0 | code >> 6)) &&
           feed(frame, static_cast<uint8_t>(0x80 | (code & 0x3F)));
  }
  if (code < 0x10000) {
    return feed(frame, static_cast<uint8_t>(0xE0 | code >> 12)) &&
           feed(frame, static_cast<uint8_t>(0x80 | (code >> 6 & 0x3F))) &&
           feed(frame, static_cast<uint8_t>(0x80 | (code & 0x3F)));
  }
  return feed(frame, static_cast<uint8_t>(0xF0 | code >> 18)) &&
         feed(frame, static_cast<uint8_t>(0x80 | (code >> 12 & 0x3F))) &&
         feed(frame, static_cast<uint8_t>(0x80 | (code >> 6 & 0x3F))) &&
         feed(frame, static_cast<uint8_t>(0x80 | (code & 0x3F)));
}

// Whether one of the control characters [first, first + count) may come next.
template <typename Feed>
bool takes_control(const Frame& frame, uint32_t first, uint32_t count, const Feed& feed) {
  for (uint32_t code = first; code < first + count; ++code) {
    Frame copy = frame;
    if (feed(copy, static_cast<uint8_t>(code))) return true;
  }
  return false;
}

template <typename Feed>
bool takes_escape(const Frame& frame, const Feed& feed) {
  if (feed.any_char(frame) || takes_control(frame, 0, 32, feed)) return true;
  for (const char c : kShortEscaped) {
    Frame copy = frame;
    if (feed(copy, static_cast<uint8_t>(c))) return true;
  }
  return false;
}

// Of characters that have no other spelling.
template <typename Feed>
bool needs_escape(const Frame& frame, const Feed& feed) {
  Frame quote = frame, backslash = frame;
  return takes_control(frame, 0, 32, feed) || feed(quote, '"') || feed(backslash, '\\');
}

// The next hexadecimal digit of \uXXXX; frame.aux2 holds those before it.
template <typename Feed>
bool step_hex(Frame& frame, uint8_t byte, const Feed& feed) {
  const int digit = hex_value(byte);
  if (digit < 0) return false;
  const bool any = feed.any_char(frame);
  const uint32_t value = frame.aux2 << 4 | static_cast<uint32_t>(digit);
  frame.aux2 = value;
  switch (frame.phase) {
    case kU:
      frame.phase = kU1;
      return any || value == 0;
    case kU1:
      frame.phase = kU2;
      return any ? value < 0xDC || value > 0xDF : value == 0;  // no low surrogate comes first
    case kU2:
      frame.phase = kU3;
      return any || (value <= 1 && takes_control(frame, value << 4, 16, feed));
    case kU3:
      if (any && value >= 0xD800 && value < 0xDC00) {
        frame.phase = kLow;
        return true;
      }
      if (!any && value >= 0x20) return false;
      frame.phase = kPlain;
      frame.aux2 = 0;
      return feed_code_point(frame, value, feed);
    case kLowU:
      frame.phase = kLow1;
      return digit == 0xD;
    case kLow1:
      frame.phase = kLow2;
      return digit >= 0xC;
    case kLow2:
      frame.phase = kLow3;
      return true;
    default: {
      // aux2 holds 16 bits of the high surrogate above those of the low one.
      const uint32_t high = value >> 16 & 0x3FF;
      frame.phase = kPlain;
      frame.aux2 = 0;
      return feed_code_point(frame, 0x10000 + (high << 10) + (value & 0x3FF), feed);
    }
  }
}

}  // namespace

template <typename Feed>
Machine::Text Machine::step_text(Frame& frame, uint8_t byte, const Feed& feed) const {
  const auto alive = [](bool yes) { return yes ? Text::kAlive : Text::kDead; };
  switch (frame.phase) {
    case kPlain:
      if (byte == '"') return Text::kClosed;
      if (byte < 0x20) return Text::kDead;
      if (byte != '\\') return alive(feed(frame, byte));
      // A search begins none for what has another spelling.
      if (!(is_searching_ ? needs_escape(frame, feed) : takes_escape(frame, feed))) {
        return Text::kDead;
      }
      frame.phase = kBackslash;
      return Text::kAlive;
    case kBackslash: {
      if (byte == 'u') {
        frame.phase = kU;
        frame.aux2 = 0;
        return alive(feed.any_char(frame) || takes_control(frame, 0, 32, feed));
      }
      const int code = short_escape(byte);
      frame.phase = kPlain;
      return alive(code >= 0 && feed(frame, static_cast<uint8_t>(code)));
    }
    case kLow:
      frame.phase = kLowBackslash;
      return alive(byte == '\\');
    case kLowBackslash:
      frame.phase = kLowU;
      return alive(byte == 'u');
    default:
      return alive(step_hex(frame, byte, feed));
  }
}

struct Machine::StringFeed {
  const StringSpec& spec;

  // The automaton and the length go on together: what is left of the length must do for the
  // shortest way to an end.
  bool operator()(Frame& frame, uint8_t byte) const {
    const StringDfa& text = *spec.text;
    const DfaState next = text.next(frame.state, byte);
    if (next == kDeadState) return false;
    if ((byte & 0xC0) != 0x80) ++frame.count;
    if (frame.count + text.chars_to_end[next] > spec.chars_max) return false;
    frame.state = next;
    if (frame.watched != 0) frame.hash = add_to_hash(frame.hash, byte);
    return true;
  }
  bool any_char(const Frame& frame) const {
    return spec.text->any_char[frame.state] != 0 &&
           (spec.chars_max == kNoBound ||
            frame.count + 1 + spec.text->chars_to_end_max <= spec.chars_max);
  }
};

void Machine::step_string(const Frame& from, uint8_t byte, std::vector<uint32_t>& out,
                          size_t out_begin) {
  Frame frame = from;
  const StringSpec& spec = string_spec(frame);
  switch (step_text(frame, byte, StringFeed{spec})) {
    case Text::kDead:
      return;
    case Text::kAlive:
      push_top(frame, out, out_begin);
      return;
    case Text::kClosed:
      break;
  }
  if (!spec.text->accepts(frame.state) || frame.count < spec.chars_min) return;
  const uint32_t top = push(frame);
  finish(top, finished_text(frame.hash), out, out_begin);
}

// A key goes on while it is the beginning of a property that may still come, or of another key.
struct Machine::KeyFeed {
  const Machine& machine;
  const Frame& object;
  const ObjectSpec& spec;
  bool others;

  bool operator()(Frame& frame, uint8_t byte) const {
    if (others && frame.state != kDeadState) {
      frame.state = spec.others->dfa->next(frame.state, byte);
    } else {
      frame.state = kDeadState;
    }
    bool named = false;
    if (frame.aux != kNoNode) {
      frame.aux = child_of(spec, frame.aux, byte);
      if (frame.aux != kNoNode) {
        const KeyTrieNode& child = spec.trie[frame.aux];
        named = machine.any_open(object, spec, child.key_begin, child.key_end);
      }
    }
    frame.hash = add_to_hash(frame.hash, byte);
    return named || frame.state != kDeadState;
  }
  bool any_char(const Frame& frame) const {
    return others && frame.state != kDeadState && spec.others->dfa->any_char[frame.state] != 0;
  }
};

bool Machine::others_allowed(const Frame& key) const {
  const ObjectSpec& spec = object_of(key);
  return spec.others && key.state != kDeadState && !only_required(frames_[key.parent], spec);
}

void Machine::open_key(uint32_t object_top, std::vector<uint32_t>& out, size_t out_begin) {
  const Frame& object = frames_[object_top];
  const ObjectSpec& spec = object_of(object);
  push_top({.parent = object_top,
            .kind = FrameKind::kKey,
            .watched = object.watched,
            .spec = object.spec,
            .state = spec.others ? spec.others->dfa->table.start : kDeadState},
           out, out_begin);
}

void Machine::step_key(const Frame& from, uint8_t byte, std::vector<uint32_t>& out,
                       size_t out_begin) {
  Frame frame = from;
  const ObjectSpec& spec = object_of(frame);
  const KeyFeed feed{*this, frames_[frame.parent], spec, others_allowed(frame)};
  switch (step_text(frame, byte, feed)) {
    case Text::kDead:
      return;
    case Text::kAlive:
      if (frame.state != kDeadState && frame.phase == kPlain &&
          !has_new_key(frames_[frame.parent], {frame.state, frame.aux, frame.hash})) {
        frame.state = kDeadState;
        const KeyTrieNode* const named = frame.aux == kNoNode ? nullptr : &spec.trie[frame.aux];
        if (named == nullptr ||
            !any_open(frames_[frame.parent], spec, named->key_begin, named->key_end))
          return;
      }
      push_top(frame, out, out_begin);
      return;
    case Text::kClosed:
      break;
  }
  close_key(frame, out, out_begin);
}

// False: no step from there by that byte leads anywhere. Texts take few of the 256.
bool Machine::any_takes(std::span<const uint32_t> tops, uint8_t byte) const {
  if (byte == '"' || byte == '\\') return true;
  return std::ranges::any_of(tops, [&](uint32_t top) {
    const Frame& frame = frames_[top];
    if (frame.phase != kPlain) return true;
    if (frame.kind == FrameKind::kString) {
      return string_spec(frame).text->next(frame.state, byte) != kDeadState;
    }
    if (frame.kind != FrameKind::kKey) return true;
    const ObjectSpec& spec = object_of(frame);
    const bool is_other = spec.others && spec.others->dfa->next(frame.state, byte) != kDeadState;
    return is_other || child_of(spec, frame.aux, byte) != kNoNode;
  });
}

// Whether what begins there may become another key that the object lacks. Mostly that is clear by
// counting: of more keys than the object has members and properties one is new.
bool Machine::has_new_key(const Frame& object, const KeyPlace& from) const {
  const ObjectSpec& spec = object_of(object);
  const uint64_t taken = object.count + spec.properties.size();
  if (spec.others->counts->at_least(from.state, kNoBound, 0) > taken) return true;
  constexpr int64_t kKeyWorkMax = 20'000;  // what takes longer counts as found
  return finds_new_key(object, from, 0, budget_.done() + kKeyWorkMax);
}

bool Machine::finds_new_key(const Frame& object, const KeyPlace& from, int depth,
                            int64_t end) const {
  constexpr int kDepthMax = 256;
  spend(8);
  if (depth == kDepthMax || budget_.done() > end || budget_.exhausted()) return true;
  const ObjectSpec& spec = object_of(object);
  const StringDfa& keys = *spec.others->dfa;
  const bool is_named = from.node != kNoNode && spec.trie[from.node].key != kNoValue;
  if (keys.accepts(from.state) && !is_named && !was_there(object.extras, from.hash)) return true;
  for (int byte = 0; byte < 256; ++byte) {
    const DfaState next = keys.next(from.state, static_cast<uint8_t>(byte));
    if (next == kDeadState) continue;
    const KeyPlace to = {next, child_of(spec, from.node, static_cast<uint8_t>(byte)),
                         add_to_hash(from.hash, static_cast<uint8_t>(byte))};
    if (finds_new_key(object, to, depth + 1, end)) return true;
  }
  return false;
}

void Machine::close_key(const Frame& key, std::vector<uint32_t>& out, size_t out_begin) {
  const ObjectSpec& spec = object_of(key);
  Frame object = frames_[key.parent];
  const uint32_t property = key.aux == kNoNode ? kNoValue : spec.trie[key.aux].key;
  if (property != kNoValue) {
    // A property's own name is never one of the other keys.
    if ((open_word(object, spec, property / 64) >> (property % 64) & 1) == 0) return;
    if (is_searching_) {
      if ((object.watched & kInOrder) != 0 && property < object.aux) return;
      object.watched |= kInOrder;
    }
    set_seen(object, spec, property);
    object.aux = property;
  } else {
    if (!others_allowed(key) || !spec.others->dfa->accepts(key.state)) return;
    if (was_there(object.extras, key.hash)) return;
    object.watched &= static_cast<uint8_t>(~kInOrder);
    object.extras = push({.parent = object.extras, .kind = FrameKind::kMember, .hash = key.hash});
    const int32_t label = spec.others->dfa->label.empty() ? 0 : spec.others->dfa->label[key.state];
    object.aux = kOtherKey | static_cast<uint32_t>(label);
  }
  object.aux2 = static_cast<uint32_t>(key.hash >> 32 ^ key.hash);
  object.phase = static_cast<uint8_t>(Phase::kColon);
  object.spaces = 0;
  push_top(object, out, out_begin);
}

}  // namespace pelton::grammar
