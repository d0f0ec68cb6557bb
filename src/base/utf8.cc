#include "base/utf8.h"

namespace pelton::base {
namespace {

constexpr Utf8Step invalid(int bytes) {
  return {Utf8Step::Kind::kInvalid, static_cast<uint8_t>(bytes), 0xFFFD};
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

bool is_valid_utf8(std::string_view text) {
  while (!text.empty()) {
    const Utf8Step step = utf8_step(text);
    if (step.kind != Utf8Step::Kind::kCodePoint) return false;
    text.remove_prefix(step.bytes);
  }
  return true;
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8Step step = utf8_step(text);
    if (step.kind == Utf8Step::Kind::kCodePoint) {
      out.append(text.substr(0, step.bytes));
    } else {
      out.append(kReplacementCharacter);
    }
    text.remove_prefix(step.bytes);
  }
  return out;
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
