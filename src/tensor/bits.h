// Conversions between float32 and the stored formats. All exact, or rounded to nearest even.
#pragma once

#include <bit>
#include <cstdint>

namespace pelton::tensor {

inline float bf16_to_float(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

inline uint16_t float_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>((bits >> 16) | 0x40);  // NaN
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

// E2M1 (OCP MX 1.0, table 5): sign, two exponent bits, one mantissa bit.
inline constexpr float kFp4Values[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                         -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

// E8M0: 2^(bits - 127); 255 is NaN.
inline float e8m0_to_float(uint8_t bits) {
  if (bits == 255) return std::bit_cast<float>(0x7FC00000u);
  return std::bit_cast<float>(bits == 0 ? 0x00400000u : static_cast<uint32_t>(bits) << 23);
}

}  // namespace pelton::tensor
