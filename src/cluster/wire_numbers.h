// Little-endian numbers in a string, and back. A reader past the end gives zeros and says so.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace pelton::cluster {

inline void append_u16(std::string& out, uint16_t value) {
  out += static_cast<char>(value & 0xFF);
  out += static_cast<char>(value >> 8);
}
inline void append_u32(std::string& out, uint32_t value) {
  append_u16(out, static_cast<uint16_t>(value & 0xFFFF));
  append_u16(out, static_cast<uint16_t>(value >> 16));
}
inline void append_f32(std::string& out, float value) {
  append_u32(out, std::bit_cast<uint32_t>(value));
}

class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : bytes_(bytes) {}

  uint8_t u8() { return static_cast<uint8_t>(number(1)); }
  uint16_t u16() { return static_cast<uint16_t>(number(2)); }
  uint32_t u32() { return number(4); }
  float f32() { return std::bit_cast<float>(u32()); }

  size_t left() const { return bytes_.size(); }
  bool overrun() const { return overrun_; }

 private:
  uint32_t number(size_t count) {
    if (bytes_.size() < count) {
      overrun_ = true;
      bytes_ = {};
      return 0;
    }
    uint32_t value = 0;
    for (size_t i = 0; i < count; ++i) {
      value |= uint32_t{static_cast<unsigned char>(bytes_[i])} << (8 * i);
    }
    bytes_.remove_prefix(count);
    return value;
  }

  std::string_view bytes_;
  bool overrun_ = false;
};

}  // namespace pelton::cluster
