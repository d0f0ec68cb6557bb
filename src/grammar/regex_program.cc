#include "grammar/regex_program.h"

#include <algorithm>

#include <fmt/format.h>

namespace pelton::grammar {
namespace {

constexpr uint32_t kStepsMax = 200'000;
constexpr uint32_t kFailed = UINT32_MAX;

using Kind = RegexNode::Kind;
using Do = RegexStep::Kind;

// Writes steps back to front: what follows a part is there before the part is.
class Writer {
 public:
  explicit Writer(const RegexTree& tree) : tree_(tree) {}

  Result<RegexProgram> write(uint32_t root, RegexReach reach) {
    const bool open_end = reach == RegexReach::kSearch || reach == RegexReach::kPrefix;
    const bool open_start = reach == RegexReach::kSearch || reach == RegexReach::kSuffix;
    const uint32_t end = add({.kind = open_end ? Do::kMatched : Do::kEnd});
    program_.start = part(root, end);
    if (program_.start == kFailed) {
      return Error{
          ErrorCode::kDoesNotFit,
          fmt::format("the regular expression's repeats come to more than {} steps", kStepsMax),
          ""};
    }
    if (open_start && !begins_at_start(root)) {
      const uint32_t fork = add({.kind = Do::kFork, .other = program_.start});
      program_.steps[fork].to = add({.kind = Do::kAny, .to = fork});
      program_.start = fork;
    }
    return std::move(program_);
  }

 private:
  uint32_t add(RegexStep step) {
    program_.steps.push_back(step);
    return static_cast<uint32_t>(program_.steps.size() - 1);
  }

  std::vector<uint32_t> children(uint32_t node) const {
    std::vector<uint32_t> out;
    for (uint32_t c = tree_.nodes[node].child; c != kNoRegexNode; c = tree_.nodes[c].sibling) {
      out.push_back(c);
    }
    return out;
  }

  // The first step of a part that `next` follows. Repeats of nothing also count, so that they end.
  uint32_t part(uint32_t index, uint32_t next) {
    if (next == kFailed || ++visits_ > kStepsMax || program_.steps.size() > kStepsMax) {
      return kFailed;
    }
    const RegexNode& node = tree_.nodes[index];
    switch (node.kind) {
      case Kind::kEmpty:
        return next;
      case Kind::kSet:
        return add({.kind = Do::kLetters, .arg = node.set, .to = next});
      case Kind::kSequence: {
        const std::vector<uint32_t> parts = children(index);
        for (size_t i = parts.size(); i-- > 0;) next = part(parts[i], next);
        return next;
      }
      case Kind::kAlternatives:
        return alternatives(index, next);
      case Kind::kRepeat:
        return repeat(node, next);
      case Kind::kTextStart:
        return add({.kind = Do::kTextStart, .to = next});
      case Kind::kTextEnd:
        return add({.kind = Do::kTextEnd, .to = next});
      case Kind::kWordEdge:
        return add({.kind = node.negated ? Do::kNoWordEdge : Do::kWordEdge, .to = next});
      case Kind::kAhead:
        return add({.kind = node.negated ? Do::kNotAhead : Do::kAhead, .arg = index, .to = next});
      case Kind::kBehind:
        return behind(index, next);
    }
    return kFailed;
  }

  uint32_t alternatives(uint32_t index, uint32_t next) {
    uint32_t out = kFailed;
    const std::vector<uint32_t> branches = children(index);
    for (size_t i = branches.size(); i-- > 0;) {
      const uint32_t branch = part(branches[i], next);
      if (branch == kFailed) return kFailed;
      out = out == kFailed ? branch : add({.kind = Do::kFork, .to = branch, .other = out});
    }
    return out;
  }

  uint32_t repeat(const RegexNode& node, uint32_t next) {
    if (node.most == kEndless) {
      const uint32_t fork = add({.kind = Do::kFork, .other = next});
      const uint32_t body = part(node.child, fork);
      if (body == kFailed) return kFailed;
      program_.steps[fork].to = body;
      // x+ enters at the body of its own loop.
      next = node.least > 0 ? body : fork;
      for (uint32_t i = 1; i < node.least && next != kFailed; ++i) next = part(node.child, next);
      return next;
    }
    const uint32_t after = next;
    for (uint32_t i = node.least; i < node.most && next != kFailed; ++i) {
      const uint32_t body = part(node.child, next);
      if (body == kFailed) return kFailed;
      next = add({.kind = Do::kFork, .to = body, .other = after});
    }
    for (uint32_t i = 0; i < node.least && next != kFailed; ++i) next = part(node.child, next);
    return next;
  }

  uint32_t behind(uint32_t index, uint32_t next) {
    const auto known = std::find(program_.behinds.begin(), program_.behinds.end(), index);
    const uint32_t place = static_cast<uint32_t>(known - program_.behinds.begin());
    if (known == program_.behinds.end()) program_.behinds.push_back(index);
    const bool negated = tree_.nodes[index].negated;
    return add({.kind = negated ? Do::kNotBehind : Do::kBehind, .arg = place, .to = next});
  }

  // Whether every match of a part begins at the text's start: then a search need not move on.
  bool begins_at_start(uint32_t index) const {
    const RegexNode& node = tree_.nodes[index];
    switch (node.kind) {
      case Kind::kTextStart:
        return true;
      case Kind::kSequence: {
        return begins_at_start(node.child);
      }
      case Kind::kAlternatives: {
        const std::vector<uint32_t> branches = children(index);
        return std::all_of(branches.begin(), branches.end(),
                           [&](uint32_t branch) { return begins_at_start(branch); });
      }
      case Kind::kRepeat:
        return node.least > 0 && begins_at_start(node.child);
      default:
        return false;
    }
  }

  const RegexTree& tree_;
  RegexProgram program_;
  uint32_t visits_ = 0;
};

}  // namespace

Result<RegexProgram> regex_program(const RegexTree& tree, uint32_t root, RegexReach reach) {
  return Writer(tree).write(root, reach);
}

}  // namespace pelton::grammar
