#include "base/utf8.h"

#include <cstring>

namespace pelton::base {
namespace {

constexpr Utf8Step invalid(int bytes) {
  return {Utf8Step::Kind::kInvalid, static_cast<uint8_t>(bytes), 0xFFFD};
}

// The eight bytes at `at`.
bool is_ascii(const char* at) {
  uint64_t word;
  std::memcpy(&word, at, sizeof word);
  return (word & 0x8080808080808080ull) == 0;
}

}  // namespace

// The ranges of the second byte are those of Unicode's table 3-7 (well-formed byte sequences).
Utf8Step utf8_step(std::string_view text) {
  const auto at = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = at(0);
  if (first < 0x80) return {Utf8Step::Kind::kCodePoint, 1, first};
  if (first < 0xC2 || first > 0xF4) return invalid(1);

  const int length = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  uint8_t low = 0x80;
  uint8_t high = 0xBF;
  if (first == 0xE0) low = 0xA0;
  if (first == 0xED) high = 0x9F;
  if (first == 0xF0) low = 0x90;
  if (first == 0xF4) high = 0x8F;

  uint32_t code_point = first & (0xFF >> (length + 1));
  for (int i = 1; i < length; ++i) {
    if (static_cast<size_t>(i) >= text.size()) {
      return {Utf8Step::Kind::kIncomplete, static_cast<uint8_t>(text.size()), 0};
    }
    const uint8_t next = at(i);
    if (next < low || next > high) return invalid(i);
    low = 0x80;
    high = 0xBF;
    code_point = (code_point << 6) | (next & 0x3F);
  }
  return {Utf8Step::Kind::kCodePoint, static_cast<uint8_t>(length), code_point};
}

size_t valid_utf8_prefix(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    if (i + 8 <= text.size() && is_ascii(text.data() + i)) {
      i += 8;
      continue;
    }
    const Utf8Step step = utf8_step(text.substr(i));
    if (step.kind != Utf8Step::Kind::kCodePoint) break;
    i += step.bytes;
  }
  return i;
}

bool is_valid_utf8(std::string_view text) {
  return valid_utf8_prefix(text) == text.size();
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (;;) {
    const size_t valid = valid_utf8_prefix(text);
    out.append(text.substr(0, valid));
    text.remove_prefix(valid);
    if (text.empty()) return out;
    out.append(kReplacementCharacter);
    text.remove_prefix(utf8_step(text).bytes);
  }
}

void append_utf8(std::string& out, uint32_t code_point) {
  const auto put = [&](uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | (code_point >> 6));
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | (code_point >> 12));
    put(0x80 | ((code_point >> 6) & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | (code_point >> 18));
    put(0x80 | ((code_point >> 12) & 0x3F));
    put(0x80 | ((code_point >> 6) & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

}  // namespace pelton::base
