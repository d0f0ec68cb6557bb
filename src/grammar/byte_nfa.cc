#include "grammar/byte_nfa.h"

#include <algorithm>
#include <unordered_map>

#include <fmt/format.h>

namespace pelton::grammar {

ByteNfa::State ByteNfa::add_state() {
  states_.emplace_back();
  return state_count() - 1;
}

void ByteNfa::add_range(State from, uint8_t low, uint8_t high, State to) {
  states_[from].arrows.push_back({low, high, to});
}

void ByteNfa::add_empty_step(State from, State to) {
  states_[from].empty_steps.push_back(to);
}

void ByteNfa::add_text(State from, std::string_view text, State to) {
  for (const char c : text) {
    const State next = add_state();
    const uint8_t byte = static_cast<uint8_t>(c);
    add_range(from, byte, byte, next);
    from = next;
  }
  add_empty_step(from, to);
}

void ByteNfa::add_language(State from, const ByteDfa& dfa, State to) {
  if (dfa.is_empty()) return;
  // The dfa's state s becomes first + s - 1: the dead one is left out.
  const State first = state_count();
  states_.resize(states_.size() + dfa.states() - 1);
  add_empty_step(from, first + dfa.start() - 1);
  for (DfaState s = 1; s < dfa.states(); ++s) {
    if (dfa.accepts(s)) add_empty_step(first + s - 1, to);
    for (int low = 0; low < 256;) {
      const DfaState target = dfa.next(s, static_cast<uint8_t>(low));
      int high = low;
      while (high < 255 && dfa.next(s, static_cast<uint8_t>(high + 1)) == target) ++high;
      if (target != kDeadState) {
        add_range(first + s - 1, static_cast<uint8_t>(low), static_cast<uint8_t>(high),
                  first + target - 1);
      }
      low = high + 1;
    }
  }
}

// The subset construction. A subset is a sorted list of states, closed under empty steps, all lists
// in one vector. Of a | ab, with the arrows 0 -a-> 1, 0 -a-> 2, 2 -b-> 3, the empty steps 1 -> 4
// and 3 -> 4, and the end 4:
//   {0} -a-> {1, 2, 4}, which accepts, for it has the end, -b-> {3, 4}, which accepts too.
class ByteNfa::Subsets {
 public:
  Subsets(const ByteNfa& nfa, const DfaLimits& limits) : nfa_(nfa), limits_(limits) {
    std::array<bool, 257> starts_here{};
    for (const Node& node : nfa.states_) {
      for (const Arrow& arrow : node.arrows) {
        starts_here[arrow.low] = true;
        starts_here[arrow.high + 1u] = true;
      }
    }
    uint8_t letter = 0;
    for (size_t byte = 0; byte < 256; ++byte) {
      if (starts_here[byte] && byte > 0) ++letter;
      class_of_[byte] = letter;
    }
    letters_ = letter + 1u;
    targets_.resize(letters_);
    seen_.resize(nfa.state_count(), 0);
    table_ = DfaTable::with_letters(letters_);
    begins_ = {0, 0};
  }

  Result<ByteDfa> build(State start, State end) {
    std::vector<State> first = {start};
    close(first);
    table_.start = number_of(first, end);
    for (DfaState s = 1; s < table_.state_count(); ++s) {
      TRY(limits_.in_time(s));
      if (work_ > limits_.work_max) return over("steps", limits_.work_max);
      if (s > limits_.states_max) return over("states", limits_.states_max);
      if (table_.next.size() > limits_.cells_max) return over("cells", limits_.cells_max);
      if (members_.size() > limits_.cells_max) return over("members of sets", limits_.cells_max);
      spread(s);
      for (uint32_t letter = 0; letter < letters_; ++letter) {
        if (targets_[letter].empty()) continue;
        close(targets_[letter]);
        const DfaState to = number_of(targets_[letter], end);
        table_.at(s, letter) = to;
        targets_[letter].clear();
      }
    }
    return ByteDfa(class_of_, table_);
  }

 private:
  static Error over(std::string_view what, uint64_t limit) {
    return {ErrorCode::kDoesNotFit,
            fmt::format("the automaton would need more than {} {}", limit, what), ""};
  }

  // Where each letter leads from subset `s`, into targets_.
  void spread(DfaState s) {
    for (uint32_t i = begins_[s]; i < begins_[s + 1]; ++i) {
      for (const Arrow& arrow : nfa_.states_[members_[i]].arrows) {
        for (uint32_t letter = class_of_[arrow.low]; letter <= class_of_[arrow.high]; ++letter) {
          targets_[letter].push_back(arrow.to);
          ++work_;
        }
      }
    }
  }

  void close(std::vector<State>& subset) {
    ++round_;
    size_t kept = 0;
    for (size_t i = 0; i < subset.size(); ++i) {
      const State s = subset[i];
      if (seen_[s] == round_) continue;
      seen_[s] = round_;
      subset[kept++] = s;
    }
    subset.resize(kept);
    for (size_t i = 0; i < subset.size(); ++i) {
      for (const State to : nfa_.states_[subset[i]].empty_steps) {
        ++work_;
        if (seen_[to] == round_) continue;
        seen_[to] = round_;
        subset.push_back(to);
      }
    }
    std::sort(subset.begin(), subset.end());
    work_ += subset.size();
  }

  DfaState number_of(const std::vector<State>& subset, State end) {
    uint64_t hash = subset.size();
    for (const State s : subset) hash = (hash ^ s) * 0x9E3779B97F4A7C15ull, hash ^= hash >> 31;
    const auto [first, last] = by_hash_.equal_range(hash);
    for (auto at = first; at != last; ++at) {
      if (std::equal(subset.begin(), subset.end(), members_.begin() + begins_[at->second],
                     members_.begin() + begins_[at->second + 1])) {
        return at->second;
      }
    }
    const DfaState s = table_.add_state();
    members_.insert(members_.end(), subset.begin(), subset.end());
    begins_.push_back(static_cast<uint32_t>(members_.size()));
    table_.accepting[s] = std::binary_search(subset.begin(), subset.end(), end) ? 1 : 0;
    by_hash_.emplace(hash, s);
    return s;
  }

  const ByteNfa& nfa_;
  const DfaLimits& limits_;
  ByteDfa::ByteClasses class_of_{};
  uint32_t letters_ = 1;
  DfaTable table_;
  std::vector<State> members_;
  std::vector<uint32_t> begins_;  // subset s is members_[begins_[s] .. begins_[s + 1])
  std::unordered_multimap<uint64_t, DfaState> by_hash_;
  std::vector<std::vector<State>> targets_;
  std::vector<uint32_t> seen_;
  uint32_t round_ = 0;
  uint64_t work_ = 0;
};

Result<ByteDfa> ByteNfa::determinised(State start, State end, const DfaLimits& limits) const {
  return Subsets(*this, limits).build(start, end);
}

Result<ByteDfa> sequence_of(std::span<const ByteDfa> parts, const DfaLimits& limits) {
  ByteNfa nfa;
  const ByteNfa::State start = nfa.add_state();
  ByteNfa::State at = start;
  for (const ByteDfa& part : parts) {
    const ByteNfa::State next = nfa.add_state();
    nfa.add_language(at, part, next);
    at = next;
  }
  return nfa.determinised(start, at, limits);
}

Result<ByteDfa> alternatives_of(std::span<const ByteDfa> parts, const DfaLimits& limits) {
  ByteNfa nfa;
  const ByteNfa::State start = nfa.add_state();
  const ByteNfa::State end = nfa.add_state();
  for (const ByteDfa& part : parts) nfa.add_language(start, part, end);
  return nfa.determinised(start, end, limits);
}

Result<ByteDfa> repeat_of(const ByteDfa& part, RepeatBounds bounds, const DfaLimits& limits) {
  if (bounds.least > bounds.most) return ByteDfa();
  const uint64_t copies = bounds.most == kNoMaximum ? bounds.least + 1 : bounds.most;
  if (copies > limits.states_max || copies * part.states() > limits.states_max) {
    return Error{ErrorCode::kDoesNotFit,
                 fmt::format("{} repeats of {} states are more than the automaton's {} states",
                             copies, part.states(), limits.states_max),
                 ""};
  }
  ByteNfa nfa;
  const ByteNfa::State start = nfa.add_state();
  const ByteNfa::State end = nfa.add_state();
  ByteNfa::State at = start;
  for (uint64_t i = 0; i < copies; ++i) {
    if (i >= bounds.least) nfa.add_empty_step(at, end);
    const ByteNfa::State next = nfa.add_state();
    nfa.add_language(at, part, next);
    // The last copy of an endless repeat leads back to its own beginning.
    if (bounds.most == kNoMaximum && i + 1 == copies) nfa.add_empty_step(next, at);
    at = next;
  }
  nfa.add_empty_step(at, end);
  return nfa.determinised(start, end, limits);
}

}  // namespace pelton::grammar
