#include "grammar/json_tables.h"

#include <algorithm>
#include <deque>

#include "grammar/char_loops.h"
#include "grammar/regex.h"

namespace pelton::grammar {
namespace {

uint64_t mixed(uint64_t hash, uint64_t value) {
  hash ^= value + 0x9e3779b97f4a7c15 + (hash << 6) + (hash >> 2);
  hash *= 0xff51afd7ed558ccd;
  return hash ^ (hash >> 32);
}

uint64_t content_of(const ByteDfa::ByteClasses& classes, const DfaTable& table,
                    const std::vector<int32_t>& labels) {
  uint64_t hash = mixed(table.start, table.letter_count);
  for (const uint8_t c : classes) hash = mixed(hash, c);
  for (const DfaState state : table.next) hash = mixed(hash, state);
  for (const uint8_t accepting : table.accepting) hash = mixed(hash, accepting);
  for (const int32_t label : labels) hash = mixed(hash, static_cast<uint32_t>(label));
  return hash | 1;
}

bool takes_any_char(const StringDfa& dfa, DfaState state) {
  for (int byte = 0; byte < 0x80; ++byte) {
    if (dfa.next(state, static_cast<uint8_t>(byte)) == kDeadState) return false;
  }
  return takes_wide(dfa, state, [](DfaState) { return true; });
}

}  // namespace

StringDfa::StringDfa(const ByteDfa& automaton)
    : class_of(automaton.byte_classes()), table(automaton.table()) {
  measure();
}

StringDfa::StringDfa(const ByteDfa::ByteClasses& classes, DfaTable automaton,
                     std::vector<int32_t> labels)
    : class_of(classes), table(std::move(automaton)), label(std::move(labels)) {
  measure();
}

// chars_to_end is a search by breadth backwards from the accepting states, where a byte inside a
// character takes nothing. Of ab | U+00E9 (C3 A9): the start needs 1 character (not 2, nor two
// bytes), behind a 1, behind C3 none.
void StringDfa::measure() {
  content = content_of(class_of, table, label);
  const uint32_t states = table.state_count();
  // A character is counted at its first byte. A column may stand for first and later bytes at once
  // only where it is all the same: there the smaller weight may be taken, which is right for "at
  // least".
  std::vector<uint32_t> weight(table.letter_count, 1);
  for (int byte = 0x80; byte < 0xC0; ++byte) weight[class_of[static_cast<size_t>(byte)]] = 0;
  struct Edge {
    DfaState from;
    uint32_t weight;
  };
  std::vector<uint32_t> begin(states + 1, 0);
  for (size_t i = 0; i < table.next.size(); ++i) begin[table.next[i]]++;
  uint32_t total = 0;
  for (uint32_t& b : begin) {
    const uint32_t count = b;
    b = total;
    total += count;
  }
  std::vector<Edge> into(total);
  std::vector<uint32_t> fill(begin.begin(), begin.end() - 1);
  for (DfaState state = 0; state < states; ++state) {
    for (uint32_t letter = 0; letter < table.letter_count; ++letter) {
      into[fill[table.at(state, letter)]++] = {.from = state, .weight = weight[letter]};
    }
  }
  constexpr uint32_t kFar = 0x7fff'ffff;
  chars_to_end.assign(states, kFar);
  std::deque<DfaState> queue;
  for (DfaState state = 1; state < states; ++state) {
    if (!accepts(state)) continue;
    chars_to_end[state] = 0;
    queue.push_back(state);
  }
  while (!queue.empty()) {
    const DfaState state = queue.front();
    queue.pop_front();
    for (uint32_t i = begin[state]; i < begin[state + 1]; ++i) {
      const uint32_t chars = chars_to_end[state] + into[i].weight;
      if (into[i].from == kDeadState || chars >= chars_to_end[into[i].from]) continue;
      chars_to_end[into[i].from] = chars;
      if (into[i].weight == 0) {
        queue.push_front(into[i].from);
      } else {
        queue.push_back(into[i].from);
      }
    }
  }
  chars_to_end_max = 0;
  for (DfaState state = 1; state < states; ++state) {
    if (chars_to_end[state] < kFar)
      chars_to_end_max = std::max(chars_to_end_max, chars_to_end[state]);
  }
  loops.assign(states, 0);
  for (DfaState state = 1; state < states; ++state) loops[state] = loops_of(*this, state);
  any_char.assign(states, 0);
  for (DfaState state = 1; state < states; ++state) any_char[state] = takes_any_char(*this, state);
}

size_t StringDfa::bytes_held() const {
  return sizeof(*this) + table.next.capacity() * 4 + table.accepting.capacity() +
         label.capacity() * 4 + chars_to_end.capacity() * 4 + any_char.capacity();
}

uint64_t ArraySpec::count_states() const {
  constexpr uint64_t kMany = 1 << 20;
  uint64_t states = counts_items ? std::min(kMany, items_min) + 1 : 1;
  for (const Counter& counter : counters) {
    states *= uint64_t{counter.max == 0xffff ? counter.min : counter.max} + 1;
    states = std::min(kMany, states);
  }
  return states;
}

// A number whose digits are the counts, cut at what is distinguished, each with a base of its own.
// Of the counters {min 1} and {min 0, max 2} there are 2 * 3 states; counts of 3 and 1 become 1 and
// 1: state 1 + 2 * 1 = 3.
uint64_t ArraySpec::count_state(uint64_t counts, uint64_t items) const {
  uint64_t state = counts_items ? std::min(items, items_min) : 0;
  for (size_t i = counters.size(); i-- > 0;) {
    const uint32_t most = counters[i].max == 0xffff ? counters[i].min : counters[i].max;
    state = state * (most + 1) + std::min<uint64_t>(counts >> (16 * i) & 0xffff, most);
  }
  return state;
}

// Texts of at most 0, 1, 2, ... bytes, by state: an accepted end, or a byte and what follows it. Of
// [ab]{1,2}, from the start: none of 0 bytes, 2 of at most 1, 2 * (1 + 2) = 6 of at most 2, and as
// many ever after; so at_least(start, 1 byte, 0) is 2, and [ab]{1,2} never has enough, [ab]* has.
TextCounts::TextCounts(const StringDfa& dfa)
    : start(dfa.table.start),
      texts(dfa.table.state_count(), 0),
      bytes_to_enough(dfa.table.state_count(), kNever) {
  const uint32_t states = dfa.table.state_count();
  std::vector<uint32_t> bytes(dfa.table.letter_count, 0);
  for (const uint8_t letter : dfa.class_of) ++bytes[letter];
  for (uint32_t length = 0; length <= kBytesMax; ++length) {
    std::vector<uint32_t> longer(states, 0);
    for (DfaState state = 1; state < states; ++state) {
      uint64_t sum = dfa.accepts(state) ? 1 : 0;
      for (uint32_t letter = 0; letter < dfa.table.letter_count && sum < kEnough; ++letter) {
        sum += uint64_t{bytes[letter]} * texts[dfa.table.at(state, letter)];
      }
      longer[state] = static_cast<uint32_t>(std::min<uint64_t>(sum, kEnough));
      if (sum >= kEnough) bytes_to_enough[state] = std::min(bytes_to_enough[state], length);
    }
    texts.swap(longer);
    if (length <= kShortMax) short_texts.insert(short_texts.end(), texts.begin(), texts.end());
  }
  for (DfaState state = 1; state < states; ++state) {
    bytes_to_enough_max = std::max(bytes_to_enough_max, bytes_to_enough[state]);
  }
}

// Of [1-9][0-9]? values_at_least says 90 at the start, for 10, 20, ... 90 end with a zero and are
// not counted; count_values says 99.
NumberDfa::NumberDfa(ByteDfa automaton)
    : dfa(std::move(automaton)), content(content_of(dfa.byte_classes(), dfa.table(), {})) {
  // Digits that end with another than 0 are different numbers, behind the point as before it.
  constexpr int kDigits = 6;
  constexpr uint32_t kEnough = 1'000'000;
  const auto accepted = [&](DfaState state) { return dfa.accepts(state) ? 1u : 0u; };
  std::vector<uint32_t> longer(dfa.states(), 0);
  for (int round = 0; round < kDigits; ++round) {
    std::vector<uint32_t> sum(dfa.states(), 0);
    for (DfaState state = 1; state < dfa.states(); ++state) {
      sum[state] = longer[dfa.next(state, '0')];
      for (uint8_t digit = '1'; digit <= '9'; ++digit) {
        const DfaState next = dfa.next(state, digit);
        sum[state] = std::min(kEnough, sum[state] + accepted(next) + longer[next]);
      }
    }
    longer.swap(sum);
  }
  for (DfaState state = 0; state < dfa.states(); ++state) longer[state] += accepted(state);
  values_at_least = std::move(longer);
  any_digit_matters.assign(dfa.states(), 0);
  for (bool changed = true; changed;) {
    changed = false;
    for (DfaState state = dfa.states(); state-- > 1;) {
      bool matters = any_digit_matters[dfa.next(state, '0')] != 0;
      for (uint8_t digit = '1'; digit <= '9'; ++digit) {
        matters = matters || dfa.next(state, digit) != kDeadState;
      }
      if (!matters || any_digit_matters[state] != 0) continue;
      any_digit_matters[state] = 1;
      changed = true;
    }
  }
}

// A number is spelled in many ways (5, 5.0, 5.00), but in one without zeros that could be left out:
// those are counted, by length. None of these automata takes a number without taking that.
uint64_t NumberDfa::count_values(uint64_t most) const {
  static const ByteDfa kShortest =
      *compile_regex("-?[1-9][0-9]*(?:\\.[0-9]*[1-9])?|-?0\\.[0-9]*[1-9]|0",
                     {.match = RegexOptions::Match::kWhole});
  const Result<ByteDfa> shortest = intersection(dfa, kShortest, DfaLimits());
  if (!shortest.ok() || !shortest->longest_length()) return most + 1;
  std::vector<uint64_t> ways(shortest->states(), 0);
  ways[shortest->start()] = 1;
  uint64_t total = 0;
  for (uint64_t length = 0; length <= *shortest->longest_length() && total <= most; ++length) {
    std::vector<uint64_t> next(shortest->states(), 0);
    for (DfaState state = 1; state < shortest->states(); ++state) {
      if (ways[state] == 0) continue;
      if (shortest->accepts(state)) total += ways[state];
      for (const char byte : std::string_view("-.0123456789")) {
        uint64_t& there = next[shortest->next(state, static_cast<uint8_t>(byte))];
        there = std::min(most + 1, there + ways[state]);
      }
    }
    next[kDeadState] = 0;
    ways.swap(next);
  }
  return std::min(total, most + 1);
}

size_t ObjectSpec::bytes_held() const {
  size_t bytes = sizeof(*this) + trie.capacity() * sizeof(KeyTrieNode);
  for (const Property& property : properties) {
    bytes += sizeof(property) + property.key.capacity() + property.needs.capacity() * 4 +
             property.choices.capacity() * sizeof(Choice);
  }
  return bytes;
}

ValueId append_tables(JsonTables& to, JsonTables from) {
  const auto values = static_cast<ValueId>(to.values.size());
  const auto arrays = static_cast<uint32_t>(to.arrays.size());
  const auto objects = static_cast<uint32_t>(to.objects.size());
  const auto move_choices = [&](Choices& choices) {
    for (Choice& choice : choices) choice.value += values;
  };
  if (!to.values_at_least.empty() || !from.values_at_least.empty()) {
    to.values_at_least.resize(to.values.size(), 1);
    from.values_at_least.resize(from.values.size(), 1);
    to.values_at_least.insert(to.values_at_least.end(), from.values_at_least.begin(),
                              from.values_at_least.end());
  }
  for (ValueSpec& value : from.values) {
    for (uint32_t& array : value.arrays) array += arrays;
    for (uint32_t& object : value.objects) object += objects;
    to.values.push_back(std::move(value));
  }
  for (ArraySpec& array : from.arrays) {
    for (Choices& choices : array.prefix) move_choices(choices);
    move_choices(array.rest);
    to.arrays.push_back(std::move(array));
  }
  for (ObjectSpec& object : from.objects) {
    for (ObjectSpec::Property& property : object.properties) move_choices(property.choices);
    if (object.others) {
      auto others = std::make_shared<OtherKeys>(*object.others);
      for (Choices& choices : others->classes) move_choices(choices);
      object.others = std::move(others);
    }
    to.objects.push_back(std::move(object));
  }
  to.bytes_held += from.bytes_held;
  return from.root + values;
}

// Of the keys id (0), ids (1) and to (2), level by level:
//   node  byte  children  keys    key         node  byte  children  keys    key
//   0     -     1, 2      [0, 3)  -           3     d     5         [0, 2)  0
//   1     i     3         [0, 2)  -           4     o     -         [2, 3)  2
//   2     t     4         [2, 3)  -           5     s     -         [1, 2)  1
void build_key_trie(ObjectSpec& object) {
  std::vector<KeyTrieNode>& trie = object.trie;
  trie.clear();
  trie.push_back({.key_end = static_cast<uint32_t>(object.properties.size())});
  std::vector<uint32_t> depth = {0};
  // Children of a node are made at once, so they lie side by side.
  for (uint32_t node = 0; node < trie.size(); ++node) {
    uint32_t key = trie[node].key_begin;
    const uint32_t end = trie[node].key_end;
    const uint32_t at = depth[node];
    const auto text = [&](uint32_t i) -> const std::string& { return object.properties[i].key; };
    if (key < end && text(key).size() == at) trie[node].key = key++;
    trie[node].child_begin = static_cast<uint32_t>(trie.size());
    while (key < end) {
      const char byte = text(key)[at];
      const uint32_t begin = key;
      while (key < end && text(key)[at] == byte) ++key;
      trie.push_back({.byte = static_cast<uint8_t>(byte), .key_begin = begin, .key_end = key});
      depth.push_back(at + 1);
    }
    trie[node].child_count = static_cast<uint16_t>(trie.size() - trie[node].child_begin);
  }
}

}  // namespace pelton::grammar
