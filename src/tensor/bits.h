// Conversions between float32 and the stored formats. All exact, or rounded to nearest even unless
// the name says otherwise. What is constexpr a device's kernels call too (cuda).
#pragma once

#include <bit>
#include <cstdint>

namespace pelton::tensor {

constexpr float bf16_to_float(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

inline uint16_t float_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>((bits >> 16) | 0x40);  // NaN
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

// The smallest bf16 that is not below `value`, which is finite and not negative.
constexpr uint16_t float_to_bf16_up(float value) {
  return static_cast<uint16_t>((std::bit_cast<uint32_t>(value) + 0xFFFFu) >> 16);
}

inline float f16_to_float(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t rest = bits & 0x7FFFu;
  if (rest >= 0x7C00u) return std::bit_cast<float>(sign | 0x7F800000u | ((rest & 0x3FFu) << 13));
  // Shifted into a float32's place the exponent is 112 too small; one product mends it, subnormals
  // included.
  return std::bit_cast<float>(
      sign | std::bit_cast<uint32_t>(std::bit_cast<float>(rest << 13) * 0x1.0p112f));
}

// Values beyond the format's range become its largest, +-65504: a cache that saturates is a little
// wrong, one that holds infinity is lost.
inline uint16_t float_to_f16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t rest = bits & 0x7FFFFFFFu;
  if (rest > 0x7F800000u) return sign | 0x7E00u;   // NaN
  if (rest >= 0x477FF000u) return sign | 0x7BFFu;  // saturates
  if (rest < 0x38800000u) {                        // subnormal or zero
    // Adding 0.5 aligns the value so that the hardware rounds at 2^-24.
    const float aligned = std::bit_cast<float>(rest) + 0.5f;
    return sign | static_cast<uint16_t>(std::bit_cast<uint32_t>(aligned) - 0x3F000000u);
  }
  const uint32_t rounded = rest + 0xFFFu + ((rest >> 13) & 1u);
  return sign | static_cast<uint16_t>((rounded - 0x38000000u) >> 13);
}

// E2M1 (OCP MX 1.0, table 5): sign, two exponent bits, one mantissa bit.
inline constexpr float kFp4Values[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                         -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

// E4M3 (OCP FP8): largest 448, smallest 2^-9, no infinity; 0x7F and 0xFF are NaN. Shifted into a
// float16's place its exponent is 8 too small.
inline float e4m3_to_float(uint8_t bits) {
  const auto magnitude = static_cast<uint16_t>(bits & 0x7Fu);
  const auto sign = static_cast<uint16_t>((bits & 0x80u) << 8);
  if (magnitude == 0x7F) return std::bit_cast<float>(0x7FC00000u | uint32_t{sign} << 16);
  return f16_to_float(static_cast<uint16_t>(sign | magnitude << 7)) * 256.0f;
}

// To nearest even, saturating at 448.
constexpr uint8_t float_to_e4m3(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint8_t>((bits >> 24) & 0x80u);
  const uint32_t rest = bits & 0x7FFFFFFFu;
  if (rest > 0x7F800000u) return sign | 0x7Fu;   // NaN
  if (rest >= 0x43E00000u) return sign | 0x7Eu;  // 448
  if (rest < 0x3C800000u) {                      // below 2^-6: subnormal or zero
    // Adding 2^14 aligns the value so that the hardware rounds at 2^-9.
    const float aligned = std::bit_cast<float>(rest) + 16384.0f;
    return sign | static_cast<uint8_t>(std::bit_cast<uint32_t>(aligned) - 0x46800000u);
  }
  const uint32_t rounded = rest + 0x7FFFFu + ((rest >> 20) & 1u);
  return sign | static_cast<uint8_t>((rounded - 0x3C000000u) >> 20);
}

// E8M0: 2^(bits - 127); 255 is NaN.
inline float e8m0_to_float(uint8_t bits) {
  if (bits == 255) return std::bit_cast<float>(0x7FC00000u);
  return std::bit_cast<float>(bits == 0 ? 0x00400000u : static_cast<uint32_t>(bits) << 23);
}

}  // namespace pelton::tensor
