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
// Words whose full stop ends no sentence, as does none behind letters with stops between them
// ("p.m", "e.g").
constexpr std::array<std::string_view, 15> kAbbreviations = {
    "Mr", "Mrs", "Ms", "Dr", "Prof", "St", "Sr", "Jr", "vs", "No", "Nr", "Mt", "ca", "etc", "bzw"};

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

bool is_letter(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

bool has_stops_between_letters(std::string_view word) {
  if (word.size() < 3 || word.size() % 2 == 0) return false;
  for (size_t i = 0; i < word.size(); ++i) {
    if (i % 2 == 0 ? !is_letter(word[i]) : word[i] != '.') return false;
  }
  return true;
}

bool is_abbreviation(std::string_view before_stop) {
  const size_t blank = before_stop.find_last_of(kBlanks);
  const std::string_view word =
      blank == std::string_view::npos ? before_stop : before_stop.substr(blank + 1);
  const bool is_initial = word.size() == 1 && word[0] >= 'A' && word[0] <= 'Z';
  // "1. Open it", "am 3. Mai".
  const bool is_ordinal = word.size() <= 2 && !word.empty() && std::ranges::all_of(word, is_digit);
  return is_initial || is_ordinal || has_stops_between_letters(word) ||
         std::ranges::find(kAbbreviations, word) != kAbbreviations.end();
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

// Characters that a piece has at least, if its text goes on: of the first, the second, ...
constexpr std::array<size_t, 4> kPieceCharsMin = {1, 60, 120, 240};

// Where the sentence that ends at `at` ends with all that belongs to its end ("?!", "。」");
// nothing: that depends on what follows `text`. `is_known`: it does not, as a blank follows, or
// nothing.
std::optional<size_t> end_of_marks(std::string_view text, size_t at, bool is_known) {
  while (at < text.size() && text[at - 1] != '\n' && !is_blank(text[at])) {
    const size_t next = std::min(at + char_bytes(text[at]), text.size());
    if (!ends_sentence(text, next)) return at;
    at = next;
  }
  if (at == text.size() && text[at - 1] != '\n' && !is_known) return std::nullopt;
  return at;
}

struct Wanted {
  size_t chars_min = 1;
  size_t chars_max = kPieceCharsMax;
};
struct Following {
  bool nothing = true;  // the text is all there is
  bool blank = false;
};

// Bytes of the first piece; nothing: that depends on what follows. `text` is not empty.
std::optional<size_t> cut(std::string_view text, const Wanted& wanted, const Following& following) {
  size_t sentence = 0;
  size_t clause = 0;
  size_t word = 0;
  size_t at = 0;
  for (size_t chars = 1; at < text.size() && chars <= wanted.chars_max; ++chars) {
    at = std::min(at + char_bytes(text[at]), text.size());
    if (ends_clause(text, at)) clause = at;
    if (stands_free(text, at)) word = at;
    if (!ends_sentence(text, at)) continue;
    sentence = at;
    const auto end = end_of_marks(text, at, following.nothing || following.blank);
    if (!end) return std::nullopt;
    if (chars >= wanted.chars_min && *end == at) return at;
  }
  if (at == text.size()) return following.nothing ? std::optional(at) : std::nullopt;
  if (sentence > 0) return sentence;
  if (clause > 0) return clause;
  return word > 0 ? word : at;
}

// What is looked at of a text that has come so far: without the blanks at its end, but for a line
// feed, which ends a sentence.
std::string_view known_part(std::string_view text, bool is_all) {
  const std::string_view solid = without_blanks(text);
  const size_t line = is_all ? std::string_view::npos : text.find('\n', solid.size());
  return line == std::string_view::npos ? solid : text.substr(0, line + 1);
}

}  // namespace

TextCutter::TextCutter(size_t chars_max) : chars_max_(std::max<size_t>(chars_max, 1)) {}

void TextCutter::push(std::string_view text) {
  if (text_.empty()) {
    const size_t first = text.find_first_not_of(kBlanks);
    text = first == std::string_view::npos ? std::string_view() : text.substr(first);
  }
  text_ += text;
}

std::optional<std::string> TextCutter::next() {
  if (text_.empty() || (!finished_ && text_.size() == looked_at_)) return std::nullopt;
  const std::string_view text = known_part(text_, finished_);
  const std::optional<size_t> size =
      cut(text,
          {.chars_min = kPieceCharsMin[std::min(pieces_, kPieceCharsMin.size() - 1)],
           .chars_max = chars_max_},
          {.nothing = finished_, .blank = text.size() < text_.size()});
  if (!size) {
    looked_at_ = text_.size();
    return std::nullopt;
  }
  std::string piece(without_blanks(text.substr(0, *size)));
  text_.erase(0, *size);
  text_.erase(0, std::min(text_.find_first_not_of(kBlanks), text_.size()));
  looked_at_ = 0;
  ++pieces_;
  return piece;
}

size_t TextCutter::chars_waiting() const {
  return static_cast<size_t>(
      std::ranges::count_if(text_, [](char c) { return (c & 0xc0) != 0x80; }));
}

std::vector<std::string> text_pieces(std::string_view text, size_t chars_max) {
  TextCutter cutter(chars_max);
  cutter.push(text);
  cutter.finish();
  std::vector<std::string> pieces;
  while (auto piece = cutter.next()) pieces.push_back(*std::move(piece));
  return pieces;
}

}  // namespace pelton::speech
