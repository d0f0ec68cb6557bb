#include "base/base64.h"

#include <algorithm>
#include <cstdint>

namespace pelton::base {
namespace {

constexpr std::string_view kDigits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr uint8_t kNone = 255;

struct DigitValues {
  uint8_t of[256];
  constexpr DigitValues() : of() {
    for (uint8_t& value : of) value = kNone;
    for (size_t i = 0; i < kDigits.size(); ++i) {
      of[static_cast<uint8_t>(kDigits[i])] = static_cast<uint8_t>(i);
    }
  }
};
constexpr DigitValues kValues;

}  // namespace

std::string base64(std::string_view bytes) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t count = std::min<size_t>(3, bytes.size() - i);
    uint32_t bits = 0;
    for (size_t k = 0; k < 3; ++k) {
      bits = bits << 8 | (k < count ? static_cast<uint8_t>(bytes[i + k]) : 0u);
    }
    for (size_t k = 0; k < 4; ++k) {
      out += k <= count ? kDigits[bits >> (18 - 6 * k) & 63] : '=';
    }
  }
  return out;
}

std::optional<std::string> from_base64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  const size_t padding = text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0;
  std::string out;
  out.reserve(text.size() / 4 * 3);
  for (size_t i = 0; i < text.size(); i += 4) {
    const size_t digits = i + 4 == text.size() ? 4 - padding : 4;
    uint32_t bits = 0;
    for (size_t k = 0; k < 4; ++k) {
      const uint8_t value = k < digits ? kValues.of[static_cast<uint8_t>(text[i + k])] : uint8_t{0};
      if (value == kNone) return std::nullopt;
      bits = bits << 6 | value;
    }
    // Bits that stand for no byte are 0, so that one text only stands for some bytes.
    if ((bits & ((1u << (8 * (4 - digits))) - 1)) != 0) return std::nullopt;
    for (size_t k = 0; k + 1 < digits; ++k) out += static_cast<char>(bits >> (16 - 8 * k) & 255);
  }
  return out;
}

}  // namespace pelton::base
