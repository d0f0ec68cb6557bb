#include "grammar/regex_automaton.h"

#include <algorithm>
#include <unordered_set>

#include <fmt/format.h>

#include "grammar/list_interner.h"

namespace pelton::grammar {
namespace {

constexpr int kNestedAssertionsMax = 8;
constexpr uint32_t kNoDemands = 0;
constexpr int kStateBits = 24;  // of a demand: the state; above it, the automaton

using Do = RegexStep::Kind;

// All texts that `table` does not accept.
DfaTable inverted(const DfaTable& table) {
  DfaTable out = DfaTable::with_letters(table.letter_count);
  for (DfaState s = 0; s < table.state_count(); ++s) {
    out.accepting[out.add_state()] = table.accepting[s] == 0;
    for (uint32_t letter = 0; letter < table.letter_count; ++letter) {
      out.at(s + 1, letter) = table.at(s, letter) + 1;
    }
  }
  out.start = table.start + 1;
  return minimised(out);
}

Error too_large(std::string_view what, uint64_t limit) {
  return {ErrorCode::kDoesNotFit,
          fmt::format("the regular expression's automaton would need more than {} {}", limit, what),
          ""};
}

}  // namespace

// One subset construction. A thread is a step of the program and a set of demands, each an
// automaton in a state from which the rest of the text must be accepted; sets of demands are
// numbered. A state is what stands before, the states of the automata that run along, and its
// threads, before any assertion is asked: those depend on what follows.
class RegexAutomata::Subsets {
 public:
  Subsets(RegexAutomata& owner, RegexProgram program, std::vector<DfaTable> behinds, int depth)
      : owner_(owner),
        program_(std::move(program)),
        behinds_(std::move(behinds)),
        depth_(depth),
        targets_(owner.letters_.count()),
        seen_(program_.steps.size(), 0),
        table_(DfaTable::with_letters(owner.letters_.count())) {
    demands_.number_of({});  // kNoDemands
    advanced_.emplace_back();
    numbers_.number_of({});  // the dead state
  }

  Result<DfaTable> build(Before before) {
    std::vector<uint64_t> first = {static_cast<uint64_t>(before)};
    for (const DfaTable& behind : behinds_) first.push_back(behind.start);
    first.push_back(thread(program_.start, kNoDemands));
    table_.start = state_of(first);
    for (DfaState s = 1; s < table_.state_count(); ++s) {
      TRY(check_limits(s));
      TRY(expand(s));
    }
    return minimised(table_);
  }

 private:
  enum class Next : uint8_t { kTextEnd, kNoWord, kWord };

  static uint64_t thread(uint32_t step, uint32_t demands) { return uint64_t{step} << 32 | demands; }
  static uint32_t step_of(uint64_t thread) { return static_cast<uint32_t>(thread >> 32); }
  static uint32_t demands_of(uint64_t thread) { return static_cast<uint32_t>(thread); }
  size_t head_size() const { return 1 + behinds_.size(); }
  // Matched, whatever follows: kMatched, which the writer puts first, and nothing demanded.
  bool is_matched(uint64_t t) const {
    return t == thread(0, kNoDemands) && program_.steps[0].kind == Do::kMatched;
  }

  Result<void> check_limits(DfaState s) const {
    const DfaLimits& limits = owner_.limits_;
    TRY(limits.in_time(s));
    if (owner_.work_ > limits.work_max) return too_large("steps", limits.work_max);
    if (table_.state_count() > limits.states_max) return too_large("states", limits.states_max);
    if (table_.next.size() > limits.cells_max) return too_large("cells", limits.cells_max);
    if (numbers_.members() + demands_.members() + advanced_.size() * table_.letter_count >
        limits.cells_max) {
      return too_large("members of sets", limits.cells_max);
    }
    return {};
  }

  DfaState state_of(const std::vector<uint64_t>& list) {
    const uint32_t number = numbers_.number_of(list);
    if (number == table_.state_count()) table_.add_state();
    return number;
  }

  Result<void> expand(DfaState s) {
    const std::span<const uint64_t> list = numbers_.list(s);
    head_.assign(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(head_size()));
    seeds_.assign(list.begin() + static_cast<std::ptrdiff_t>(head_size()), list.end());
    if (seeds_.size() == 1 && is_matched(seeds_[0])) {
      table_.accepting[s] = 1;
      for (uint32_t letter = 0; letter < table_.letter_count; ++letter) table_.at(s, letter) = s;
      return {};
    }
    const bool words = owner_.tree_.has_word_edges;
    TRY(close(Next::kNoWord));
    spread(words ? 0 : -1);
    if (words) {
      TRY(close(Next::kWord));
      spread(1);
    }
    if (asked_) TRY(close(Next::kTextEnd));
    table_.accepting[s] = accepted_ ? 1 : 0;
    for (uint32_t letter = 0; letter < table_.letter_count; ++letter) {
      if (targets_[letter].empty()) continue;
      const DfaState to = state_after(letter);
      table_.at(s, letter) = to;
      targets_[letter].clear();
    }
    return {};
  }

  // Follows all that reads nothing, from seeds_ to the threads that wait for a letter, in waiting_.
  // Also says whether the end of the program is met, and whether `next` was asked for anything.
  Result<void> close(Next next) {
    ++round_;
    visited_.clear();
    waiting_.clear();
    accepted_ = asked_ = false;
    todo_ = seeds_;
    while (!todo_.empty()) {
      const uint64_t t = todo_.back();
      todo_.pop_back();
      ++owner_.work_;
      if (!is_new(t)) continue;
      const RegexStep& step = program_.steps[step_of(t)];
      switch (step.kind) {
        case Do::kLetters:
        case Do::kAny:
          waiting_.push_back(t);
          break;
        case Do::kMatched:
          waiting_.push_back(t);
          accepted_ = accepted_ || satisfied_at_end(demands_of(t));
          break;
        case Do::kEnd:
          accepted_ = accepted_ || satisfied_at_end(demands_of(t));
          break;
        case Do::kFork:
          todo_.push_back(thread(step.other, demands_of(t)));
          todo_.push_back(thread(step.to, demands_of(t)));
          break;
        case Do::kAhead:
        case Do::kNotAhead:
          TRY(demand(t, step));
          break;
        default:
          if (holds(step, next)) todo_.push_back(thread(step.to, demands_of(t)));
      }
    }
    return {};
  }

  bool is_new(uint64_t t) {
    // A thread that demands nothing covers all others at its step.
    uint32_t& seen = seen_[step_of(t)];
    if (seen == round_) return false;
    if (demands_of(t) != kNoDemands) return visited_.insert(t).second;
    seen = round_;
    return true;
  }

  bool holds(const RegexStep& step, Next next) {
    const Before before = static_cast<Before>(head_[0]);
    switch (step.kind) {
      case Do::kTextStart:
        return before == Before::kTextStart;
      case Do::kTextEnd:
        asked_ = true;
        return next == Next::kTextEnd;
      case Do::kWordEdge:
      case Do::kNoWordEdge:
        asked_ = true;
        return ((before == Before::kWord) != (next == Next::kWord)) == (step.kind == Do::kWordEdge);
      case Do::kBehind:
      case Do::kNotBehind:
        return (behinds_[step.arg].accepting[head_[1 + step.arg]] != 0) ==
               (step.kind == Do::kBehind);
      default:
        return false;
    }
  }

  // The thread goes on past a look ahead, and what that wants is one more demand.
  Result<void> demand(uint64_t t, const RegexStep& step) {
    TRY_ASSIGN(const uint32_t number,
               owner_.ahead(step.arg, static_cast<Before>(head_[0]), depth_ + 1));
    const Ahead& ahead = owner_.aheads_[number];
    const DfaState start = ahead.table.start;
    if (start == kDeadState) return {};
    if (ahead.satisfied[start] != 0) {
      todo_.push_back(thread(step.to, demands_of(t)));
      return {};
    }
    const std::span<const uint64_t> old = demands_.list(demands_of(t));
    std::vector<uint64_t> more(old.begin(), old.end());
    more.push_back(uint64_t{number} << kStateBits | start);
    todo_.push_back(thread(step.to, number_of_demands(more)));
    return {};
  }

  uint32_t number_of_demands(std::vector<uint64_t>& list) {
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
    const uint32_t number = demands_.number_of(list);
    if (number == advanced_.size()) advanced_.emplace_back();
    return number;
  }

  bool satisfied_at_end(uint32_t demands) const {
    for (const uint64_t one : demands_.list(demands)) {
      const DfaState state = one & ((1u << kStateBits) - 1);
      if (owner_.aheads_[one >> kStateBits].table.accepting[state] == 0) return false;
    }
    return true;
  }

  // The demands that are left after a letter, or kNoLetter if one cannot be met any more.
  uint32_t advanced(uint32_t demands, uint32_t letter) {
    if (demands == kNoDemands) return kNoDemands;
    if (advanced_[demands].empty()) advanced_[demands].assign(table_.letter_count, kUnknown);
    uint32_t& known = advanced_[demands][letter];
    if (known != kUnknown) return known;
    std::vector<uint64_t> left;
    for (const uint64_t one : demands_.list(demands)) {
      const Ahead& ahead = owner_.aheads_[one >> kStateBits];
      const DfaState to = ahead.table.at(one & ((1u << kStateBits) - 1), letter);
      if (to == kDeadState) return known = kNoLetter;
      if (ahead.satisfied[to] == 0) left.push_back((one >> kStateBits << kStateBits) | to);
    }
    owner_.work_ += left.size();
    const uint32_t number = number_of_demands(left);
    return advanced_[demands][letter] = number;
  }

  // Where the waiting threads go, by letter: all letters, or those (not) of words.
  void spread(int words_only) {
    const auto go = [&](uint64_t t, uint32_t to, uint32_t letter) {
      if (words_only >= 0 && owner_.is_word_[letter] != words_only) return;
      const uint32_t demands = advanced(demands_of(t), letter);
      if (demands != kNoLetter) targets_[letter].push_back(thread(to, demands));
    };
    for (const uint64_t t : waiting_) {
      const RegexStep& step = program_.steps[step_of(t)];
      if (step.kind == Do::kLetters) {
        for (const uint32_t letter : owner_.letters_.of_set(step.arg)) go(t, step.to, letter);
        owner_.work_ += owner_.letters_.of_set(step.arg).size();
      } else {
        const uint32_t to = step.kind == Do::kMatched ? step_of(t) : step.to;
        for (uint32_t letter = 0; letter < table_.letter_count; ++letter) go(t, to, letter);
        owner_.work_ += table_.letter_count;
      }
    }
  }

  DfaState state_after(uint32_t letter) {
    std::vector<uint64_t>& threads = targets_[letter];
    put_in_order(threads);
    owner_.work_ += threads.size();
    next_list_.clear();
    if (is_matched(threads[0])) {
      // Nothing else matters any more, nor what stands before.
      next_list_.assign(head_size(), 0);
      next_list_.push_back(threads[0]);
      return state_of(next_list_);
    }
    const bool word = owner_.tree_.has_word_edges && owner_.is_word_[letter] != 0;
    next_list_.push_back(static_cast<uint64_t>(word ? Before::kWord : Before::kNoWord));
    for (size_t i = 0; i < behinds_.size(); ++i) {
      next_list_.push_back(behinds_[i].at(static_cast<DfaState>(head_[i + 1]), letter));
    }
    next_list_.insert(next_list_.end(), threads.begin(), threads.end());
    return state_of(next_list_);
  }

  // Sorted, once each, and none that demands all that another at its step does, and more.
  void put_in_order(std::vector<uint64_t>& threads) {
    std::sort(threads.begin(), threads.end());
    threads.erase(std::unique(threads.begin(), threads.end()), threads.end());
    if (demands_.size() == 1) return;
    const auto covered = [&](uint64_t t, size_t from, size_t to) {
      const std::span<const uint64_t> many = demands_.list(demands_of(t));
      for (size_t i = from; i < to; ++i) {
        if (threads[i] == t) continue;
        const std::span<const uint64_t> few = demands_.list(demands_of(threads[i]));
        owner_.work_ += few.size();
        if (std::includes(many.begin(), many.end(), few.begin(), few.end())) return true;
      }
      return false;
    };
    std::vector<uint64_t> kept;
    for (size_t from = 0, to = 0; from < threads.size(); from = to) {
      while (to < threads.size() && step_of(threads[to]) == step_of(threads[from])) ++to;
      for (size_t i = from; i < to; ++i) {
        if (!covered(threads[i], from, to)) kept.push_back(threads[i]);
      }
    }
    threads = std::move(kept);
  }

  static constexpr uint32_t kUnknown = kNoLetter - 1;

  RegexAutomata& owner_;
  const RegexProgram program_;
  const std::vector<DfaTable> behinds_;
  const int depth_;
  ListInterner demands_;
  std::vector<std::vector<uint32_t>> advanced_;  // by number of demands: by letter
  ListInterner numbers_;                         // states
  std::vector<std::vector<uint64_t>> targets_;   // by letter
  std::vector<uint32_t> seen_;                   // by step: the round that met it
  uint32_t round_ = 0;
  std::unordered_set<uint64_t> visited_;  // in this round, of the threads with demands
  DfaTable table_;
  // Of the state at hand.
  std::vector<uint64_t> head_, seeds_, todo_, waiting_, next_list_;
  bool accepted_ = false;
  bool asked_ = false;
};

RegexAutomata::RegexAutomata(const RegexTree& tree, const Letters& letters, const DfaLimits& limits)
    : tree_(tree), letters_(letters), limits_(limits), is_word_(letters.count(), 0) {
  if (!tree.has_word_edges) return;
  for (const Letters::Run& run : letters.runs()) {
    if (word_characters().contains(run.first)) is_word_[run.letter] = 1;
  }
}

Result<DfaTable> RegexAutomata::build(uint32_t root, RegexReach reach) {
  return build(root, reach, Before::kTextStart, 0);
}

Result<DfaTable> RegexAutomata::build(uint32_t root, RegexReach reach, Before before, int depth) {
  if (depth > kNestedAssertionsMax) {
    return Error{ErrorCode::kDoesNotFit,
                 fmt::format("assertions nested deeper than {}", kNestedAssertionsMax), ""};
  }
  TRY_ASSIGN(RegexProgram program, regex_program(tree_, root, reach));
  std::vector<DfaTable> behinds;
  for (const uint32_t behind : program.behinds) {
    if (depth > 0) {
      return Error{ErrorCode::kUnsupported, "a look behind within another assertion", ""};
    }
    TRY_ASSIGN(RegexProgram inside,
               regex_program(tree_, tree_.nodes[behind].child, RegexReach::kSuffix));
    for (const RegexStep& step : inside.steps) {
      if (step.kind > Do::kTextStart && step.kind < Do::kEnd) {
        return Error{ErrorCode::kUnsupported, "an assertion within a look behind", ""};
      }
    }
    TRY_ASSIGN(DfaTable table,
               Subsets(*this, std::move(inside), {}, depth + 1).build(Before::kTextStart));
    behinds.push_back(std::move(table));
  }
  return Subsets(*this, std::move(program), std::move(behinds), depth).build(before);
}

Result<uint32_t> RegexAutomata::ahead(uint32_t node, Before before, int depth) {
  const auto known = ahead_numbers_.find({node, before});
  if (known != ahead_numbers_.end()) return known->second;
  TRY_ASSIGN(DfaTable table, build(tree_.nodes[node].child, RegexReach::kPrefix, before, depth));
  if (tree_.nodes[node].negated) table = inverted(table);
  Ahead ahead{.table = std::move(table), .satisfied = {}};
  for (DfaState s = 0; s < ahead.table.state_count(); ++s) {
    bool satisfied = ahead.table.accepting[s] != 0;
    for (uint32_t letter = 0; letter < letters_.count() && satisfied; ++letter) {
      satisfied = ahead.table.at(s, letter) == s;
    }
    ahead.satisfied.push_back(satisfied ? 1 : 0);
  }
  aheads_.push_back(std::move(ahead));
  const uint32_t number = static_cast<uint32_t>(aheads_.size() - 1);
  ahead_numbers_.emplace(std::pair(node, before), number);
  return number;
}

}  // namespace pelton::grammar
