// A deterministic automaton over bytes: what strings, patterns, formats and numbers are compiled
// to. Immutable, always minimal and numbered canonically, so two are equal exactly if their
// languages are. Bytes that no state distinguishes share a class (a column of the table).
// Operations that may grow are bounded by DfaLimits and answer an Error that names the limit. Any
// thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "grammar/dfa_table.h"

namespace pelton::grammar {

class ByteDfa {
 public:
  using ByteClasses = std::array<uint8_t, 256>;

  // Accepts nothing at all.
  ByteDfa();

  // The automaton of `table`, whose letters are classes of bytes.
  ByteDfa(const ByteClasses& class_of, const DfaTable& table);

  // A language of one text, of a list of texts, of every byte string, of all valid UTF-8.
  static ByteDfa literal(std::string_view text);
  static Result<ByteDfa> any_of(std::span<const std::string> texts, const DfaLimits& limits);
  static ByteDfa any_bytes();
  static ByteDfa any_utf8();
  // One byte of the given ones ("0-9" is not a range: give all ten).
  static ByteDfa one_of(std::string_view bytes);

  DfaState start() const { return table_.start; }
  DfaState next(DfaState state, uint8_t byte) const { return table_.at(state, class_of_[byte]); }
  bool accepts(DfaState state) const { return table_.accepting[state] != 0; }
  bool accepts(std::string_view text) const;
  // Where `text` leads from `state`.
  DfaState walk(DfaState state, std::string_view text) const;

  // Including the dead state, which is 0; states() is 1 if the language is empty.
  uint32_t states() const { return table_.state_count(); }
  uint32_t class_count() const { return table_.letter_count; }
  uint8_t class_of(uint8_t byte) const { return class_of_[byte]; }
  const ByteClasses& byte_classes() const { return class_of_; }
  DfaState next_by_class(DfaState state, uint32_t byte_class) const {
    return table_.at(state, byte_class);
  }

  bool is_empty() const { return table_.start == kDeadState; }
  // Whether every continuation from `state`, of any bytes, is accepted.
  bool accepts_all_after(DfaState state) const;
  // The state, if there is one, from which exactly `language` is accepted: once a matcher is there,
  // what it allows is what it allows in a fresh `language` (a free string's tail, say).
  std::optional<DfaState> state_of(const ByteDfa& language) const;
  // The least and the greatest length of an accepted text; no greatest if there are loops.
  std::optional<uint64_t> shortest_length() const;
  std::optional<uint64_t> longest_length() const;

  const DfaTable& table() const { return table_; }
  size_t bytes_held() const;

  friend bool operator==(const ByteDfa& a, const ByteDfa& b) {
    return a.class_of_ == b.class_of_ && a.table_.start == b.table_.start &&
           a.table_.next == b.table_.next && a.table_.accepting == b.table_.accepting;
  }

 private:
  void merge_equal_columns();

  ByteClasses class_of_{};
  DfaTable table_;
};

Result<ByteDfa> union_of(const ByteDfa& a, const ByteDfa& b, const DfaLimits& limits);
Result<ByteDfa> intersection(const ByteDfa& a, const ByteDfa& b, const DfaLimits& limits);
// What `a` accepts and `b` does not.
Result<ByteDfa> difference(const ByteDfa& a, const ByteDfa& b, const DfaLimits& limits);
// All byte strings that `a` does not accept; within texts, use difference(ByteDfa::any_utf8(), a).
ByteDfa complement(const ByteDfa& a);

}  // namespace pelton::grammar
