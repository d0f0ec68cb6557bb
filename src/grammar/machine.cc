#include "grammar/machine.h"

#include <algorithm>
#include <iterator>

namespace pelton::grammar {
namespace {

constexpr uint64_t kPrime = 0x9e3779b97f4a7c15;

bool same_but_parents(const Frame& a, const Frame& b) {
  return a.kind == b.kind && a.spec == b.spec && a.state == b.state && a.phase == b.phase &&
         a.count == b.count && a.aux == b.aux && a.aux2 == b.aux2 && a.bits == b.bits &&
         a.spaces == b.spaces && a.watched == b.watched && a.extras == b.extras &&
         a.missing == b.missing && a.hash == b.hash;
}

}  // namespace

Machine::Machine(const Grammar& grammar, WorkBudget& budget) : grammar_(grammar), budget_(budget) {
  json_ = grammar.json();
  rules_ = grammar.rules();
}

void Machine::start() {
  frames_.clear();
  links_.clear();
  words_.clear();
  tops_.clear();
  ways_.recent_calls.clear();
  overflowed_ = false;
  push({.kind = FrameKind::kRoot});
  if (rules_ != nullptr) {
    ways_.clear();
    arrive(rules_->rule_starts[0], 0);
    follow_rules(tops_, 0);
  } else {
    push_top({.kind = FrameKind::kValue, .spaces = kNoSpace, .spec = json_->root}, tops_, 0);
  }
}

void Machine::load(const Position& position) {
  frames_ = position.frames;
  links_ = position.links;
  words_ = position.words;
  tops_ = position.tops;
  ways_.recent_calls.clear();
  overflowed_ = false;
  spend(frames_.size() / 8 + links_.size() / 16);
}

void Machine::take_back(const Mark& mark) {
  frames_.resize(mark.frames);
  links_.resize(mark.links);
  words_.resize(mark.words);
}

uint32_t Machine::push(const Frame& frame) {
  spend(1);
  if (frames_.size() >= kFramesMax) overflowed_ = true;
  frames_.push_back(frame);
  return static_cast<uint32_t>(frames_.size() - 1);
}

// `parents` are sorted.
uint32_t Machine::add_links(std::span<const uint32_t> parents) {
  spend(parents.size() / 4);
  if (links_.size() + parents.size() >= kLinksMax) {
    overflowed_ = true;
    return 0;
  }
  const auto place = static_cast<uint32_t>(links_.size());
  links_.push_back(static_cast<uint32_t>(parents.size()));
  links_.insert(links_.end(), parents.begin(), parents.end());
  return place | kManyParents;
}

void Machine::push_top(Frame frame, std::vector<uint32_t>& out, size_t out_begin) {
  // A key looks into its object, so it keeps it to itself.
  if (frame.kind != FrameKind::kKey) {
    spend(1 + (out.size() - out_begin) / 8);
    for (size_t i = out_begin; i < out.size(); ++i) {
      if (same_but_parents(frames_[out[i]], frame)) return join(out[i], frame);
    }
  }
  if (out.size() - out_begin >= kTopsMax) {
    overflowed_ = true;
    return;
  }
  out.push_back(push(frame));
}

// One frame with the parents of both: a new one, so that frames stay younger than their parents.
// Lists of parents are sorted.
void Machine::join(uint32_t& top, const Frame& frame) {
  if (frames_[top].parent == frame.parent) return;
  std::vector<uint32_t> before, more, parents;
  for_parents(frames_[top], [&](uint32_t parent) { before.push_back(parent); });
  for_parents(frame, [&](uint32_t parent) { more.push_back(parent); });
  std::set_union(before.begin(), before.end(), more.begin(), more.end(),
                 std::back_inserter(parents));
  spend(1 + parents.size() / 2);
  if (parents.size() == before.size()) return;
  Frame joined = frame;
  joined.parent = add_links(parents);
  top = push(joined);
}

void Machine::step(std::span<const uint32_t> tops, uint8_t byte, std::vector<uint32_t>& out,
                   size_t out_begin) {
  // Nothing shows that a number is over but what comes after it, so what stands below steps too.
  std::vector<uint32_t> after_numbers;
  new_members_.clear();
  spend(1 + tops.size());
  bool lost = budget_.exhausted();
  if (lost) return;
  for (const uint32_t top : tops) {
    if (frames_[top].kind != FrameKind::kNumber || !number_ends(frames_[top], byte)) continue;
    resume_parents(top, number_hash(frames_[top]), after_numbers, 0);
    lost = lost || overflowed_;
  }
  overflowed_ = lost;
  if (rules_ != nullptr) ways_.clear();
  step_tops(tops, byte, out, out_begin);
  if (!after_numbers.empty()) step_tops(after_numbers, byte, out, out_begin);
  if (rules_ != nullptr) follow_rules(out, out_begin);
  if (json_ != nullptr && !json_->values_at_least.empty()) keep_new(out, out_begin);
  if (overflowed_) out.resize(out_begin);
}

void Machine::step_tops(std::span<const uint32_t> tops, uint8_t byte, std::vector<uint32_t>& out,
                        size_t out_begin) {
  for (const uint32_t top : tops) {
    if (overflowed_) return;
    const Frame from = frames_[top];  // a copy: frames_ may grow
    switch (from.kind) {
      case FrameKind::kValue:
        if (!skip_space(top, byte, out, out_begin)) step_value(from, byte, out, out_begin);
        break;
      case FrameKind::kString:
        step_string(from, byte, out, out_begin);
        break;
      case FrameKind::kNumber:
        step_number(top, byte, out, out_begin);
        break;
      case FrameKind::kLiteral:
        step_literal(from, top, byte, out, out_begin);
        break;
      case FrameKind::kObject:
        step_object(top, byte, out, out_begin);
        break;
      case FrameKind::kKey:
        step_key(from, byte, out, out_begin);
        break;
      case FrameKind::kArray:
        step_array(top, byte, out, out_begin);
        break;
      case FrameKind::kRule:
      case FrameKind::kLexeme:
        step_rule(from, byte, out, out_begin);
        break;
      default:
        break;
    }
  }
}

bool Machine::skip_space(uint32_t top, uint8_t byte, std::vector<uint32_t>& out, size_t out_begin) {
  if (!is_json_space(byte)) return false;
  Frame frame = frames_[top];
  if (frame.spaces >= json_->whitespace_max) return true;
  ++frame.spaces;
  push_top(frame, out, out_begin);
  return true;
}

void Machine::resume_parents(uint32_t top, uint64_t hash, std::vector<uint32_t>& out,
                             size_t out_begin) {
  overflowed_ = budget_.exhausted();
  new_members_.clear();
  if (rules_ != nullptr) ways_.clear();
  finish(top, hash, out, out_begin);
  if (rules_ != nullptr) follow_rules(out, out_begin);
  if (overflowed_) out.resize(out_begin);
}

// As resume_parents, amid a step: what rules make of it follows with the step's other ways.
void Machine::finish(uint32_t top, uint64_t hash, std::vector<uint32_t>& out, size_t out_begin) {
  const Frame frame = frames_[top];
  if ((frame.parent & kManyParents) == 0) return resume(frame.parent, hash, out, out_begin);
  std::vector<uint32_t> parents;
  for_parents(frame, [&](uint32_t parent) { parents.push_back(parent); });
  spend(parents.size());
  for (const uint32_t parent : parents) {
    if (overflowed_) return;
    resume(parent, hash, out, out_begin);
  }
}

void Machine::resume(uint32_t parent, uint64_t hash, std::vector<uint32_t>& out, size_t out_begin) {
  Frame frame = frames_[parent];
  switch (frame.kind) {
    case FrameKind::kRoot:
      push_top({.parent = parent, .kind = FrameKind::kDone}, out, out_begin);
      return;
    case FrameKind::kProbe:
      push_top({.parent = parent, .kind = FrameKind::kExit}, out, out_begin);
      return;
    case FrameKind::kCall:
      for_parents(frame, [&](uint32_t caller) { arrive(frame.spec, caller); });
      return;
    case FrameKind::kObject:
      // Members may come in any order: their sum is the object.
      if (frame.watched != 0) {
        uint64_t member = (hash ^ frame.aux2) * kPrime;
        member ^= member >> 29;
        frame.hash += member * kPrime;
      }
      ++frame.count;
      frame.phase = static_cast<uint8_t>(Phase::kAfter);
      frame.spaces = 0;
      if ((frame.watched & kInOrder) == 0) frame.aux = 0;
      frame.aux2 = 0;
      push_top(frame, out, out_begin);
      return;
    case FrameKind::kArray: {
      const ArraySpec& spec = json_->arrays[frame.spec];
      if (spec.unique) {
        if (was_there(frame.extras, hash)) return;
        frame.extras = member_frame(frame.extras, hash);
      }
      if (frame.watched != 0) frame.hash = (frame.hash ^ hash) * kPrime + (frame.hash >> 31);
      for (size_t i = 0; i < spec.counters.size(); ++i) {
        const uint64_t count = (frame.bits >> (16 * i)) & 0xffff;
        if ((frame.aux >> i & 1) != 0 && count < 0xffff) frame.bits += uint64_t{1} << (16 * i);
      }
      ++frame.count;
      frame.phase = static_cast<uint8_t>(Phase::kAfter);
      frame.spaces = 0;
      frame.aux = 0;
      if (is_searching_ && !has_found_ && std::ranges::find(goals_, parent) != goals_.end()) {
        has_found_ = surely_new(frame, array_ways(frame));
        found_ = frame;
      }
      push_top(frame, out, out_begin);
      return;
    }
    default:
      return;
  }
}

// Ways that differ in what their items count for have the same items: one list of them, so that
// they meet again where they have counted the same.
uint32_t Machine::member_frame(uint32_t extras, uint64_t hash) {
  for (const uint32_t member : new_members_) {
    if (frames_[member].parent == extras && frames_[member].hash == hash) return member;
  }
  new_members_.push_back(push({.parent = extras, .kind = FrameKind::kMember, .hash = hash}));
  return new_members_.back();
}

bool Machine::was_there(uint32_t extras, uint64_t hash) const {
  for (; extras != 0; extras = frames_[extras].parent) {
    spend(1);
    if (frames_[extras].hash == hash) return true;
  }
  return false;
}

bool Machine::can_end(uint32_t top) const {
  const Frame& frame = frames_[top];
  if (frame.kind == FrameKind::kDone) return true;
  return frame.kind == FrameKind::kNumber && number_may_end(frame) && ends_below(frame);
}

// Whether the text is over once this frame is done: the rules below it may end where they stand.
bool Machine::ends_below(const Frame& frame) const {
  std::vector<uint32_t> todo;
  std::vector<bool> met(frames_.size(), false);
  const auto add = [&](uint32_t parent) {
    if (!met[parent]) todo.push_back(parent);
    met[parent] = true;
  };
  for_parents(frame, add);
  for (size_t i = 0; i < todo.size(); ++i) {
    spend(1);
    const Frame& below = frames_[todo[i]];
    if (below.kind == FrameKind::kRoot) return true;
    if (below.kind != FrameKind::kCall || !rules_->states[below.spec].accepting) continue;
    for_parents(below, add);
  }
  return false;
}

uint32_t Machine::probe(const Frame& frame) {
  Frame copy = frame;
  copy.parent = push({.kind = FrameKind::kProbe});
  copy.hash = 0;
  return push(copy);
}

bool Machine::stands_on_probe(const Frame& frame) const {
  bool on_probe = false;
  for_parents(frame, [&](uint32_t parent) {
    on_probe = on_probe || frames_[parent].kind == FrameKind::kProbe;
  });
  return on_probe;
}

uint64_t Machine::shared_content(const Frame& frame) const {
  // Beside rules anything may follow a number, so what it allows is not what it allows in JSON.
  if (json_ == nullptr || rules_ != nullptr) return 0;
  if (frame.kind == FrameKind::kValue) return json_->values[frame.spec].content;
  if (frame.kind == FrameKind::kNumber) return json_->values[frame.spec].number->content;
  return 0;
}

uint64_t Machine::spaces_left(const Frame& frame) const {
  if (frame.kind != FrameKind::kValue || frame.spaces >= json_->whitespace_max) return 0;
  return json_->whitespace_max - frame.spaces;
}

uint32_t Machine::named_keys_only(uint32_t top) {
  Frame copy = frames_[top];
  copy.state = kDeadState;
  return push(copy);
}

// Copies what the tops stand on, parents first, and gives it new numbers.
Position Machine::position(std::span<const uint32_t> tops) const {
  Position result;
  std::vector<uint32_t> renamed(frames_.size(), 0);
  std::vector<uint32_t> order;
  std::vector<uint32_t> todo(tops.begin(), tops.end());
  std::vector<uint8_t> met(frames_.size(), 0);
  while (!todo.empty()) {
    const uint32_t index = todo.back();
    todo.pop_back();
    if (met[index] != 0) continue;
    met[index] = 1;
    order.push_back(index);
    const Frame& frame = frames_[index];
    if (frame.kind == FrameKind::kRoot) continue;
    if (frame.kind == FrameKind::kMember) {
      if (frame.parent != 0) todo.push_back(frame.parent);
      continue;
    }
    for_parents(frame, [&](uint32_t parent) { todo.push_back(parent); });
    if (frame.extras != 0) todo.push_back(frame.extras);
  }
  // A frame is younger than what it stands on, so the old order will do. The root stays 0.
  std::sort(order.begin(), order.end());
  result.frames.reserve(order.size());
  if (order.empty() || order[0] != 0) result.frames.push_back(frames_[0]);
  for (const uint32_t index : order) {
    renamed[index] = static_cast<uint32_t>(result.frames.size());
    Frame frame = frames_[index];
    if (frame.kind == FrameKind::kMember) {
      if (frame.parent != 0) frame.parent = renamed[frame.parent];
    } else if (frame.kind != FrameKind::kRoot) {
      if (frame.extras != 0) frame.extras = renamed[frame.extras];
      if ((frame.parent & kManyParents) == 0) {
        frame.parent = frame.parent == 0 ? 0 : renamed[frame.parent];
      } else {
        const uint32_t place = frame.parent & ~kManyParents;
        frame.parent = static_cast<uint32_t>(result.links.size()) | kManyParents;
        result.links.push_back(links_[place]);
        for (uint32_t i = 1; i <= links_[place]; ++i) {
          const uint32_t parent = links_[place + i];
          result.links.push_back(parent == 0 ? 0 : renamed[parent]);
        }
      }
      if (frame.kind == FrameKind::kObject && object_of(frame).words() > 1) {
        const size_t words = object_of(frame).words();
        const uint64_t place = result.words.size();
        result.words.insert(result.words.end(), words_.begin() + static_cast<long>(frame.bits),
                            words_.begin() + static_cast<long>(frame.bits + words));
        frame.bits = place;
      }
    }
    result.frames.push_back(frame);
  }
  for (const uint32_t top : tops) {
    result.tops.push_back(renamed[top]);
    result.can_end = result.can_end || can_end(top);
  }
  spend(frames_.size() / 16 + order.size() + result.links.size() / 4);
  return result;
}

}  // namespace pelton::grammar
