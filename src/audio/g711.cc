#include "audio/g711.h"

namespace pelton::audio {
namespace {

constexpr float kFullScale = 32768.0f;

}  // namespace

// All bits inverted: sign, three bits of exponent, four of mantissa; 132 is added before coding.
float sample_of_mu_law(uint8_t byte) {
  const int bits = ~byte & 0xFF;
  const int exponent = bits >> 4 & 7;
  const int magnitude = (((bits & 15) << 3 | 0x84) << exponent) - 0x84;
  return static_cast<float>((bits & 0x80) != 0 ? -magnitude : magnitude) / kFullScale;
}

// Every other bit inverted; the sign's bit is set of what is positive.
float sample_of_a_law(uint8_t byte) {
  const int bits = byte ^ 0x55;
  const int exponent = bits >> 4 & 7;
  int magnitude = (bits & 15) << 4 | 8;
  if (exponent > 0) magnitude = (magnitude + 0x100) << (exponent - 1);
  return static_cast<float>((bits & 0x80) != 0 ? magnitude : -magnitude) / kFullScale;
}

}  // namespace pelton::audio
