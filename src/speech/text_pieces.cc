#include "speech/text_pieces.h"

#include <algorithm>
#include <array>

namespace pelton::speech {
namespace {

constexpr std::string_view kBlanks = " \t\r\n\f\v";
constexpr std::array<std::string_view, 9> kSentenceEnds = {"!",  "?", "…", "。", "！",
                                                           "？", "।", "؟", "\n"};
constexpr std::array<std::string_view, 10> kClauseEnds = {",",  ";",  ":",  "—",  "–",
                                                          "，", "、", "；", "：", "،"};
constexpr std::array<std::string_view, 10> kClosing = {"\"", "'", ")",  "]",  "”",
                                                       "’",  "»", "」", "』", "）"};
// Words whose full stop ends no sentence.
constexpr std::array<std::string_view, 13> kAbbreviations = {
    "Mr", "Mrs", "Ms", "Dr", "Prof", "St", "Sr", "Jr", "vs", "No", "e.g", "i.e", "z.B"};

bool is_blank(char c) {
  return kBlanks.find(c) != std::string_view::npos;
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

size_t char_bytes(char first) {
  const auto byte = static_cast<unsigned char>(first);
  if (byte < 0xc0) return 1;
  if (byte < 0xe0) return 2;
  return byte < 0xf0 ? 3 : 4;
}

// What of `marks` ends at `end`; empty: none of them.
template <size_t n>
std::string_view mark_before(std::string_view text, size_t end,
                             const std::array<std::string_view, n>& marks) {
  for (const std::string_view mark : marks) {
    if (text.substr(0, end).ends_with(mark)) return mark;
  }
  return {};
}

bool is_abbreviation(std::string_view before_stop) {
  const size_t blank = before_stop.find_last_of(kBlanks);
  const std::string_view word =
      blank == std::string_view::npos ? before_stop : before_stop.substr(blank + 1);
  const bool is_initial = word.size() == 1 && word[0] >= 'A' && word[0] <= 'Z';
  return is_initial || std::ranges::find(kAbbreviations, word) != kAbbreviations.end();
}

bool stands_free(std::string_view text, size_t end) {
  return end == text.size() || is_blank(text[end]);
}

bool ends_sentence(std::string_view text, size_t end) {
  size_t at = end;
  for (std::string_view mark = mark_before(text, at, kClosing); !mark.empty();
       mark = mark_before(text, at, kClosing)) {
    at -= mark.size();
  }
  if (const std::string_view mark = mark_before(text, at, kSentenceEnds); !mark.empty()) {
    return mark.size() > 1 || mark == "\n" || stands_free(text, end);
  }
  if (at == 0 || text[at - 1] != '.' || !stands_free(text, end)) return false;
  return !is_abbreviation(text.substr(0, at - 1));
}

bool ends_clause(std::string_view text, size_t end) {
  const std::string_view mark = mark_before(text, end, kClauseEnds);
  if (mark.empty()) return false;
  // 10,000 and 9:30 are one word.
  const bool is_amid_number = mark.size() == 1 && end < text.size() && is_digit(text[end]);
  return mark.size() > 1 || (!is_amid_number && stands_free(text, end));
}

std::string_view without_blanks(std::string_view text) {
  const size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) + 1 - first);
}

// Bytes of the first piece.
size_t cut(std::string_view text, size_t chars_max) {
  size_t sentence = 0;
  size_t clause = 0;
  size_t word = 0;
  size_t at = 0;
  for (size_t chars = 0; at < text.size() && chars < chars_max; ++chars) {
    at = std::min(at + char_bytes(text[at]), text.size());
    if (ends_sentence(text, at)) sentence = at;
    if (ends_clause(text, at)) clause = at;
    if (stands_free(text, at)) word = at;
  }
  if (at == text.size()) return at;
  if (sentence > 0) return sentence;
  if (clause > 0) return clause;
  return word > 0 ? word : at;
}

}  // namespace

std::vector<std::string> text_pieces(std::string_view text, size_t chars_max) {
  std::vector<std::string> pieces;
  for (text = without_blanks(text); !text.empty(); text = without_blanks(text)) {
    const size_t size = cut(text, std::max<size_t>(chars_max, 1));
    const std::string_view piece = without_blanks(text.substr(0, size));
    if (!piece.empty()) pieces.emplace_back(piece);
    text.remove_prefix(size);
  }
  return pieces;
}

}  // namespace pelton::speech
