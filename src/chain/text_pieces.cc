#include "chain/text_pieces.h"

#include <algorithm>
#include <array>
#include <utility>

namespace pelton::chain {
namespace {

constexpr std::array<std::pair<std::string_view, PieceEnd>, 4> kEnds = {
    {{"characters", PieceEnd::kAnywhere},
     {"lines", PieceEnd::kLine},
     {"sentences", PieceEnd::kSentence},
     {"paragraphs", PieceEnd::kParagraph}}};

bool continues_character(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) == 0x80;
}

bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

// The byte behind `count` characters from `begin` on.
size_t after_characters(std::string_view text, size_t begin, int64_t count) {
  size_t at = begin;
  while (at < text.size() && count > 0) {
    ++at;
    while (at < text.size() && continues_character(text[at])) ++at;
    --count;
  }
  return at;
}

// The byte `count` characters before `end`, not before `least`.
size_t before_characters(std::string_view text, size_t end, int64_t count, size_t least) {
  size_t at = end;
  while (at > least && count > 0) {
    --at;
    while (at > least && continues_character(text[at])) --at;
    --count;
  }
  return at;
}

// Whether something of that kind ends before byte `at`, which is within the text.
bool ends_at(std::string_view text, size_t at, PieceEnd end) {
  const char last = text[at - 1];
  switch (end) {
    case PieceEnd::kAnywhere:
      return true;
    case PieceEnd::kLine:
      return last == '\n';
    case PieceEnd::kParagraph:
      return last == '\n' && at >= 2 && text[at - 2] == '\n';
    case PieceEnd::kSentence:
      return (last == '.' || last == '!' || last == '?') && is_blank(text[at]);
  }
  return true;
}

size_t piece_end_within(std::string_view text, size_t begin, size_t most, PieceEnd end) {
  if (most == text.size()) return most;
  for (size_t at = most; at > begin; --at) {
    if (ends_at(text, at, end)) return at;
  }
  return most;
}

std::string_view trimmed(std::string_view piece) {
  while (!piece.empty() && is_blank(piece.front())) piece.remove_prefix(1);
  while (!piece.empty() && is_blank(piece.back())) piece.remove_suffix(1);
  return piece;
}

}  // namespace

std::optional<PieceEnd> piece_end(std::string_view name) {
  for (const auto& [known, end] : kEnds) {
    if (known == name) return end;
  }
  return std::nullopt;
}

std::vector<std::string_view> text_pieces(std::string_view text, const PieceOptions& options) {
  std::vector<std::string_view> pieces;
  for (size_t begin = 0; begin < text.size();) {
    const size_t most = after_characters(text, begin, options.size);
    size_t end = piece_end_within(text, begin, most, options.end);
    // A character is not cut.
    while (end < text.size() && continues_character(text[end])) ++end;
    std::string_view piece = text.substr(begin, end - begin);
    if (options.end != PieceEnd::kAnywhere) piece = trimmed(piece);
    if (!piece.empty()) pieces.push_back(piece);
    if (end == text.size()) break;
    // At most half of a piece comes again: all pieces together are at most twice the text.
    size_t middle = begin + (end - begin) / 2;
    while (middle < end && continues_character(text[middle])) ++middle;
    const size_t next = before_characters(text, end, options.overlap, middle);
    begin = std::max(next, after_characters(text, begin, 1));
  }
  return pieces;
}

}  // namespace pelton::chain
