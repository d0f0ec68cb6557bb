#include "tokenizer/byte_alphabet.h"

#include <array>
#include <cstdint>

#include "base/utf8.h"

namespace pelton::tokenizer {
namespace {

constexpr int kLettersEnd = 0x100 + 68;

constexpr bool stands_for_itself(int byte) {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

constexpr std::array<uint16_t, 256> make_letters() {
  std::array<uint16_t, 256> letters{};
  uint16_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    letters[static_cast<size_t>(byte)] =
        stands_for_itself(byte) ? static_cast<uint16_t>(byte) : next++;
  }
  return letters;
}
constexpr std::array<uint16_t, 256> kLetters = make_letters();

constexpr std::array<int16_t, kLettersEnd> make_bytes() {
  std::array<int16_t, kLettersEnd> bytes{};
  for (int16_t& byte : bytes) byte = -1;
  for (int byte = 0; byte < 256; ++byte) {
    bytes[kLetters[static_cast<size_t>(byte)]] = static_cast<int16_t>(byte);
  }
  return bytes;
}
constexpr std::array<int16_t, kLettersEnd> kBytes = make_bytes();

}  // namespace

void append_byte_letters(std::string_view bytes, std::string& out) {
  for (const char byte : bytes) base::append_utf8(out, kLetters[static_cast<uint8_t>(byte)]);
}

bool append_letter_bytes(std::string_view letters, std::string& out) {
  while (!letters.empty()) {
    const base::Utf8Step step = base::utf8_step(letters);
    if (step.code_point >= kLettersEnd || kBytes[step.code_point] < 0) return false;
    out.push_back(static_cast<char>(kBytes[step.code_point]));
    letters.remove_prefix(step.bytes);
  }
  return true;
}

}  // namespace pelton::tokenizer
