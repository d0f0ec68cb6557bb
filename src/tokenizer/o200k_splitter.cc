// The alternatives of the pattern in their order; the first that matches wins, as in a backtracking
// engine. o200k_splitter_test compares with PCRE2 on the pattern itself.
#include "tokenizer/o200k_splitter.h"

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tokenizer/unicode_class.h"

namespace pelton::tokenizer {

const std::string_view kO200kPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*)"
    R"(|\s*[\r\n]+)"
    R"(|\s+(?!\S))"
    R"(|\s+)";

namespace {

struct Glyph {
  UnicodeClass kind;
  uint8_t bytes;
};

// A set of classes, one bit each; the bit is the class letter's low five bits, which all differ.
constexpr uint32_t bit(UnicodeClass kind) {
  return 1u << (static_cast<uint32_t>(kind) & 31);
}

template <typename... Kinds>
constexpr uint32_t set_of(Kinds... kinds) {
  return (bit(kinds) | ...);
}

using enum UnicodeClass;
constexpr uint32_t kAll =
    set_of(kOther, kUpper, kLower, kCaseless, kMark, kNumber, kSpace, kNewline);
static_assert(__builtin_popcount(kAll) == 8, "two classes share a bit");
constexpr uint32_t kFirstHalf =
    set_of(kUpper, kCaseless, kMark);  // [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]
constexpr uint32_t kSecondHalf = set_of(kLower, kCaseless, kMark);  // [\p{Ll}\p{Lm}\p{Lo}\p{M}]
constexpr uint32_t kBothHalves = kFirstHalf & kSecondHalf;
constexpr uint32_t kLead = set_of(kOther, kMark, kSpace);  // [^\r\n\p{L}\p{N}]
constexpr uint32_t kSymbol = set_of(kOther, kMark);        // [^\s\p{L}\p{N}]
constexpr uint32_t kWhite = set_of(kSpace, kNewline);

// ASCII of [^\r\n\p{L}\p{N}].
constexpr std::array<bool, 256> kAsciiLead = [] {
  std::array<bool, 256> lead{};
  for (int c = 0; c < 0x80; ++c) {
    const bool letter = (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
    const bool digit = c >= '0' && c <= '9';
    lead[static_cast<size_t>(c)] = !letter && !digit && c != '\r' && c != '\n';
  }
  return lead;
}();

constexpr bool in(UnicodeClass kind, uint32_t set) {
  return (bit(kind) & set) != 0;
}

// The first byte of eight, by number, that is no ASCII letter a to z; 8 if all are.
int lower_run(const uint8_t* at) {
  static_assert(std::endian::native == std::endian::little);
  constexpr uint64_t kEach = 0x0101010101010101;
  constexpr uint64_t kHigh = kEach << 7;
  uint64_t word;
  std::memcpy(&word, at, sizeof word);
  const uint64_t low_bits = word & ~kHigh;  // so that no sum carries into the next byte
  const uint64_t from_a = low_bits + kEach * (0x80 - 'a');
  const uint64_t above_z = low_bits + kEach * (0x80 - 'z' - 1);
  const uint64_t others = (~from_a | above_z | word) & kHigh;
  return others == 0 ? 8 : std::countr_zero(others) / 8;
}

class Scanner {
 public:
  explicit Scanner(std::string_view text)
      : at_(reinterpret_cast<const uint8_t*>(text.data())), size_(text.size()) {}

  // The end of the piece that starts at `begin`, which is before the end of the text.
  size_t piece_end(size_t begin) const {
    const size_t end = plain_word_end(begin);
    return end != 0 ? end : any_piece_end(begin);
  }

 private:
  // Most pieces of most texts: one ASCII lead or none, one capital or none, small letters, and
  // then something in ASCII that is no apostrophe. 0 if it is not such a piece. Eight letters at a
  // time: a loop over bytes would end with a mispredicted branch for every word.
  size_t plain_word_end(size_t begin) const {
    constexpr size_t kLookAhead = 8 + 3;
    if (size_ - begin < kLookAhead) return 0;
    size_t i = begin + (kAsciiLead[at_[begin]] ? 1 : 0);
    i += static_cast<size_t>(static_cast<unsigned>(at_[i]) - 'A' < 26);
    const size_t letters = i;
    for (;;) {
      const int run = lower_run(at_ + i);
      i += static_cast<size_t>(run);
      if (run < 8) break;
      if (size_ - i < kLookAhead) return 0;
    }
    const bool plain = (i > letters) & (at_[i] < 0x80) & (at_[i] != '\'');
    return plain ? i : 0;
  }

  size_t any_piece_end(size_t begin) const {
    const Glyph first = glyph(begin);
    if (in(first.kind, kLead)) {
      const size_t end = led_word_end(begin, first);
      if (end != 0) return suffix_end(end);
    } else if (first.kind == kNumber) {
      return number_end(begin);
    } else if (first.kind != kNewline) {
      const Word word = word_at(begin);
      return suffix_end(word.first_form != 0 ? word.first_form : word.second_form);
    }
    if (in(first.kind, kSymbol)) return symbols_end(begin);
    const bool space_then_symbol =
        at_[begin] == ' ' && begin + 1 < size_ && in(glyph(begin + 1).kind, kSymbol);
    return space_then_symbol ? symbols_end(begin + 1) : white_end(begin);
  }

  // Ends of the two word forms from one position; 0 is no match.
  struct Word {
    size_t first_form;   // first half *, second half +
    size_t second_form;  // first half +, second half *
  };

  Glyph glyph(size_t i) const {
    const uint8_t b = at_[i];
    if (b < 0x80) return {static_cast<UnicodeClass>(kUnicodeBlocks[0][b]), 1};
    const auto tail = [&](size_t k) { return uint32_t{at_[i + k]} & 0x3F; };
    if (b < 0xE0) return {unicode_class((b & 0x1Fu) << 6 | tail(1)), 2};
    if (b < 0xF0) return {unicode_class((b & 0x0Fu) << 12 | tail(1) << 6 | tail(2)), 3};
    return {unicode_class((b & 7u) << 18 | tail(1) << 12 | tail(2) << 6 | tail(3)), 4};
  }

  // The end of the longest run of characters of `set`.
  size_t run_end(size_t i, uint32_t set) const {
    while (i < size_) {
      const Glyph next = glyph(i);
      if (!in(next.kind, set)) break;
      i += next.bytes;
    }
    return i;
  }

  Word word_at(size_t begin) const {
    size_t i = begin;
    size_t last_of_both = 0;  // end of the last character that is in both halves
    while (i < size_) {
      const Glyph next = glyph(i);
      if (next.kind == kLower) return {run_end(i, kSecondHalf), 0};
      if (!in(next.kind, kFirstHalf)) break;
      i += next.bytes;
      if (in(next.kind, kBothHalves)) last_of_both = i;
    }
    // Nothing of the second half follows, so the first form gives back capitals until its last
    // character belongs to both.
    return {last_of_both, i > begin ? i : 0};
  }

  // Both word forms with the optional lead taken, then without it; 0 if it is no word.
  size_t led_word_end(size_t begin, Glyph lead) const {
    const size_t after = begin + lead.bytes;
    const Word word = word_at(after);
    if (word.first_form != 0) return word.first_form;
    // Only capitals follow, or no letter: without a lead, the first form ends at the mark itself.
    if (lead.kind == kMark) return after;
    return word.second_form;
  }

  // (?i:'s|'t|'re|'ve|'m|'ll|'d)? where U+017F is, caselessly, an s.
  size_t suffix_end(size_t i) const {
    const size_t left = size_ - i;
    if (left < 2 || at_[i] != '\'') return i;
    const uint8_t first = at_[i + 1] | 0x20;
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return i + 2;
    if (left < 3) return i;
    if (at_[i + 1] == 0xC5 && at_[i + 2] == 0xBF) return i + 3;
    const uint8_t second = at_[i + 2] | 0x20;
    const bool pair =
        ((first == 'r' || first == 'v') && second == 'e') || (first == 'l' && second == 'l');
    return pair ? i + 3 : i;
  }

  size_t number_end(size_t i) const {
    for (int digits = 0; digits < 3 && i < size_; ++digits) {
      const Glyph next = glyph(i);
      if (next.kind != kNumber) break;
      i += next.bytes;
    }
    return i;
  }

  size_t symbols_end(size_t begin) const {
    size_t i = run_end(begin, kSymbol);
    while (i < size_ && (at_[i] == '\r' || at_[i] == '\n' || at_[i] == '/')) ++i;
    return i;
  }

  size_t white_end(size_t begin) const {
    size_t i = begin;
    size_t last_begin = begin;
    size_t newline_end = 0;
    while (i < size_) {
      const Glyph next = glyph(i);
      if (!in(next.kind, kWhite)) break;
      last_begin = i;
      i += next.bytes;
      if (next.kind == kNewline) newline_end = i;
    }
    if (newline_end != 0) return newline_end;
    // \s+(?!\S) leaves the last one to the word that follows, if there are two.
    if (i == size_ || last_begin == begin) return i;
    return last_begin;
  }

  const uint8_t* at_;
  size_t size_;
};

}  // namespace

void O200kSplitter::split(std::string_view text,
                          base::FunctionRef<void(std::string_view)> piece) const {
  const Scanner scanner(text);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = scanner.piece_end(begin);
    piece(text.substr(begin, end - begin));
    begin = end;
  }
}

}  // namespace pelton::tokenizer
