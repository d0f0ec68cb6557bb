#include "grammar/ebnf_network.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "grammar/byte_nfa.h"
#include "grammar/letters.h"
#include "grammar/list_interner.h"

namespace pelton::grammar {
namespace {

using Kind = EbnfNode::Kind;

// A rule's automaton in the making: empty steps, bytes, and symbols (automata and calls).
struct SymbolNfa {
  struct Arrow {
    uint32_t first, last;  // bytes, or one symbol from 256 on
    uint32_t to;
  };
  struct State {
    std::vector<Arrow> arrows;
    std::vector<uint32_t> empty_steps;
  };
  std::vector<State> states;

  uint32_t add_state() {
    states.emplace_back();
    return static_cast<uint32_t>(states.size() - 1);
  }
};

constexpr uint32_t kFirstSymbol = 256;
constexpr uint32_t kStatesMax = 100'000;
constexpr uint32_t kNetworkStatesMax = 50'000;
// An automaton up to this size is written into the rules that speak of it.
constexpr uint32_t kInlineStatesMax = 12;
// What a rule that becomes one automaton may cost; past it, it stays a rule.
constexpr DfaLimits kRegularLimits = {
    .states_max = 2'000, .cells_max = 60'000, .work_max = 1'000'000};
constexpr int kRegularFailuresMax = 64;
constexpr uint64_t kWorkMax = 20'000'000;
// The machine follows calls on its stack, to twice this depth.
constexpr uint32_t kCallsInARowMax = 1'000;

// Letters of one rule's automaton: classes of bytes, then the symbols that occur.
struct Alphabet {
  std::array<uint32_t, 256> class_of{};
  std::vector<uint32_t> symbols;
  uint32_t byte_classes = 0;

  explicit Alphabet(const SymbolNfa& nfa) {
    std::array<bool, 257> starts{};
    for (const SymbolNfa::State& state : nfa.states) {
      for (const SymbolNfa::Arrow& arrow : state.arrows) {
        if (arrow.first >= kFirstSymbol) {
          symbols.push_back(arrow.first);
        } else {
          starts[arrow.first] = starts[arrow.last + 1] = true;
        }
      }
    }
    std::sort(symbols.begin(), symbols.end());
    symbols.erase(std::unique(symbols.begin(), symbols.end()), symbols.end());
    for (uint32_t byte = 0; byte < 256; ++byte) {
      if (starts[byte] || byte == 0) ++byte_classes;
      class_of[byte] = byte_classes - 1;
    }
  }
  uint32_t count() const { return byte_classes + static_cast<uint32_t>(symbols.size()); }
  uint32_t letter_of_symbol(uint32_t symbol) const {
    return byte_classes +
           static_cast<uint32_t>(std::lower_bound(symbols.begin(), symbols.end(), symbol) -
                                 symbols.begin());
  }
};

class Network {
 public:
  Network(EbnfTree tree, const CompileDeadline* deadline) : tree_(std::move(tree)) {
    limits_.deadline = deadline;
  }

  Result<EbnfResult> build() {
    TRY(find_reachable());
    TRY(check_names());
    remove_own_left_recursion();
    count_dependencies();
    find_rules_without_end();
    for (const uint32_t rule : reachable_) {
      if (ends_[rule] == 0) {
        return at_rule(rule, "the rule '{:.60}' has no end: every way through it comes back to it");
      }
    }
    find_nullable();
    make_regular_rules();
    if (regular_[tree_.start]) return EbnfResult{.regular = *regular_[tree_.start], .rules = {}};
    TRY(write_rules());
    TRY(check_left_recursion());
    return EbnfResult{.regular = std::nullopt, .rules = std::move(rules_)};
  }

 private:
  Error at_rule(uint32_t rule, std::string_view format) const {
    return tree_.error(ErrorCode::kInvalidArgument, tree_.rules[rule].at,
                       fmt::format(fmt::runtime(format), tree_.rules[rule].name));
  }
  Error too_large(std::string_view what, uint64_t limit) const {
    return {ErrorCode::kDoesNotFit,
            fmt::format("the grammar would need more than {} {}", limit, what), ""};
  }

  const EbnfNode& node(uint32_t index) const { return tree_.nodes[index]; }

  // Adds the nodes below `todo` that speak of a rule, each node once.
  void collect_rules(std::vector<uint32_t>& todo, std::vector<uint8_t>& seen,
                     std::vector<uint32_t>& out) const {
    while (!todo.empty()) {
      const uint32_t at = todo.back();
      todo.pop_back();
      if (seen[at] != 0) continue;
      seen[at] = 1;
      if (node(at).kind == Kind::kRule) out.push_back(at);
      todo.insert(todo.end(), node(at).children.begin(), node(at).children.end());
    }
  }

  Result<void> find_reachable() {
    std::vector<uint8_t> seen_rule(tree_.rules.size(), 0);
    std::vector<uint8_t> seen_node(tree_.nodes.size(), 0);
    std::vector<uint32_t> rules = {tree_.start};
    seen_rule[tree_.start] = 1;
    while (!rules.empty()) {
      const uint32_t rule = rules.back();
      rules.pop_back();
      reachable_.push_back(rule);
      std::vector<uint32_t> todo = {tree_.rules[rule].body};
      std::vector<uint32_t> spoken_of;
      collect_rules(todo, seen_node, spoken_of);
      for (const uint32_t at : spoken_of) {
        const uint32_t other = node(at).index;
        if (tree_.rules[other].body == kNoBody) {
          return tree_.error(ErrorCode::kInvalidArgument, node(at).at,
                             fmt::format("no rule is called '{:.60}'", tree_.rules[other].name));
        }
        if (seen_rule[other] != 0) continue;
        seen_rule[other] = 1;
        rules.push_back(other);
      }
    }
    std::sort(reachable_.begin(), reachable_.end());
    return {};
  }

  // Rules that nothing leads to must speak of known rules too: a slip of the pen is reported.
  Result<void> check_names() const {
    for (const EbnfNode& each : tree_.nodes) {
      if (each.kind == Kind::kRule && tree_.rules[each.index].body == kNoBody) {
        return tree_.error(ErrorCode::kInvalidArgument, each.at,
                           fmt::format("no rule is called '{:.60}'", tree_.rules[each.index].name));
      }
    }
    return {};
  }

  // a ::= a x | b becomes a ::= b x*.
  void remove_own_left_recursion() {
    for (const uint32_t rule : reachable_) {
      const uint32_t body = tree_.rules[rule].body;
      const uint32_t at = node(body).at;
      std::vector<uint32_t> branches = {body};
      if (node(body).kind == Kind::kAlternatives) branches = node(body).children;
      std::vector<uint32_t> others, tails;
      const auto is_self = [&](uint32_t part) {
        return node(part).kind == Kind::kRule && node(part).index == rule;
      };
      for (const uint32_t branch : branches) {
        if (is_self(branch)) continue;  // a ::= a says nothing
        if (node(branch).kind == Kind::kSequence && is_self(node(branch).children[0])) {
          std::vector<uint32_t> tail(node(branch).children.begin() + 1,
                                     node(branch).children.end());
          tails.push_back(tree_.add_parent(Kind::kSequence, std::move(tail), at));
        } else {
          others.push_back(branch);
        }
      }
      if (tails.empty() && others.size() == branches.size()) continue;
      if (others.empty()) continue;  // found to have no end
      uint32_t fresh = tree_.add_parent(Kind::kAlternatives, std::move(others), at);
      if (!tails.empty()) {
        const uint32_t tail = tree_.add_parent(Kind::kAlternatives, std::move(tails), at);
        const uint32_t repeat =
            tree_.add({.kind = Kind::kRepeat, .most = kUnlimited, .at = at, .children = {tail}});
        fresh = tree_.add({.kind = Kind::kSequence, .at = at, .children = {fresh, repeat}});
      }
      tree_.rules[rule].body = fresh;
    }
  }

  void count_dependencies() {
    used_by_.assign(tree_.rules.size(), {});
    uses_.assign(tree_.rules.size(), {});
    for (const uint32_t rule : reachable_) {
      std::vector<uint32_t> spoken_of;
      collect_rules_of(tree_.rules[rule].body, spoken_of);
      for (const uint32_t at : spoken_of) uses_[rule].push_back(node(at).index);
      std::sort(uses_[rule].begin(), uses_[rule].end());
      uses_[rule].erase(std::unique(uses_[rule].begin(), uses_[rule].end()), uses_[rule].end());
      for (const uint32_t other : uses_[rule]) used_by_[other].push_back(rule);
    }
  }
  // As collect_rules, without marks: a body is a tree, but for what is ignored in Lark.
  void collect_rules_of(uint32_t root, std::vector<uint32_t>& out) const {
    std::vector<uint32_t> todo = {root};
    while (!todo.empty()) {
      const uint32_t at = todo.back();
      todo.pop_back();
      if (node(at).kind == Kind::kRule) out.push_back(at);
      todo.insert(todo.end(), node(at).children.begin(), node(at).children.end());
    }
  }

  // Sets known[rule] for all rules of which `holds` says so, as long as that makes others hold.
  template <typename Holds>
  void spread(std::vector<uint8_t>& known, Holds holds) {
    known.assign(tree_.rules.size(), 0);
    std::vector<uint32_t> todo = reachable_;
    while (!todo.empty()) {
      const uint32_t rule = todo.back();
      todo.pop_back();
      if (known[rule] != 0 || !holds(tree_.rules[rule].body)) continue;
      known[rule] = 1;
      todo.insert(todo.end(), used_by_[rule].begin(), used_by_[rule].end());
    }
  }

  void find_rules_without_end() {
    spread(ends_, [this](uint32_t body) { return has_end(body); });
  }
  bool has_end(uint32_t index) const {
    const EbnfNode& at = node(index);
    const auto child = [this](uint32_t c) { return has_end(c); };
    switch (at.kind) {
      case Kind::kText:
        return true;
      case Kind::kSet:
        return !tree_.sets[at.index].ranges().empty();
      case Kind::kDfa:
        return !tree_.dfas[at.index].is_empty();
      case Kind::kValue:
        return true;
      case Kind::kRule:
        return ends_[at.index] != 0;
      case Kind::kSequence:
        return std::all_of(at.children.begin(), at.children.end(), child);
      case Kind::kAlternatives:
        return std::any_of(at.children.begin(), at.children.end(), child);
      case Kind::kRepeat:
        return at.least == 0 || has_end(at.children[0]);
    }
    return false;
  }

  void find_nullable() {
    spread(nullable_, [this](uint32_t body) { return is_nullable(body); });
  }
  bool is_nullable(uint32_t index) const {
    const EbnfNode& at = node(index);
    const auto child = [this](uint32_t c) { return is_nullable(c); };
    switch (at.kind) {
      case Kind::kText:
        return at.text.empty();
      case Kind::kSet:
      case Kind::kValue:
        return false;
      case Kind::kDfa:
        return tree_.dfas[at.index].accepts("");
      case Kind::kRule:
        return nullable_[at.index] != 0;
      case Kind::kSequence:
        return std::all_of(at.children.begin(), at.children.end(), child);
      case Kind::kAlternatives:
        return std::any_of(at.children.begin(), at.children.end(), child);
      case Kind::kRepeat:
        return at.least == 0 || is_nullable(at.children[0]);
    }
    return false;
  }

  // Rules that use no others but such rules, from the leaves up, as far as they stay small.
  void make_regular_rules() {
    regular_.assign(tree_.rules.size(), std::nullopt);
    std::vector<uint32_t> missing(tree_.rules.size(), 0);
    std::vector<uint32_t> todo;
    for (const uint32_t rule : reachable_) {
      missing[rule] = static_cast<uint32_t>(uses_[rule].size());
      if (missing[rule] == 0) todo.push_back(rule);
    }
    int failures = 0;
    while (!todo.empty() && failures < kRegularFailuresMax && limits_.in_time(0).ok()) {
      const uint32_t rule = todo.back();
      todo.pop_back();
      Result<ByteDfa> dfa = regular_rule(rule);
      if (!dfa.ok()) {
        ++failures;
        continue;
      }
      regular_[rule] = std::move(dfa).value();
      for (const uint32_t user : used_by_[rule]) {
        if (--missing[user] == 0) todo.push_back(user);
      }
    }
  }

  Result<ByteDfa> regular_rule(uint32_t rule) {
    ByteNfa nfa;
    const ByteNfa::State start = nfa.add_state();
    const std::optional<uint32_t> end = regular_part(nfa, tree_.rules[rule].body, start);
    if (!end) return too_large("states", kRegularLimits.states_max);
    return nfa.determinised(start, *end, limits_);
  }

  // Writes a part that begins at `from`; where it ends, or nothing if it grows too large.
  std::optional<uint32_t> regular_part(ByteNfa& nfa, uint32_t index, uint32_t from) {
    if (nfa.state_count() > 4 * kRegularLimits.states_max) return std::nullopt;
    const EbnfNode& at = node(index);
    switch (at.kind) {
      case Kind::kText: {
        const ByteNfa::State end = nfa.add_state();
        nfa.add_text(from, at.text, end);
        return end;
      }
      case Kind::kSet:
      case Kind::kDfa:
      case Kind::kRule: {
        const ByteNfa::State end = nfa.add_state();
        nfa.add_language(from, *leaf(at), end);
        return end;
      }
      case Kind::kSequence: {
        std::optional<uint32_t> here = from;
        for (const uint32_t child : at.children) {
          if (here) here = regular_part(nfa, child, *here);
        }
        return here;
      }
      case Kind::kAlternatives: {
        const ByteNfa::State end = nfa.add_state();
        for (const uint32_t child : at.children) {
          const std::optional<uint32_t> branch_end = regular_part(nfa, child, from);
          if (!branch_end) return std::nullopt;
          nfa.add_empty_step(*branch_end, end);
        }
        return end;
      }
      case Kind::kRepeat:
        return regular_repeat(nfa, at, from);
      case Kind::kValue:
        break;
    }
    return std::nullopt;
  }

  std::optional<uint32_t> regular_repeat(ByteNfa& nfa, const EbnfNode& at, uint32_t from) {
    // A place of its own, so that a way back does not lead before what stands in front.
    ByteNfa::State here = nfa.add_state();
    nfa.add_empty_step(from, here);
    const ByteNfa::State end = nfa.add_state();
    const uint32_t copies = at.most == kUnlimited ? std::max(at.least, 1u) : at.most;
    for (uint32_t i = 0; i < copies; ++i) {
      if (i >= at.least) nfa.add_empty_step(here, end);
      const std::optional<uint32_t> inside = regular_part(nfa, at.children[0], here);
      if (!inside) return std::nullopt;
      const ByteNfa::State after = nfa.add_state();
      nfa.add_empty_step(*inside, after);
      if (at.most == kUnlimited && i + 1 == copies) nfa.add_empty_step(after, here);
      here = after;
    }
    nfa.add_empty_step(here, end);
    return end;
  }

  // The automaton of a set, an automaton or a regular rule.
  const ByteDfa* leaf(const EbnfNode& at) {
    if (at.kind == Kind::kDfa) return &tree_.dfas[at.index];
    if (at.kind == Kind::kRule) return regular_[at.index] ? &*regular_[at.index] : nullptr;
    if (set_dfas_.size() <= at.index) set_dfas_.resize(tree_.sets.size());
    std::optional<ByteDfa>& dfa = set_dfas_[at.index];
    if (!dfa) dfa = dfa_of_set(tree_.sets[at.index]);
    return &*dfa;
  }

  static ByteDfa dfa_of_set(const CodePointSet& set) {
    const auto letters = Letters::of_sets(std::span(&set, 1), 10'000'000).value();
    DfaTable table = DfaTable::with_letters(letters.count());
    table.start = table.add_state();
    const DfaState end = table.add_state();
    table.accepting[end] = 1;
    for (const uint32_t letter : letters.of_set(0)) table.at(table.start, letter) = end;
    return letters.to_bytes(table, DfaLimits()).value();
  }

  Result<void> write_rules() {
    // The root first, then every rule that is called.
    number_of_rule_.assign(tree_.rules.size(), kNoBody);
    TRY(write_rule(tree_.start, true));
    for (size_t i = 0; i < called_.size(); ++i) {
      TRY(limits_.in_time(static_cast<uint32_t>(i)));
      TRY(write_rule(called_[i], false));
    }
    // Number 0 is the root; what is called comes after it, the root again if it calls itself.
    return {};
  }

  uint32_t call(uint32_t rule) {
    if (number_of_rule_[rule] == kNoBody) {
      called_.push_back(rule);
      number_of_rule_[rule] = static_cast<uint32_t>(called_.size());
    }
    return number_of_rule_[rule];
  }

  Result<void> write_rule(uint32_t rule, bool root) {
    SymbolNfa nfa;
    const uint32_t start = nfa.add_state();
    const std::optional<uint32_t> end = part(nfa, tree_.rules[rule].body, start);
    if (!end) return too_large("states", kStatesMax);
    TRY_ASSIGN(DfaTable table, determinised(nfa, start, *end));
    if (!root && table.accepting[table.start] != 0) {
      // Whoever calls it goes around it: this one need not be empty.
      const DfaState fresh = table.add_state();
      for (uint32_t letter = 0; letter < table.letter_count; ++letter) {
        table.at(fresh, letter) = table.at(table.start, letter);
      }
      table.start = fresh;
    }
    return write_states(minimised(table), Alphabet(nfa));
  }

  std::optional<uint32_t> part(SymbolNfa& nfa, uint32_t index, uint32_t from) {
    if (nfa.states.size() > kStatesMax || ++work_ > kWorkMax) return std::nullopt;
    const EbnfNode& at = node(index);
    switch (at.kind) {
      case Kind::kText: {
        for (const char c : at.text) {
          const uint32_t next = nfa.add_state();
          nfa.states[from].arrows.push_back(
              {static_cast<uint8_t>(c), static_cast<uint8_t>(c), next});
          from = next;
        }
        return from;
      }
      case Kind::kSet:
      case Kind::kDfa:
      case Kind::kRule:
        return leaf_part(nfa, at, from);
      case Kind::kValue: {
        const uint32_t end = nfa.add_state();
        nfa.states[from].arrows.push_back(symbol(at.index, Symbol::kValue, end));
        return end;
      }
      case Kind::kSequence: {
        std::optional<uint32_t> here = from;
        for (const uint32_t child : at.children) {
          if (here) here = part(nfa, child, *here);
        }
        return here;
      }
      case Kind::kAlternatives: {
        const uint32_t end = nfa.add_state();
        for (const uint32_t child : at.children) {
          const uint32_t branch = nfa.add_state();
          nfa.states[from].empty_steps.push_back(branch);
          const std::optional<uint32_t> branch_end = part(nfa, child, branch);
          if (!branch_end) return std::nullopt;
          nfa.states[*branch_end].empty_steps.push_back(end);
        }
        return end;
      }
      case Kind::kRepeat:
        return repeat_part(nfa, at, from);
    }
    return std::nullopt;
  }

  std::optional<uint32_t> leaf_part(SymbolNfa& nfa, const EbnfNode& at, uint32_t from) {
    const uint32_t end = nfa.add_state();
    const ByteDfa* dfa = leaf(at);
    if (dfa == nullptr) {
      nfa.states[from].arrows.push_back(symbol(call(at.index), Symbol::kCall, end));
      if (nullable_[at.index] != 0) nfa.states[from].empty_steps.push_back(end);
      return end;
    }
    if (dfa->accepts(dfa->start())) nfa.states[from].empty_steps.push_back(end);
    if (dfa->states() > kInlineStatesMax) {
      nfa.states[from].arrows.push_back(symbol(automaton(*dfa), Symbol::kDfa, end));
      return end;
    }
    const uint32_t first = static_cast<uint32_t>(nfa.states.size());
    for (DfaState s = 1; s < dfa->states(); ++s) nfa.add_state();
    if (!dfa->is_empty()) nfa.states[from].empty_steps.push_back(first + dfa->start() - 1);
    for (DfaState s = 1; s < dfa->states(); ++s) {
      if (dfa->accepts(s)) nfa.states[first + s - 1].empty_steps.push_back(end);
      for (uint32_t low = 0; low < 256;) {
        const DfaState to = dfa->next(s, static_cast<uint8_t>(low));
        uint32_t high = low;
        while (high < 255 && dfa->next(s, static_cast<uint8_t>(high + 1)) == to) ++high;
        if (to != kDeadState)
          nfa.states[first + s - 1].arrows.push_back({low, high, first + to - 1});
        low = high + 1;
      }
    }
    return end;
  }

  enum class Symbol : uint8_t { kDfa, kCall, kValue };
  static constexpr uint32_t kSymbolKinds = 3;
  static SymbolNfa::Arrow symbol(uint32_t index, Symbol kind, uint32_t to) {
    const uint32_t number = kFirstSymbol + index * kSymbolKinds + static_cast<uint32_t>(kind);
    return {number, number, to};
  }

  // Its place among the network's automata, without the empty text.
  uint32_t automaton(const ByteDfa& dfa) {
    DfaTable table = dfa.table();
    if (table.accepting[table.start] != 0) {
      const DfaState fresh = table.add_state();
      for (uint32_t letter = 0; letter < table.letter_count; ++letter) {
        table.at(fresh, letter) = table.at(table.start, letter);
      }
      table.start = fresh;
    }
    ByteDfa without_empty(dfa.byte_classes(), table);
    for (uint32_t i = 0; i < rules_.dfas.size(); ++i) {
      if (rules_.dfas[i] == without_empty) return i;
    }
    rules_.dfas.push_back(std::move(without_empty));
    return static_cast<uint32_t>(rules_.dfas.size() - 1);
  }

  std::optional<uint32_t> repeat_part(SymbolNfa& nfa, const EbnfNode& at, uint32_t from) {
    uint32_t here = nfa.add_state();
    nfa.states[from].empty_steps.push_back(here);
    const uint32_t end = nfa.add_state();
    const uint32_t copies = at.most == kUnlimited ? std::max(at.least, 1u) : at.most;
    for (uint32_t i = 0; i < copies; ++i) {
      if (i >= at.least) nfa.states[here].empty_steps.push_back(end);
      const std::optional<uint32_t> inside = part(nfa, at.children[0], here);
      if (!inside) return std::nullopt;
      const uint32_t after = nfa.add_state();
      nfa.states[*inside].empty_steps.push_back(after);
      if (at.most == kUnlimited && i + 1 == copies) nfa.states[after].empty_steps.push_back(here);
      here = after;
    }
    nfa.states[here].empty_steps.push_back(end);
    return end;
  }

  Result<DfaTable> determinised(const SymbolNfa& nfa, uint32_t start, uint32_t end) {
    const Alphabet alphabet(nfa);
    DfaTable table = DfaTable::with_letters(alphabet.count());
    ListInterner subsets;
    subsets.number_of({});
    std::vector<uint32_t> seen(nfa.states.size(), 0);
    uint32_t round = 0;
    const auto state_of = [&](std::vector<uint64_t> subset) {
      ++round;
      std::vector<uint64_t> closed;
      while (!subset.empty()) {
        const uint64_t s = subset.back();
        subset.pop_back();
        if (seen[s] == round) continue;
        seen[s] = round;
        // Only what reads, or ends, distinguishes subsets.
        if (!nfa.states[s].arrows.empty() || s == end) closed.push_back(s);
        const std::vector<uint32_t>& steps = nfa.states[s].empty_steps;
        subset.insert(subset.end(), steps.begin(), steps.end());
        work_ += 1 + steps.size();
      }
      std::sort(closed.begin(), closed.end());
      const uint32_t number = subsets.number_of(closed);
      if (number == table.state_count()) {
        table.add_state();
        table.accepting[number] = std::binary_search(closed.begin(), closed.end(), end) ? 1 : 0;
      }
      return number;
    };
    table.start = state_of({start});
    std::vector<std::vector<uint64_t>> targets(alphabet.count());
    for (DfaState s = 1; s < table.state_count(); ++s) {
      TRY(limits_.in_time(s));
      if (table.next.size() > 1'000'000 || table.state_count() > kNetworkStatesMax ||
          work_ > kWorkMax || subsets.members() > 1'000'000) {
        return too_large("states or steps", kNetworkStatesMax);
      }
      for (const uint64_t member : subsets.list(s)) {
        for (const SymbolNfa::Arrow& arrow : nfa.states[member].arrows) {
          const bool is_symbol = arrow.first >= kFirstSymbol;
          const uint32_t first =
              is_symbol ? alphabet.letter_of_symbol(arrow.first) : alphabet.class_of[arrow.first];
          const uint32_t last = is_symbol ? first : alphabet.class_of[arrow.last];
          for (uint32_t letter = first; letter <= last; ++letter)
            targets[letter].push_back(arrow.to);
          work_ += last - first + 1;
        }
      }
      for (uint32_t letter = 0; letter < alphabet.count(); ++letter) {
        if (targets[letter].empty()) continue;
        const DfaState to = state_of(std::exchange(targets[letter], {}));
        table.at(s, letter) = to;
      }
    }
    return table;
  }

  // Appends a rule's states to the network. Its number is that of the call that asked for it.
  Result<void> write_states(const DfaTable& table, const Alphabet& alphabet) {
    const uint32_t first = static_cast<uint32_t>(rules_.states.size());
    if (table.start == kDeadState) {
      // Nothing but the empty text, which callers take without a call: a state without a way on.
      rules_.rule_starts.push_back(first);
      rules_.states.emplace_back();
      return {};
    }
    rules_.rule_starts.push_back(first + table.start - 1);
    if (rules_.states.size() + table.state_count() > kNetworkStatesMax) {
      return too_large("states", kNetworkStatesMax);
    }
    for (DfaState s = 1; s < table.state_count(); ++s) {
      RuleNetwork::State state;
      state.accepting = table.accepting[s] != 0;
      for (uint32_t low = 0; low < 256;) {
        const DfaState to = table.at(s, alphabet.class_of[low]);
        uint32_t high = low;
        while (high < 255 && table.at(s, alphabet.class_of[high + 1]) == to) ++high;
        if (to != kDeadState) {
          state.bytes.push_back(
              {static_cast<uint8_t>(low), static_cast<uint8_t>(high), first + to - 1});
        }
        low = high + 1;
      }
      for (uint32_t i = 0; i < alphabet.symbols.size(); ++i) {
        const DfaState to = table.at(s, alphabet.byte_classes + i);
        if (to == kDeadState) continue;
        const uint32_t number = alphabet.symbols[i] - kFirstSymbol;
        const uint32_t index = number / kSymbolKinds;
        const uint32_t target = first + to - 1;
        switch (static_cast<Symbol>(number % kSymbolKinds)) {
          case Symbol::kDfa:
            state.dfas.push_back({index, target});
            break;
          case Symbol::kCall:
            state.calls.push_back({index, target});
            break;
          case Symbol::kValue:
            state.values.push_back({index, target});
            break;
        }
      }
      rules_.states.push_back(std::move(state));
    }
    return {};
  }

  // No rule reads nothing, so only what a start calls at once can come back to it.
  Result<void> check_left_recursion() const {
    const uint32_t count = static_cast<uint32_t>(rules_.rule_starts.size());
    std::vector<uint8_t> colour(count, 0);  // 1: on the way, 2: done
    std::vector<uint32_t> height(count, 0);
    for (uint32_t root = 0; root < count; ++root) {
      std::vector<std::pair<uint32_t, size_t>> way;
      if (colour[root] == 0) way.emplace_back(root, 0);
      colour[root] = std::max<uint8_t>(colour[root], 1);
      while (!way.empty()) {
        const uint32_t rule = way.back().first;
        const auto& calls = rules_.states[rules_.rule_starts[rule]].calls;
        if (way.back().second == calls.size()) {
          colour[rule] = 2;
          for (const RuleNetwork::CallEdge& call : calls) {
            height[rule] = std::max(height[rule], height[call.rule] + 1);
          }
          if (height[rule] > kCallsInARowMax) {
            return too_large("rules that each begin with the next", kCallsInARowMax);
          }
          way.pop_back();
          continue;
        }
        const uint32_t next = calls[way.back().second++].rule;
        if (colour[next] == 1) {
          return at_rule(next == 0 ? tree_.start : called_[next - 1],
                         "the rule '{:.60}' can begin with itself through other rules, or behind "
                         "a part that may be empty (left recursion); only a rule whose "
                         "alternative's first word is its own name is understood");
        }
        if (colour[next] == 0) {
          colour[next] = 1;
          way.emplace_back(next, 0);
        }
      }
    }
    return {};
  }

  EbnfTree tree_;
  DfaLimits limits_ = kRegularLimits;
  std::vector<uint32_t> reachable_;
  std::vector<std::vector<uint32_t>> uses_, used_by_;  // by rule
  std::vector<uint8_t> ends_, nullable_;
  std::vector<std::optional<ByteDfa>> regular_;
  std::vector<std::optional<ByteDfa>> set_dfas_;
  std::vector<uint32_t> called_;          // rule number i + 1 of the network
  std::vector<uint32_t> number_of_rule_;  // in the network
  RuleNetwork rules_;
  uint64_t work_ = 0;
};

}  // namespace

Result<EbnfResult> ebnf_network(EbnfTree tree, const CompileDeadline* deadline) {
  return Network(std::move(tree), deadline).build();
}

}  // namespace pelton::grammar
