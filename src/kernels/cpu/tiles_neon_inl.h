// Sixteen rows in four NEON registers, and the tile kernels over them. Included inside the unnamed
// namespace of tiles_neon.cc, tiles_neon_dotprod.cc and tiles_neon_i8mm.cc, each compiled with its
// own flags: with products of four bytes added up by one instruction (dotprod), and with those of
// two rows and two tokens at once (i8mm).

struct Quad {
  float32x4_t part[4];
};

// {op(a.part[0], ...), ...}
template <typename To, typename Op, typename... From>
inline To each_part(const Op& op, const From&... from) {
  return {{op(from.part[0]...), op(from.part[1]...), op(from.part[2]...), op(from.part[3]...)}};
}

struct Ints {
  int32x4_t part[4];

  static constexpr int kPanelTokens = 2;

  using Floats = Quad;
  struct Bytes {  // weights, signed: four columns of four rows in each
    int8x16_t part[4];
  };
  using Four = int8x16_t;

  // There is nothing to make up for.
  static constexpr int32_t offset(int32_t) { return 0; }
  static Ints begin(const int32_t*) {
    const int32x4_t zero = vdupq_n_s32(0);
    return {{zero, zero, zero, zero}};
  }
  static Four broadcast(const int8_t* four) {
    int32_t bits;
    __builtin_memcpy(&bits, four, sizeof bits);
    return vreinterpretq_s8_s32(vdupq_n_s32(bits));
  }
#ifdef __ARM_FEATURE_DOTPROD
  static int32x4_t dot(int32x4_t sum, int8x16_t weights, int8x16_t four) {
    return vdotq_s32(sum, weights, four);
  }
#else
  // Products of 16 bits, of which two adjoining ones are added within 16 bits, too: no pair exceeds
  // 2 * 128 * 127. Then pairs of pairs.
  static int32x4_t dot(int32x4_t sum, int8x16_t weights, int8x16_t four) {
    const int16x8_t low = vmull_s8(vget_low_s8(weights), vget_low_s8(four));
    const int16x8_t high = vmull_high_s8(weights, four);
    return vpadalq_s16(sum, vpaddq_s16(low, high));
  }
#endif
  static Ints dot(Ints sum, Bytes weights, Four four) {
    return each_part<Ints>([&](int32x4_t s, int8x16_t w) { return dot(s, w, four); }, sum, weights);
  }
  static Ints dot(Ints sum, Bytes weights, const int8_t* four) {
    return dot(sum, weights, broadcast(four));
  }
  static Ints add(Ints a, Ints b) {
    return each_part<Ints>([](int32x4_t x, int32x4_t y) { return vaddq_s32(x, y); }, a, b);
  }
  static Ints shift_left_7(Ints a) {
    return each_part<Ints>([](int32x4_t x) { return vshlq_n_s32(x, 7); }, a);
  }

  static Bytes from_offset_bytes(const uint8_t* from) {
    const auto part = [&](int i) {
      return vreinterpretq_s8_u8(veorq_u8(vld1q_u8(from + 16 * i), vdupq_n_u8(0x80)));
    };
    return {{part(0), part(1), part(2), part(3)}};
  }
  // E2M1 codes to twice their values.
  static void from_codes(const uint8_t* from, Bytes* low, Bytes* high) {
    alignas(16) static constexpr int8_t kValues[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                                       0, -1, -2, -3, -4, -6, -8, -12};
    const int8x16_t values = vld1q_s8(kValues);
    split(from, low, high, [&](uint8x16_t codes) { return vqtbl1q_s8(values, codes); });
  }
  // Nibbles are numbers plus 8.
  static void from_nibbles(const uint8_t* from, Bytes* low, Bytes* high) {
    split(from, low, high,
          [](uint8x16_t numbers) { return vsubq_s8(vreinterpretq_s8_u8(numbers), vdupq_n_s8(8)); });
  }
  template <typename Op>
  static void split(const uint8_t* from, Bytes* low, Bytes* high, const Op& op) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const uint8x16_t both = vld1q_u8(from + 16 * i);
      low->part[i] = op(vandq_u8(both, vdupq_n_u8(15)));
      high->part[i] = op(vshrq_n_u8(both, 4));
    }
  }
  static void store_spread(uint8_t* to, Bytes weights) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) vst1q_u8(to + 16 * i, vreinterpretq_u8_s8(weights.part[i]));
  }
  static Bytes from_spread(const uint8_t* from) {
    const auto part = [&](int i) { return vreinterpretq_s8_u8(vld1q_u8(from + 16 * i)); };
    return {{part(0), part(1), part(2), part(3)}};
  }

  static Floats half_floats(const uint8_t* from) {
    const float16x8_t low = vreinterpretq_f16_u8(vld1q_u8(from));
    const float16x8_t high = vreinterpretq_f16_u8(vld1q_u8(from + 16));
    return {{vcvt_f32_f16(vget_low_f16(low)), vcvt_high_f32_f16(low),
             vcvt_f32_f16(vget_low_f16(high)), vcvt_high_f32_f16(high)}};
  }
  // E8M0; 2^-127 becomes 0.
  static Floats powers(const uint8_t* from) {
    const uint8x16_t bytes = vld1q_u8(from);
    const uint16x8_t low = vmovl_u8(vget_low_u8(bytes));
    const uint16x8_t high = vmovl_high_u8(bytes);
    const auto power = [](uint32x4_t exponents) {
      return vreinterpretq_f32_u32(vshlq_n_u32(exponents, 23));
    };
    return {{power(vmovl_u16(vget_low_u16(low))), power(vmovl_high_u16(low)),
             power(vmovl_u16(vget_low_u16(high))), power(vmovl_high_u16(high))}};
  }
  // The largest magnitude of 32 floats; NaN if one of them is infinite or NaN. Magnitudes are in
  // the order of their bits, and of those that are no numbers after all others.
  static float largest_or_nan(const float* x) {
    constexpr uint32_t kInfinity = 0x7F800000;
    uint32x4_t largest = vdupq_n_u32(0);
    for (int i = 0; i < 32; i += 4) {
      largest = vmaxq_u32(largest, vreinterpretq_u32_f32(vabsq_f32(vld1q_f32(x + i))));
    }
    const uint32_t bits = vmaxvq_u32(largest);
    return bits >= kInfinity ? __builtin_nanf("") : __builtin_bit_cast(float, bits);
  }
  static Floats to_floats(Ints a) {
    return each_part<Quad>([](int32x4_t x) { return vcvtq_f32_s32(x); }, a);
  }
  static Floats zero_floats() {
    return set1(0.0f);
  }
  static Floats set1(float x) {
    const float32x4_t four = vdupq_n_f32(x);
    return {{four, four, four, four}};
  }
  static Floats load(const float* from) {
    return {{vld1q_f32(from), vld1q_f32(from + 4), vld1q_f32(from + 8), vld1q_f32(from + 12)}};
  }
  static void store(float* to, Floats x) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) vst1q_f32(to + 4 * i, x.part[i]);
  }
  static Floats add(Floats a, Floats b) {
    return each_part<Quad>([](float32x4_t x, float32x4_t y) { return vaddq_f32(x, y); }, a, b);
  }
  static Floats mul(Floats a, Floats b) {
    return each_part<Quad>([](float32x4_t x, float32x4_t y) { return vmulq_f32(x, y); }, a, b);
  }
  static Floats div(Floats a, Floats b) {
    return each_part<Quad>([](float32x4_t x, float32x4_t y) { return vdivq_f32(x, y); }, a, b);
  }
  // As on x86: of two operands the second is taken where one is NaN.
  static Floats min(Floats a, Floats b) {
    return each_part<Quad>(
        [](float32x4_t x, float32x4_t y) { return vbslq_f32(vcltq_f32(x, y), x, y); }, a, b);
  }
  static Floats max(Floats a, Floats b) {
    return each_part<Quad>(
        [](float32x4_t x, float32x4_t y) { return vbslq_f32(vcgtq_f32(x, y), x, y); }, a, b);
  }
  static Floats fma(Floats a, Floats b, Floats c) {
    return each_part<Quad>(
        [](float32x4_t x, float32x4_t y, float32x4_t z) { return vfmaq_f32(z, x, y); }, a, b, c);
  }
  static Floats round(Floats a) {
    return each_part<Quad>([](float32x4_t x) { return vrndnq_f32(x); }, a);
  }
  // n is whole and in the range of a float's exponent.
  static Floats scale_by_power(Floats x, Floats n) {
    return each_part<Quad>(
        [](float32x4_t value, float32x4_t power) {
          const int32x4_t shifted = vshlq_n_s32(vcvtnq_s32_f32(power), 23);
          return vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(value), shifted));
        },
        x, n);
  }
};

#include "kernels/cpu/tile_kernels_inl.h"
