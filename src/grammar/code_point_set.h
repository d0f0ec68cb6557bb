// A set of code points as sorted ranges that do not touch: d-f, a-c and e-h, in that order, are
// a-h, whose complement is 0-` and i-10FFFF. A plain value; one thread while it is put in order
// (the first question after an add), then any.
#pragma once

#include <compare>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace pelton::grammar {

inline constexpr uint32_t kLastCodePoint = 0x10FFFF;

struct CodePointRange {
  uint32_t first = 0;
  uint32_t last = 0;
  friend auto operator<=>(const CodePointRange&, const CodePointRange&) = default;
};

class CodePointSet {
 public:
  CodePointSet() = default;
  CodePointSet(std::initializer_list<CodePointRange> ranges);
  static CodePointSet all() { return {{0, kLastCodePoint}}; }

  // In any order; put in order by the next question.
  void add(CodePointRange range);
  void add(const CodePointSet& other);

  std::span<const CodePointRange> ranges() const;
  bool contains(uint32_t code_point) const;
  CodePointSet complement() const;
  friend bool operator==(const CodePointSet& a, const CodePointSet& b) {
    return std::equal(a.ranges().begin(), a.ranges().end(), b.ranges().begin(), b.ranges().end());
  }

 private:
  void put_in_order() const;

  // Order is restored late, so that a class of many members is sorted once.
  mutable std::vector<CodePointRange> ranges_;
  mutable bool in_order_ = true;
};

// What ECMA-262 means by \d, \w, \s and by the dot.
const CodePointSet& digit_characters();
const CodePointSet& word_characters();
const CodePointSet& space_characters();
const CodePointSet& all_but_line_ends();

// What \p{name} means: a general category, Script=..., a script's bare name, or a yes-or-no
// property (unicode 14). None if there is no such thing, or we do not know it.
std::optional<CodePointSet> unicode_property(std::string_view name);

}  // namespace pelton::grammar
