#include "grammar/code_point_set.h"

#include <algorithm>

namespace pelton::grammar {

CodePointSet::CodePointSet(std::initializer_list<CodePointRange> ranges) {
  for (const CodePointRange& range : ranges) add(range);
}

void CodePointSet::add(CodePointRange range) {
  if (range.first > range.last) return;
  if (in_order_ && !ranges_.empty() && range.first <= ranges_.back().last + 1) in_order_ = false;
  ranges_.push_back(range);
}

void CodePointSet::add(const CodePointSet& other) {
  for (const CodePointRange& range : other.ranges_) add(range);
}

void CodePointSet::put_in_order() const {
  if (in_order_) return;
  std::sort(ranges_.begin(), ranges_.end());
  size_t kept = 0;
  for (const CodePointRange& range : ranges_) {
    if (kept > 0 && range.first <= ranges_[kept - 1].last + 1) {
      ranges_[kept - 1].last = std::max(ranges_[kept - 1].last, range.last);
    } else {
      ranges_[kept++] = range;
    }
  }
  ranges_.resize(kept);
  in_order_ = true;
}

std::span<const CodePointRange> CodePointSet::ranges() const {
  put_in_order();
  return ranges_;
}

bool CodePointSet::contains(uint32_t code_point) const {
  put_in_order();
  const auto after = std::upper_bound(
      ranges_.begin(), ranges_.end(), code_point,
      [](uint32_t point, const CodePointRange& range) { return point < range.first; });
  return after != ranges_.begin() && code_point <= std::prev(after)->last;
}

CodePointSet CodePointSet::complement() const {
  CodePointSet out;
  uint32_t next = 0;
  for (const CodePointRange& range : ranges()) {
    if (range.first > next) out.add({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kLastCodePoint) out.add({next, kLastCodePoint});
  return out;
}

const CodePointSet& digit_characters() {
  static const CodePointSet set = {{'0', '9'}};
  return set;
}

const CodePointSet& word_characters() {
  static const CodePointSet set = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
  return set;
}

const CodePointSet& space_characters() {
  // WhiteSpace and LineTerminator: tab, vertical tab, form feed, BOM, Zs, LF, CR, LS, PS.
  static const CodePointSet set = {
      {0x09, 0x0D},     {0x20, 0x20},     {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
      {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
  return set;
}

const CodePointSet& all_but_line_ends() {
  static const CodePointSet set =
      CodePointSet{{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}.complement();
  return set;
}

}  // namespace pelton::grammar
