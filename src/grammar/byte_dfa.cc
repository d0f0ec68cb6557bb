#include "grammar/byte_dfa.h"

#include <algorithm>
#include <unordered_map>

#include <fmt/format.h>

namespace pelton::grammar {

// The automaton of "tap" and "top". Classes, in the order of their first bytes: 0 all other bytes,
// 1 a and o (alike to every state: one column), 2 p, 3 t. States, in the order of a walk by
// breadth from the start; 0 is dead:
//   state      0  1  2  3  4
//   a, o       0  0  3  0  0
//   p          0  0  0  4  0
//   t          0  2  0  0  0       4 accepts
// The same language built in any other way gives the same classes and the same numbers.
namespace {

Error too_large(std::string_view what, uint64_t limit) {
  return {ErrorCode::kDoesNotFit,
          fmt::format("the automaton would need more than {} {}", limit, what), ""};
}

// The coarsest classes that both automata respect, and which of their columns each is.
struct CommonClasses {
  ByteDfa::ByteClasses class_of{};
  std::vector<std::pair<uint8_t, uint8_t>> columns;
};

CommonClasses common_classes(const ByteDfa& a, const ByteDfa& b) {
  CommonClasses common;
  std::unordered_map<uint32_t, uint8_t> seen;
  for (int byte = 0; byte < 256; ++byte) {
    const uint8_t in_a = a.class_of(static_cast<uint8_t>(byte));
    const uint8_t in_b = b.class_of(static_cast<uint8_t>(byte));
    const auto [at, fresh] =
        seen.emplace(in_a * 256u + in_b, static_cast<uint8_t>(common.columns.size()));
    if (fresh) common.columns.emplace_back(in_a, in_b);
    common.class_of[static_cast<size_t>(byte)] = at->second;
  }
  return common;
}

// Accepts where `accept(a accepts, b accepts)`; pairs of which `useful` says no are dead. A state
// is a pair of states, made when it is first reached. Of A = a | ab and B = ab | b, both with the
// states 1 start, 2 behind a, 3 the end:
//   (1, 1) -a-> (2, 2)   (1, 1) -b-> (dead, 3)   (2, 2) -b-> (3, 3)
// The intersection accepts in (3, 3) and takes (dead, 3) for dead, so it is ab; the difference A -
// B accepts in (2, 2) alone: a; the union keeps (dead, 3) and accepts in all three: a | ab | b.
template <typename Accept, typename Useful>
Result<ByteDfa> product(const ByteDfa& a, const ByteDfa& b, const DfaLimits& limits, Accept accept,
                        Useful useful) {
  const CommonClasses common = common_classes(a, b);
  const uint32_t letters = static_cast<uint32_t>(common.columns.size());
  DfaTable table = DfaTable::with_letters(letters);
  std::vector<std::pair<DfaState, DfaState>> pairs = {{kDeadState, kDeadState}};
  std::unordered_map<uint64_t, DfaState> number;
  const auto state_of_pair = [&](DfaState x, DfaState y) -> DfaState {
    if (!useful(x, y)) return kDeadState;
    const auto [at, fresh] = number.emplace(uint64_t{x} << 32 | y, table.state_count());
    if (fresh) {
      const DfaState s = table.add_state();
      table.accepting[s] = accept(a.accepts(x), b.accepts(y)) ? 1 : 0;
      pairs.emplace_back(x, y);
    }
    return at->second;
  };
  table.start = state_of_pair(a.start(), b.start());
  for (size_t i = 1; i < pairs.size(); ++i) {
    TRY(limits.in_time(static_cast<uint32_t>(i)));
    if (pairs.size() > limits.states_max) return too_large("states", limits.states_max);
    if (pairs.size() * letters > limits.cells_max) return too_large("cells", limits.cells_max);
    const auto [x, y] = pairs[i];
    for (uint32_t letter = 0; letter < letters; ++letter) {
      const DfaState to = state_of_pair(a.next_by_class(x, common.columns[letter].first),
                                        b.next_by_class(y, common.columns[letter].second));
      table.at(static_cast<DfaState>(i), letter) = to;
    }
  }
  return ByteDfa(common.class_of, table);
}

// Which classes a set of texts needs: each byte that occurs is one, all others are one more.
ByteDfa::ByteClasses classes_of_bytes(std::span<const std::string> texts, uint32_t& letters) {
  std::array<bool, 256> occurs{};
  for (const std::string& text : texts) {
    for (const char c : text) occurs[static_cast<uint8_t>(c)] = true;
  }
  ByteDfa::ByteClasses class_of{};
  const bool all = std::all_of(occurs.begin(), occurs.end(), [](bool b) { return b; });
  letters = all ? 0 : 1;
  for (size_t byte = 0; byte < 256; ++byte) {
    class_of[byte] = occurs[byte] ? static_cast<uint8_t>(letters++) : uint8_t{0};
  }
  return class_of;
}

}  // namespace

ByteDfa::ByteDfa() : table_(DfaTable::with_letters(1)) {}

ByteDfa::ByteDfa(const ByteClasses& class_of, const DfaTable& table)
    : class_of_(class_of), table_(minimised(table)) {
  merge_equal_columns();
}

void ByteDfa::merge_equal_columns() {
  const uint32_t states = table_.state_count();
  const uint32_t old_letters = table_.letter_count;
  // Two sums that differ distinguish columns; equal sums are compared.
  std::vector<uint64_t> sum(old_letters, 0);
  for (uint32_t s = 0; s < states; ++s) {
    for (uint32_t letter = 0; letter < old_letters; ++letter) {
      sum[letter] = (sum[letter] ^ table_.at(s, letter)) * 0x9E3779B97F4A7C15ull;
      sum[letter] ^= sum[letter] >> 29;
    }
  }
  const auto same = [&](uint32_t x, uint32_t y) {
    if (sum[x] != sum[y]) return false;
    for (uint32_t s = 0; s < states; ++s) {
      if (table_.at(s, x) != table_.at(s, y)) return false;
    }
    return true;
  };
  // Classes are numbered by their first byte, which makes them canonical.
  std::vector<int> renumbered(old_letters, -1);
  std::vector<uint32_t> kept;
  for (size_t byte = 0; byte < 256; ++byte) {
    const uint32_t old = class_of_[byte];
    if (renumbered[old] < 0) {
      const auto twin =
          std::find_if(kept.begin(), kept.end(), [&](uint32_t other) { return same(old, other); });
      renumbered[old] = static_cast<int>(twin - kept.begin());
      if (twin == kept.end()) kept.push_back(old);
    }
    class_of_[byte] = static_cast<uint8_t>(renumbered[old]);
  }
  DfaTable merged;
  merged.letter_count = static_cast<uint32_t>(kept.size());
  merged.accepting = table_.accepting;
  merged.next.resize(static_cast<size_t>(states) * kept.size());
  // Numbers follow a walk by breadth over the bytes in order, which the classes' order keeps.
  std::vector<DfaState> number(states, kDeadState);
  std::vector<DfaState> order = {kDeadState};
  if (table_.start != kDeadState) {
    number[table_.start] = 1;
    order.push_back(table_.start);
  }
  for (size_t i = 1; i < order.size(); ++i) {
    for (const uint32_t letter : kept) {
      const DfaState to = table_.at(order[i], letter);
      if (to == kDeadState || number[to] != kDeadState) continue;
      number[to] = static_cast<DfaState>(order.size());
      order.push_back(to);
    }
  }
  for (DfaState s = 0; s < states; ++s) {
    merged.accepting[s] = table_.accepting[order[s]];
    for (uint32_t i = 0; i < kept.size(); ++i) {
      merged.at(s, i) = number[table_.at(order[s], kept[i])];
    }
  }
  merged.start = table_.start == kDeadState ? kDeadState : 1;
  table_ = std::move(merged);
}

ByteDfa ByteDfa::literal(std::string_view text) {
  const std::string texts[] = {std::string(text)};
  uint32_t letters = 0;
  const ByteClasses class_of = classes_of_bytes(texts, letters);
  DfaTable table = DfaTable::with_letters(std::max(letters, 1u));
  table.start = table.add_state();
  DfaState at = table.start;
  for (const char c : text) {
    const DfaState to = table.add_state();
    table.at(at, class_of[static_cast<uint8_t>(c)]) = to;
    at = to;
  }
  table.accepting[at] = 1;
  return {class_of, table};
}

Result<ByteDfa> ByteDfa::any_of(std::span<const std::string> texts, const DfaLimits& limits) {
  uint32_t letters = 0;
  const ByteClasses class_of = classes_of_bytes(texts, letters);
  DfaTable table = DfaTable::with_letters(std::max(letters, 1u));
  table.start = table.add_state();
  for (const std::string& text : texts) {
    DfaState at = table.start;
    for (const char c : text) {
      const uint32_t letter = class_of[static_cast<uint8_t>(c)];
      DfaState to = table.at(at, letter);
      if (to == kDeadState) {
        to = table.add_state();
        table.at(at, letter) = to;
        TRY(limits.in_time(to));
        if (to >= limits.states_max) return too_large("states", limits.states_max);
        if (table.next.size() > limits.cells_max) return too_large("cells", limits.cells_max);
      }
      at = to;
    }
    table.accepting[at] = 1;
  }
  return ByteDfa(class_of, table);
}

ByteDfa ByteDfa::any_bytes() {
  DfaTable table = DfaTable::with_letters(1);
  table.start = table.add_state();
  table.at(table.start, 0) = table.start;
  table.accepting[table.start] = 1;
  return {ByteClasses{}, table};
}

ByteDfa ByteDfa::one_of(std::string_view bytes) {
  ByteClasses class_of{};
  for (const char c : bytes) class_of[static_cast<uint8_t>(c)] = 1;
  DfaTable table = DfaTable::with_letters(2);
  table.start = table.add_state();
  const DfaState end = table.add_state();
  table.at(table.start, 1) = end;
  table.accepting[end] = 1;
  return {class_of, table};
}

ByteDfa ByteDfa::any_utf8() {
  // RFC 3629, section 4: after E0, ED, F0 and F4 the second byte is narrower.
  enum : uint8_t { kAscii, k80, k90, kA0, kC2, kE0, kE1, kEd, kF0, kF1, kF4, kNever, kLetters };
  ByteClasses class_of{};
  const auto give = [&](int low, int high, uint8_t letter) {
    for (int byte = low; byte <= high; ++byte) class_of[static_cast<size_t>(byte)] = letter;
  };
  give(0x80, 0x8F, k80);
  give(0x90, 0x9F, k90);
  give(0xA0, 0xBF, kA0);
  give(0xC0, 0xC1, kNever);
  give(0xC2, 0xDF, kC2);
  give(0xE0, 0xE0, kE0);
  give(0xE1, 0xEF, kE1);
  give(0xED, 0xED, kEd);
  give(0xF0, 0xF0, kF0);
  give(0xF1, 0xF3, kF1);
  give(0xF4, 0xF4, kF4);
  give(0xF5, 0xFF, kNever);
  DfaTable table = DfaTable::with_letters(kLetters);
  const DfaState start = table.add_state();
  const DfaState one_more = table.add_state();
  const DfaState two_more = table.add_state();
  const DfaState three_more = table.add_state();
  const auto lead = [&](uint8_t letter, std::initializer_list<uint8_t> then, DfaState to) {
    const DfaState narrow = table.add_state();
    table.at(start, letter) = narrow;
    for (const uint8_t second : then) table.at(narrow, second) = to;
  };
  table.start = start;
  table.accepting[start] = 1;
  table.at(start, kAscii) = start;
  table.at(start, kC2) = one_more;
  table.at(start, kE1) = two_more;
  table.at(start, kF1) = three_more;
  for (const uint8_t tail : {k80, k90, kA0}) {
    table.at(one_more, tail) = start;
    table.at(two_more, tail) = one_more;
    table.at(three_more, tail) = two_more;
  }
  lead(kE0, {kA0}, one_more);
  lead(kEd, {k80, k90}, one_more);
  lead(kF0, {k90, kA0}, two_more);
  lead(kF4, {k80}, two_more);
  return {class_of, table};
}

DfaState ByteDfa::walk(DfaState state, std::string_view text) const {
  for (const char c : text) state = next(state, static_cast<uint8_t>(c));
  return state;
}

bool ByteDfa::accepts(std::string_view text) const {
  return accepts(walk(start(), text));
}

bool ByteDfa::accepts_all_after(DfaState state) const {
  // Minimal: all that accept everything are one state.
  if (!accepts(state)) return false;
  for (uint32_t letter = 0; letter < class_count(); ++letter) {
    if (next_by_class(state, letter) != state) return false;
  }
  return true;
}

std::optional<DfaState> ByteDfa::state_of(const ByteDfa& language) const {
  // Both are minimal: the part of us that accepts `language` is a copy of it, state by state. In
  // x[0-9]* that part is the state behind x for [0-9]*; for [0-8]* there is none.
  const CommonClasses common = common_classes(*this, language);
  const auto is_copy = [&](DfaState root) {
    std::vector<DfaState> ours(language.states(), kDeadState);
    std::vector<DfaState> todo = {language.start()};
    ours[language.start()] = root;
    while (!todo.empty()) {
      const DfaState theirs = todo.back();
      todo.pop_back();
      if (accepts(ours[theirs]) != language.accepts(theirs)) return false;
      for (const auto& [our_class, their_class] : common.columns) {
        const DfaState we = next_by_class(ours[theirs], our_class);
        const DfaState they = language.next_by_class(theirs, their_class);
        if ((we == kDeadState) != (they == kDeadState)) return false;
        if (they == kDeadState) continue;
        if (ours[they] == kDeadState) {
          ours[they] = we;
          todo.push_back(they);
        } else if (ours[they] != we) {
          return false;
        }
      }
    }
    return true;
  };
  if (language.is_empty()) return kDeadState;
  for (DfaState root = 1; root < states(); ++root) {
    if (is_copy(root)) return root;
  }
  return std::nullopt;
}

std::optional<uint64_t> ByteDfa::shortest_length() const {
  // States are numbered by breadth, but by bytes, so a level ends where its last state ends.
  std::vector<DfaState> level = {start()};
  std::vector<uint8_t> seen(states(), 0);
  for (uint64_t length = 0; !level.empty() && !is_empty(); ++length) {
    std::vector<DfaState> following;
    for (const DfaState s : level) {
      if (accepts(s)) return length;
      for (uint32_t letter = 0; letter < class_count(); ++letter) {
        const DfaState to = next_by_class(s, letter);
        if (to == kDeadState || seen[to] != 0) continue;
        seen[to] = 1;
        following.push_back(to);
      }
    }
    level = std::move(following);
  }
  return std::nullopt;
}

std::optional<uint64_t> ByteDfa::longest_length() const {
  if (is_empty()) return std::nullopt;
  // Every state lives: peel off, backwards, those that lead nowhere any more. What is left loops.
  std::vector<std::vector<DfaState>> from(states());
  std::vector<uint32_t> ways(states(), 0);
  for (DfaState s = 1; s < states(); ++s) {
    for (uint32_t letter = 0; letter < class_count(); ++letter) {
      const DfaState to = next_by_class(s, letter);
      if (to == kDeadState) continue;
      from[to].push_back(s);
      ++ways[s];
    }
  }
  std::vector<uint64_t> longest(states(), 0);
  std::vector<DfaState> todo;
  for (DfaState s = 1; s < states(); ++s) {
    if (ways[s] == 0) todo.push_back(s);
  }
  for (size_t i = 0; i < todo.size(); ++i) {
    for (const DfaState before : from[todo[i]]) {
      longest[before] = std::max(longest[before], longest[todo[i]] + 1);
      if (--ways[before] == 0) todo.push_back(before);
    }
  }
  if (todo.size() + 1 < states()) return std::nullopt;
  return longest[start()];
}

size_t ByteDfa::bytes_held() const {
  return sizeof(*this) + table_.next.size() * sizeof(DfaState) + table_.accepting.size();
}

Result<ByteDfa> union_of(const ByteDfa& a, const ByteDfa& b, const DfaLimits& limits) {
  return product(
      a, b, limits, [](bool x, bool y) { return x || y; },
      [](DfaState x, DfaState y) { return x != kDeadState || y != kDeadState; });
}

Result<ByteDfa> intersection(const ByteDfa& a, const ByteDfa& b, const DfaLimits& limits) {
  return product(
      a, b, limits, [](bool x, bool y) { return x && y; },
      [](DfaState x, DfaState y) { return x != kDeadState && y != kDeadState; });
}

Result<ByteDfa> difference(const ByteDfa& a, const ByteDfa& b, const DfaLimits& limits) {
  return product(
      a, b, limits, [](bool x, bool y) { return x && !y; },
      [](DfaState x, DfaState) { return x != kDeadState; });
}

ByteDfa complement(const ByteDfa& a) {
  // The dead state becomes one that accepts all, in a table with one more state.
  DfaTable table = DfaTable::with_letters(a.class_count());
  for (DfaState s = 0; s < a.states(); ++s) {
    const DfaState copy = table.add_state();
    table.accepting[copy] = a.accepts(s) ? 0 : 1;
    for (uint32_t letter = 0; letter < a.class_count(); ++letter) {
      table.at(copy, letter) = a.next_by_class(s, letter) + 1;
    }
  }
  table.start = a.start() + 1;
  return {a.byte_classes(), table};
}

}  // namespace pelton::grammar
