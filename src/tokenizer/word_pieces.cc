#include "tokenizer/word_pieces.h"

#include <algorithm>
#include <iterator>

#include "base/utf8.h"
#include "tokenizer/character_tables.h"
#include "tokenizer/normal_form.h"
#include "tokenizer/unicode_class.h"

namespace pelton::tokenizer {
namespace {

template <size_t size>
bool is_in(const CodePointRange (&ranges)[size], uint32_t c) {
  const CodePointRange* const behind =
      std::upper_bound(std::begin(ranges), std::end(ranges), c,
                       [](uint32_t wanted, const CodePointRange& r) { return wanted < r.first; });
  return behind != std::begin(ranges) && c <= (behind - 1)->last;
}

bool is_space(uint32_t c) {
  const UnicodeClass found = unicode_class(c);
  return found == UnicodeClass::kSpace || found == UnicodeClass::kNewline;
}

bool is_dropped(uint32_t c) {
  if (c == '\t' || c == '\n' || c == '\r') return false;
  return c == 0 || c == 0xFFFD || is_in(kNoCharacters, c);
}

// Symbols of ASCII count, too.
bool is_punctuation(uint32_t c) {
  const bool is_symbol = (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) ||
                         (c >= 123 && c <= 126);
  return is_symbol || is_in(kPunctuation, c);
}

bool is_ideograph(uint32_t c) {
  static constexpr CodePointRange kBlocks[] = {
      {0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},   {0x20000, 0x2A6DF},
      {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F}, {0x2B820, 0x2CEAF}, {0x2F800, 0x2FA1F}};
  return is_in(kBlocks, c);
}

std::string cleaned(const WordPieces& pieces, std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const base::Utf8Step step = base::utf8_step(text.substr(at));
    const std::string_view character = text.substr(at, step.bytes);
    at += step.bytes;
    if (pieces.cleans && is_dropped(step.code_point)) continue;
    if (pieces.cleans && is_space(step.code_point)) {
      out += ' ';
    } else if (pieces.parts_ideographs && is_ideograph(step.code_point)) {
      out += ' ';
      out += character;
      out += ' ';
    } else {
      out += character;
    }
  }
  return out;
}

// The longest token first, from left to right.
void encode_word(const WordPieces& pieces, std::string_view word, std::vector<TokenId>& out) {
  const size_t first = out.size();
  const auto unknown = [&] {
    out.resize(first);
    out.push_back(pieces.unknown);
  };
  const auto characters =
      std::count_if(word.begin(), word.end(), [](char c) { return (c & 0xC0) != 0x80; });
  if (static_cast<size_t>(characters) > pieces.word_characters_max) return unknown();
  std::string spelled;
  for (size_t at = 0; at < word.size();) {
    spelled = at > 0 ? pieces.continuation : "";
    const size_t mark = spelled.size();
    spelled += word.substr(at, pieces.lookup.bytes_max());
    TokenId id = kNoToken;
    while (spelled.size() > mark) {
      id = pieces.lookup.find(pieces.spelled, spelled);
      if (id != kNoToken) break;
      spelled.pop_back();
    }
    if (id == kNoToken) return unknown();
    out.push_back(id);
    at += spelled.size() - mark;
  }
}

}  // namespace

void encode_word_pieces(const WordPieces& pieces, std::string_view text,
                        std::vector<TokenId>& out) {
  std::string normal = cleaned(pieces, text);
  if (pieces.strips_accents) normal = without_accents(normal);
  if (pieces.lower_cases) normal = lower_case(normal);
  const std::string_view all = normal;
  size_t begin = 0;
  const auto end_word = [&](size_t end) {
    if (end > begin) encode_word(pieces, all.substr(begin, end - begin), out);
  };
  for (size_t at = 0; at < all.size();) {
    const base::Utf8Step step = base::utf8_step(all.substr(at));
    const bool apart = is_punctuation(step.code_point);
    if (apart || is_space(step.code_point)) {
      end_word(at);
      if (apart) encode_word(pieces, all.substr(at, step.bytes), out);
      begin = at + step.bytes;
    }
    at += step.bytes;
  }
  end_word(all.size());
}

}  // namespace pelton::tokenizer
