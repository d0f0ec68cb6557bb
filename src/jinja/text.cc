#include "jinja/text.h"

#include <algorithm>
#include <cstring>

#include "base/utf8.h"

namespace pelton::jinja {
namespace {

bool continues(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) == 0x80;
}

char32_t case_of(char32_t c, LetterCase letter_case) {
  struct CaseRange {
    char32_t lower_begin, lower_end;  // both included
    char32_t to_upper;                // what is subtracted
  };
  // Latin-1 without the division sign (F7), Greek without final sigma, Cyrillic in its two rows.
  static constexpr CaseRange kRanges[] = {
      {'a', 'z', 32},     {0xE0, 0xF6, 32},   {0xF8, 0xFE, 32},  {0x3B1, 0x3C1, 32},
      {0x3C3, 0x3CB, 32}, {0x430, 0x44F, 32}, {0x450, 0x45F, 80}};
  for (const CaseRange& range : kRanges) {
    const char32_t offset = letter_case == LetterCase::kUpper ? 0 : range.to_upper;
    if (c + offset >= range.lower_begin && c + offset <= range.lower_end) {
      return letter_case == LetterCase::kUpper ? c - range.to_upper : c + range.to_upper;
    }
  }
  return c;
}

}  // namespace

Text Text::from_input(std::string bytes) {
  Text text(std::move(bytes));
  if (!text.bytes_.empty()) text.input_.push_back({0, text.bytes_.size()});
  return text;
}

void Text::append(const Text& other) {
  const size_t offset = bytes_.size();
  bytes_ += other.bytes_;
  for (const Range& range : other.input_) {
    if (!input_.empty() && input_.back().end == offset + range.begin) {
      input_.back().end = offset + range.end;
    } else {
      input_.push_back({offset + range.begin, offset + range.end});
    }
  }
}

Text Text::slice(size_t begin, size_t size) const {
  begin = std::min(begin, bytes_.size());
  const size_t end = begin + std::min(size, bytes_.size() - begin);
  Text out(bytes_.substr(begin, end - begin));
  auto range = std::partition_point(input_.begin(), input_.end(),
                                    [&](const Range& r) { return r.end <= begin; });
  for (; range != input_.end() && range->begin < end; ++range) {
    out.input_.push_back(
        {std::max(range->begin, begin) - begin, std::min(range->end, end) - begin});
  }
  return out;
}

Text Text::transformed(std::string bytes) const {
  return input_.empty() ? Text(std::move(bytes)) : from_input(std::move(bytes));
}

size_t code_point_count(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return !continues(c); }));
}

size_t code_point_offset(std::string_view text, size_t index) {
  size_t at = 0;
  while (at < text.size()) {
    if (!continues(text[at]) && index-- == 0) return at;
    ++at;
  }
  return at;
}

size_t find_text(std::string_view text, std::string_view part, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (part.empty()) return from;
  // glibc's is the two-way algorithm; std::string::find is not linear.
  const void* const found =
      memmem(text.data() + from, text.size() - from, part.data(), part.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

bool is_space(char32_t c) {
  return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

size_t leading_space(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const base::Utf8Step step = base::utf8_step(text.substr(at));
    if (step.kind != base::Utf8Step::Kind::kCodePoint || !is_space(step.code_point)) break;
    at += step.bytes;
  }
  return at;
}

size_t trailing_space(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    size_t begin = end - 1;
    while (begin > 0 && end - begin < 4 && continues(text[begin])) --begin;
    const base::Utf8Step step = base::utf8_step(text.substr(begin, end - begin));
    const bool is_one = step.kind == base::Utf8Step::Kind::kCodePoint && step.bytes == end - begin;
    if (!is_one || !is_space(step.code_point)) break;
    end = begin;
  }
  return text.size() - end;
}

std::string to_case(std::string_view text, LetterCase letter_case) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const base::Utf8Step step = base::utf8_step(text);
    if (step.kind == base::Utf8Step::Kind::kCodePoint) {
      base::append_utf8(out, case_of(step.code_point, letter_case));
    } else {
      out += text.substr(0, step.bytes);
    }
    text.remove_prefix(step.bytes);
  }
  return out;
}

}  // namespace pelton::jinja
