#include "checkpoint/block_encoder.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>

#include "base/check.h"
#include "tensor/bits.h"

namespace pelton::checkpoint {
namespace {

using tensor::DType;

constexpr int kShort = 32;   // weights of a block, and of a run with a scale of its own
constexpr int kSuper = 256;  // of a super-block

void put_half(float value, uint8_t* out) {
  const uint16_t bits = tensor::float_to_f16(value);
  std::memcpy(out, &bits, sizeof bits);
}

float as_half(float value) {
  return tensor::f16_to_float(tensor::float_to_f16(value));
}

// Of scales that float16 holds as 0 there is none.
float inverse_of(float scale) {
  return std::fabs(scale) > 1e-30f ? 1.0f / scale : 0.0f;
}

// The nearest code, halves away from zero.
int code_of(float value, int least, int most) {
  const float inside = std::clamp(value, static_cast<float>(least), static_cast<float>(most));
  return static_cast<int>(inside + (inside < 0.0f ? -0.5f : 0.5f));
}

// The halves of the block share bytes: j in the low nibble, j + 16 in the high one; a fifth bit of
// each code in `fifths`, if there is such a place.
void put_codes(const int* codes, uint8_t* fifths, uint8_t* nibbles) {
  uint32_t bits = 0;
  for (int j = 0; j < kShort; ++j) bits |= static_cast<uint32_t>(codes[j] >> 4 & 1) << j;
  if (fifths != nullptr) std::memcpy(fifths, &bits, sizeof bits);
  for (int j = 0; j < 16; ++j) {
    nibbles[j] = static_cast<uint8_t>((codes[j] & 15) | (codes[j + 16] & 15) << 4);
  }
}

// Q4_0, Q5_0: the weight of the largest magnitude is the code 0, so that it is met exactly.
void encode_symmetric(const float* weights, int bits, uint8_t* out) {
  const float* const largest = std::max_element(
      weights, weights + kShort, [](float a, float b) { return std::fabs(a) < std::fabs(b); });
  const int half = 1 << (bits - 1);
  const float scale = *largest / static_cast<float>(-half);
  const float inverse = inverse_of(scale);
  int codes[kShort];
  for (int j = 0; j < kShort; ++j) {
    const auto code = static_cast<int>(weights[j] * inverse + static_cast<float>(half) + 0.5f);
    codes[j] = std::min(2 * half - 1, code);
  }
  put_half(scale, out);
  put_codes(codes, bits == 5 ? out + 2 : nullptr, out + (bits == 5 ? 6 : 2));
}

// Q4_1, Q5_1: steps from the smallest weight to the largest.
void encode_from_least(const float* weights, int bits, uint8_t* out) {
  const auto [least, most] = std::minmax_element(weights, weights + kShort);
  const int highest = (1 << bits) - 1;
  const float scale = (*most - *least) / static_cast<float>(highest);
  const float inverse = inverse_of(scale);
  int codes[kShort];
  for (int j = 0; j < kShort; ++j) {
    const auto code = static_cast<int>((weights[j] - *least) * inverse + 0.5f);
    codes[j] = std::min(highest, code);
  }
  put_half(scale, out);
  put_half(*least, out + 2);
  put_codes(codes, bits == 5 ? out + 4 : nullptr, out + (bits == 5 ? 8 : 4));
}

// Halves are rounded away from zero.
void encode_bytes(const float* weights, uint8_t* out) {
  float highest = 0.0f;
  for (int i = 0; i < kShort; ++i) highest = std::max(highest, std::fabs(weights[i]));
  const float scale = highest / 127.0f;
  const float inverse = inverse_of(scale);
  put_half(scale, out);
  for (int i = 0; i < kShort; ++i) {
    out[2 + i] = static_cast<uint8_t>(static_cast<int8_t>(std::round(weights[i] * inverse)));
  }
}

// A run as scale * code - minimum, both at least 0.
struct Line {
  float scale = 0.0f;
  float minimum = 0.0f;
};

double error_of(const float* weights, const Line& line, int highest) {
  const float inverse = inverse_of(line.scale);
  double error = 0;
  for (int i = 0; i < kShort; ++i) {
    const int code = code_of((weights[i] + line.minimum) * inverse, 0, highest);
    const float value = line.scale * static_cast<float>(code) - line.minimum;
    error += (weights[i] - value) * (weights[i] - value);
  }
  return error;
}

// The line of least squares through the codes that `line` gives the weights.
Line refit(const float* weights, const Line& line, int highest) {
  const float inverse = inverse_of(line.scale);
  double codes = 0;
  double squares = 0;
  double sum = 0;
  double product = 0;
  for (int i = 0; i < kShort; ++i) {
    const double code = code_of((weights[i] + line.minimum) * inverse, 0, highest);
    codes += code;
    squares += code * code;
    sum += weights[i];
    product += code * weights[i];
  }
  const double spread = kShort * squares - codes * codes;
  if (spread <= 0) return line;
  const double scale = (kShort * product - codes * sum) / spread;
  const double minimum = (scale * codes - sum) / kShort;
  if (scale <= 0) return line;
  if (minimum < 0) return {static_cast<float>(std::max(product / squares, 0.0)), 0.0f};
  return {static_cast<float>(scale), static_cast<float>(minimum)};
}

// Ranges somewhat narrower than the weights' own: the few at the ends are cut, all others are
// nearer to a step.
constexpr float kNarrower[] = {1.0f, 0.95f, 0.9f, 0.85f, 0.8f};
constexpr int kRefits = 3;

Line best_line(const float* weights, int highest) {
  const auto [first, last] = std::minmax_element(weights, weights + kShort);
  const float least = std::min(*first, 0.0f);  // a minimum is subtracted, never added
  const float most = std::max(*last, 0.0f);
  Line best{.scale = (most - least) / static_cast<float>(highest), .minimum = -least};
  double error = error_of(weights, best, highest);
  for (const float part : kNarrower) {
    Line line{.scale = part * (most - least) / static_cast<float>(highest),
              .minimum = -part * least};
    for (int round = 0; round < kRefits; ++round) {
      line = refit(weights, line, highest);
      const double now = error_of(weights, line, highest);
      if (now >= error) continue;
      best = line;
      error = now;
    }
  }
  return best;
}

// 8 scales and 8 minima of 6 bits: four each in the low six bits of eight bytes; of the other four
// the low nibbles in four bytes more, the upper two bits in what is left of the first eight.
void put_six_bits(const int* scales, const int* minima, uint8_t* out) {
  for (int j = 0; j < 4; ++j) {
    out[j] = static_cast<uint8_t>(scales[j] | scales[j + 4] >> 4 << 6);
    out[j + 4] = static_cast<uint8_t>(minima[j] | minima[j + 4] >> 4 << 6);
    out[j + 8] = static_cast<uint8_t>((scales[j + 4] & 15) | (minima[j + 4] & 15) << 4);
  }
}

// Q4_K, Q5_K: d, dmin, scales (12), fifth bits (32), nibbles (128); run r of 32 is
// d scale[r] code - dmin minimum[r].
void encode_lines(const float* weights, int bits, uint8_t* out) {
  constexpr int kRuns = kSuper / kShort;
  const int highest = (1 << bits) - 1;
  Line lines[kRuns];
  float scale = 0.0f;
  float minimum = 0.0f;
  for (int r = 0; r < kRuns; ++r) {
    lines[r] = best_line(weights + r * kShort, highest);
    scale = std::max(scale, lines[r].scale);
    minimum = std::max(minimum, lines[r].minimum);
  }
  const float d = as_half(scale / 63.0f);
  const float d_minimum = as_half(minimum / 63.0f);
  int scales[kRuns];
  int minima[kRuns];
  uint8_t* const nibbles = out + (bits == 5 ? 48 : 16);
  std::memset(
      out, 0,
      static_cast<size_t>(tensor::row_bytes(bits == 5 ? DType::kQ5_K : DType::kQ4_K, kSuper)));
  for (int r = 0; r < kRuns; ++r) {
    scales[r] = code_of(lines[r].scale * inverse_of(d), 0, 63);
    minima[r] = code_of(lines[r].minimum * inverse_of(d_minimum), 0, 63);
    const float inverse = inverse_of(d * static_cast<float>(scales[r]));
    const float added = d_minimum * static_cast<float>(minima[r]);
    for (int i = 0; i < kShort; ++i) {
      const int code = code_of((weights[r * kShort + i] + added) * inverse, 0, highest);
      nibbles[r / 2 * kShort + i] |= static_cast<uint8_t>((code & 15) << (r % 2 * 4));
      if (bits == 5) out[16 + i] |= static_cast<uint8_t>(code >> 4 << r);
    }
  }
  put_half(d, out);
  put_half(d_minimum, out + 2);
  put_six_bits(scales, minima, out + 4);
}

// Of 16 weights as scale * code, codes from -32 to 31: the scale may be negative, so that the side
// with one code more is the one of the largest weight.
float best_scale(const float* weights) {
  constexpr int kRun = 16;
  const float* const largest = std::max_element(
      weights, weights + kRun, [](float a, float b) { return std::fabs(a) < std::fabs(b); });
  float best = *largest / -32.0f;
  double least = -1;
  for (const float part : kNarrower) {
    float scale = part * *largest / -32.0f;
    for (int round = 0; round < kRefits; ++round) {
      const float inverse = inverse_of(scale);
      double error = 0;
      double squares = 0;
      double product = 0;
      for (int i = 0; i < kRun; ++i) {
        const double code = code_of(weights[i] * inverse, -32, 31);
        error += std::pow(weights[i] - scale * code, 2);
        squares += code * code;
        product += code * weights[i];
      }
      if (least < 0 || error < least) {
        best = scale;
        least = error;
      }
      if (squares > 0) scale = static_cast<float>(product / squares);
    }
  }
  return best;
}

// Q6_K: low nibbles (128), upper two bits (64), scales (16), d. Two halves of 128; in each the runs
// of 32 are the low nibbles of two times 32 bytes, then their high ones; upper bits at shifts 0, 2,
// 4, 6.
void encode_q6_k(const float* weights, uint8_t* out) {
  constexpr int kRuns = kSuper / 16;
  float scales[kRuns];
  float largest = 0.0f;
  for (int r = 0; r < kRuns; ++r) {
    scales[r] = best_scale(weights + r * 16);
    largest = std::max(largest, std::fabs(scales[r]));
  }
  const float d = as_half(largest / 127.0f);
  std::memset(out, 0, static_cast<size_t>(tensor::row_bytes(DType::kQ6_K, kSuper)));
  for (int r = 0; r < kRuns; ++r) {
    const int scale = code_of(scales[r] * inverse_of(d), -127, 127);
    out[192 + r] = static_cast<uint8_t>(static_cast<int8_t>(scale));
    const float inverse = inverse_of(d * static_cast<float>(scale));
    for (int i = 0; i < 16; ++i) {
      const int at = r * 16 + i;
      const int code = code_of(weights[at] * inverse, -32, 31) + 32;
      const int half = at / 128;
      const int run = at % 128 / 32;
      out[half * 64 + run % 2 * 32 + at % 32] |= static_cast<uint8_t>((code & 15) << (run / 2 * 4));
      out[128 + half * 32 + at % 32] |= static_cast<uint8_t>(code >> 4 << (2 * run));
    }
  }
  put_half(d, out + 208);
}

void encode_block(DType type, const float* weights, uint8_t* out) {
  switch (type) {
    case DType::kQ8_0:
      return encode_bytes(weights, out);
    case DType::kQ4_0:
      return encode_symmetric(weights, 4, out);
    case DType::kQ5_0:
      return encode_symmetric(weights, 5, out);
    case DType::kQ4_1:
      return encode_from_least(weights, 4, out);
    case DType::kQ5_1:
      return encode_from_least(weights, 5, out);
    case DType::kQ4_K:
      return encode_lines(weights, 4, out);
    case DType::kQ5_K:
      return encode_lines(weights, 5, out);
    case DType::kQ6_K:
      return encode_q6_k(weights, out);
    default:
      CHECK(false, tensor::dtype_name(type));
  }
}

}  // namespace

bool is_encodable(DType type) {
  constexpr DType kTypes[] = {DType::kQ8_0, DType::kQ4_0, DType::kQ4_1, DType::kQ5_0,
                              DType::kQ5_1, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K};
  return std::ranges::find(kTypes, type) != std::end(kTypes);
}

void encode_row(DType type, std::span<const float> weights, uint8_t* out) {
  CHECK(is_encodable(type), tensor::dtype_name(type));
  const auto each = static_cast<size_t>(tensor::block_elements(type));
  const auto bytes = static_cast<size_t>(tensor::row_bytes(type, static_cast<int64_t>(each)));
  CHECK(weights.size() % each == 0);
  for (size_t block = 0; block < weights.size() / each; ++block) {
    encode_block(type, weights.data() + block * each, out + block * bytes);
  }
}

}  // namespace pelton::checkpoint
