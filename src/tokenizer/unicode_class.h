// The class of a code point, as far as splitting text into pieces cares: Unicode 14, one table
// look-up. The tables are generated (tools/make_unicode_tables.py). Immutable; any thread.
#pragma once

#include <cstdint>

namespace pelton::tokenizer {

// The values are the letters that the generated table is written in.
enum class UnicodeClass : char {
  kOther = '.',
  kUpper = 'U',     // Lu Lt
  kLower = 'l',     // Ll
  kCaseless = 'o',  // Lm Lo
  kMark = 'm',      // M
  kNumber = '9',    // N
  kSpace = 's',     // White_Space but CR and LF
  kNewline = 'r',   // CR and LF
};

extern const uint8_t kUnicodeBlockIndex[0x110000 / 128];
extern const char kUnicodeBlocks[][128 + 1];  // a string literal each, so one more for its NUL

// `code_point` is at most 0x10FFFF.
inline UnicodeClass unicode_class(uint32_t code_point) {
  return static_cast<UnicodeClass>(
      kUnicodeBlocks[kUnicodeBlockIndex[code_point >> 7]][code_point & 127]);
}

}  // namespace pelton::tokenizer
