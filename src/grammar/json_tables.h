// What a JSON schema comes down to: for each place where a value may stand, which literals,
// numbers, strings, arrays and objects it may be. Alternatives stand side by side and are followed
// in parallel. Values refer to each other by number, so recursion costs nothing. Written by
// schema_tables.h, read by the machine; immutable once in a Grammar; any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "grammar/byte_dfa.h"

namespace pelton::grammar {

using ValueId = uint32_t;
inline constexpr ValueId kNoValue = 0xffff'ffff;
inline constexpr uint64_t kNoBound = ~uint64_t{0};

// An automaton over decoded text (UTF-8), with what running it over JSON's spelling asks for.
struct StringDfa {
  explicit StringDfa(const ByteDfa& automaton);
  // `labels`, by state: what an accepted text that ends there is, or -1.
  StringDfa(const ByteDfa::ByteClasses& classes, DfaTable automaton, std::vector<int32_t> labels);

  DfaState next(DfaState state, uint8_t byte) const { return table.at(state, class_of[byte]); }
  bool accepts(DfaState state) const { return table.accepting[state] != 0; }
  size_t bytes_held() const;

  ByteDfa::ByteClasses class_of{};
  DfaTable table;
  std::vector<int32_t> label;  // empty if there are none
  // By state: the characters still needed at least before the text may end; the most of them.
  std::vector<uint32_t> chars_to_end;
  uint32_t chars_to_end_max = 0;
  // By state: every character may come next, so any \u escape may begin.
  std::vector<uint8_t> any_char;
  // By state: the kinds of characters (token_trie.h) that all lead back to it.
  std::vector<uint8_t> loops;
  // The same for equal automata, different for others (but for a hash's collisions).
  uint64_t content = 0;

 private:
  void measure();
};

// How many texts a language has from each state on, at least: where no value may come twice.
struct TextCounts {
  static constexpr uint32_t kEnough = 4096;  // texts; more are not counted
  static constexpr uint32_t kNever = 0xffff'ffff;
  explicit TextCounts(const StringDfa& dfa);
  // Of at most `room` characters, `short_by` of which must still come at least.
  uint64_t at_least(DfaState state, uint64_t room, uint64_t short_by) const {
    if (bytes_to_enough[state] != kNever && room >= bytes_to_enough[state] + short_by)
      return kEnough;
    if (short_by > 0) return 1;
    if (room >= kBytesMax) return texts[state];
    return short_texts[std::min(room, kShortMax) * texts.size() + state];
  }
  bool has_enough() const { return bytes_to_enough[start] != kNever; }
  // Whatever a text begins with.
  bool has_enough_everywhere() const { return bytes_to_enough_max != kNever; }
  // From all states on: within so many bytes there are enough; kNever: from one there never are.
  uint32_t bytes_to_enough_max = 0;

 private:
  static constexpr uint32_t kBytesMax = 24;  // of the texts that are counted
  static constexpr uint64_t kShortMax = 2;
  DfaState start = 0;
  std::vector<uint32_t> texts;            // by state
  std::vector<uint32_t> short_texts;      // by how many bytes at most (to kShortMax), and by state
  std::vector<uint32_t> bytes_to_enough;  // by state
};

struct StringSpec {
  std::shared_ptr<const StringDfa> text;
  uint64_t chars_min = 0;
  uint64_t chars_max = kNoBound;
  std::shared_ptr<const TextCounts> counts;  // set where a schema says uniqueItems
  friend bool operator==(const StringSpec&, const StringSpec&) = default;
};

struct NumberDfa {
  explicit NumberDfa(ByteDfa automaton);
  size_t bytes_held() const {
    return dfa.bytes_held() + values_at_least.capacity() * 4 + any_digit_matters.capacity();
  }
  // How many different numbers it accepts, if those are at most `most`; else `most` + 1.
  uint64_t count_values(uint64_t most) const;
  ByteDfa dfa;
  // By state: so many different numbers, or more, can still become of what led there.
  std::vector<uint32_t> values_at_least;
  // By state: a digit other than 0 may still come, behind zeros or at once.
  std::vector<uint8_t> any_digit_matters;
  uint64_t content = 0;
};

// One way to go on after a key or in an array: the value, and which witnesses (objects) or how many
// of which counts (arrays) it stands for.
struct Choice {
  ValueId value = kNoValue;
  uint32_t counts = 0;  // bit i: this value counts for counter i
  friend bool operator==(const Choice&, const Choice&) = default;
};

// How many members or items must be of some kind.
struct Counter {
  uint32_t min = 0;
  uint32_t max = 0xffff;  // 0xffff: no limit
  friend bool operator==(const Counter&, const Counter&) = default;
};

// Which choices a position has: all items at one index, all members whose key is alike.
using Choices = std::vector<Choice>;

struct KeyTrieNode {
  uint32_t child_begin = 0;  // in ObjectSpec::trie
  uint16_t child_count = 0;
  uint8_t byte = 0;
  uint32_t key_begin = 0;  // the keys (sorted) that have this prefix
  uint32_t key_end = 0;
  uint32_t key = kNoValue;  // the key that ends here
  friend bool operator==(const KeyTrieNode&, const KeyTrieNode&) = default;
};

// The keys without a name of their own, distinguished by patterns. The language of `dfa` are the
// keys that are allowed at all; its labels count the rows of `classes`.
struct OtherKeys {
  std::shared_ptr<const StringDfa> dfa;
  std::shared_ptr<const TextCounts> counts;
  std::vector<Choices> classes;
};

struct ObjectSpec {
  struct Property {
    std::string key;
    Choices choices;              // none: forbidden
    std::vector<uint32_t> needs;  // properties that must be there too
  };
  std::vector<Property> properties;  // in order of their keys' bytes
  std::vector<KeyTrieNode> trie;     // node 0 is the root
  std::vector<uint64_t> required;    // bits by property
  std::vector<uint64_t> forbidden;
  uint32_t required_count = 0;
  bool has_needs = false;
  std::shared_ptr<const OtherKeys> others;  // null: no other keys
  uint64_t members_min = 0;
  uint64_t members_max = kNoBound;
  uint32_t witnesses = 0;  // bits: each needs a member that counts for it

  size_t words() const { return required.size(); }
  size_t bytes_held() const;
};

struct ArraySpec {
  std::vector<Choices> prefix;
  Choices rest;  // none: no items after the prefix
  uint64_t items_min = 0;
  uint64_t items_max = kNoBound;
  std::vector<Counter> counters;  // `contains`
  // Where counters get into each other's way (schema_contains.cc): how many items it takes at least
  // until the array may end, by the next item's place (those of the prefix, then one row for all
  // others) and by what has been counted (count_state). kNever: it cannot. Else empty.
  static constexpr uint16_t kNever = 0xffff;
  std::vector<uint16_t> items_needed;
  bool counts_items = false;  // items_needed counts the items too, up to items_min
  bool unique = false;

  // What is distinguished of counts: up to the maximum, or to the minimum where there is none.
  uint64_t count_states() const;
  // `counts`: 16 bits each; of so many items.
  uint64_t count_state(uint64_t counts, uint64_t items) const;
  uint16_t needed(uint64_t place, uint64_t count_state) const {
    return items_needed[std::min<uint64_t>(place, prefix.size()) * count_states() + count_state];
  }
  friend bool operator==(const ArraySpec&, const ArraySpec&) = default;
};

struct ValueSpec {
  bool null_ = false;
  bool true_ = false;
  bool false_ = false;
  std::shared_ptr<const NumberDfa> number;
  std::vector<StringSpec> strings;
  std::vector<uint32_t> arrays;   // in JsonTables::arrays
  std::vector<uint32_t> objects;  // in JsonTables::objects
  uint64_t content = 0;           // not 0: scalars only, the same for equal ones

  bool is_empty() const {
    return !null_ && !true_ && !false_ && !number && strings.empty() && arrays.empty() &&
           objects.empty();
  }
};

struct JsonTables {
  std::vector<ValueSpec> values;
  std::vector<ArraySpec> arrays;
  std::vector<ObjectSpec> objects;
  ValueId root = 0;
  uint16_t whitespace_max = 0;  // characters of it in one place
  // By value: so many different ones, or more; empty where no array's items must differ.
  std::vector<uint32_t> values_at_least;
  size_t bytes_held = 0;
};

inline constexpr size_t kCountersMax = 4;

// Puts one schema's tables behind another's; where its root is now.
ValueId append_tables(JsonTables& to, JsonTables from);

// The trie over the (sorted) keys of `object`.
void build_key_trie(ObjectSpec& object);

}  // namespace pelton::grammar
