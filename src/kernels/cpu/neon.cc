// NEON, which every 64-bit Arm has: 8 lanes in two registers, so that the order of every sum, and
// with it every bit, is AVX2's.
#include <arm_neon.h>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/expert_additions.h"
#include "kernels/cpu/expert_groups.h"
#include "kernels/cpu/low_rank_workspace.h"
#include "kernels/cpu/step_workspace.h"
#include "kernels/kv_quantization.h"
#include "kernels/latent_rows.h"
#include "kernels/routing.h"
#include "kernels/tiles.h"
#include "kernels/weight_row.h"
#include "tensor/bits.h"
#include "tensor/compact_bf16.h"
#include "tensor/dtype.h"

namespace pelton::kernels {
namespace {

struct Floats8 {
  float32x4_t low;
  float32x4_t high;
};

using Bytes16 = uint8x16_t;

struct Vector {
  static constexpr int kLanes = 8;
  static constexpr int kTileRows = 2;  // 2 x 4 sums of two registers each, of 32 registers
  static constexpr int kTileTokens = 4;
  static constexpr int kVectorRows = 4;

  static constexpr int kHeads = 4;       // query heads that share a key load
  static constexpr int kKeyVectors = 2;  // 4 x 2 sums of two registers each
  static constexpr int kValueVectors = 2;

  using F = Floats8;

  static F zero() { return set1(0.0f); }
  static F set1(float x) {
    const float32x4_t four = vdupq_n_f32(x);
    return {four, four};
  }
  static F load(const float* from) { return {vld1q_f32(from), vld1q_f32(from + 4)}; }
  static F load(const Bf16* from) { return of_bf16(vld1q_u16(from)); }
  static F of_bf16(uint16x8_t bits) {
    return {vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(bits), 16)),
            vreinterpretq_f32_u32(vshll_high_n_u16(bits, 16))};
  }
  static F load(const F16* from) { return of_f16(vld1q_u16(&from->bits)); }
  static F of_f16(uint16x8_t bits) {
    const float16x8_t halves = vreinterpretq_f16_u16(bits);
    return {vcvt_f32_f16(vget_low_f16(halves)), vcvt_high_f32_f16(halves)};
  }
  static F load(const int8_t* from) { return of_signed(vld1_s8(from)); }
  static F of_signed(int8x8_t bytes) {
    const int16x8_t wide = vmovl_s8(bytes);
    return {vcvtq_f32_s32(vmovl_s16(vget_low_s16(wide))), vcvtq_f32_s32(vmovl_high_s16(wide))};
  }
  // Times 2^-8: shifted into a float16's place the exponent is 8 too small.
  static F load(const F8* from) {
    const int8x8_t bytes = vreinterpret_s8_u8(vld1_u8(&from->bits));
    const uint16x8_t shifted = vreinterpretq_u16_s16(vshll_n_s8(bytes, 7));
    // The sign came twice; the lower copy stands in the exponent.
    return of_f16(vandq_u16(shifted, vdupq_n_u16(0xBFFF)));
  }
  // Two vectors that adjoin.
  template <typename T>
  static void load_two(const T* from, F* to) {
    to[0] = load(from);
    to[1] = load(from + kLanes);
  }
  // 16 signed bytes in kParts vectors.
  static void load_codes(Bytes16 codes, F* to) {
    to[0] = of_signed(vreinterpret_s8_u8(vget_low_u8(codes)));
    to[1] = of_signed(vreinterpret_s8_u8(vget_high_u8(codes)));
  }
  // 8 signed bytes.
  static F load_signed(const uint8_t* from) { return load(reinterpret_cast<const int8_t*>(from)); }
  // A float16.
  static float half(const uint8_t* from) {
    uint16_t bits;
    __builtin_memcpy(&bits, from, sizeof bits);
    return vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(bits))), 0);
  }
  static void store(float* to, F x) {
    vst1q_f32(to, x.low);
    vst1q_f32(to + 4, x.high);
  }
  static F add(F a, F b) { return {vaddq_f32(a.low, b.low), vaddq_f32(a.high, b.high)}; }
  static F sub(F a, F b) { return {vsubq_f32(a.low, b.low), vsubq_f32(a.high, b.high)}; }
  static F mul(F a, F b) { return {vmulq_f32(a.low, b.low), vmulq_f32(a.high, b.high)}; }
  static F div(F a, F b) { return {vdivq_f32(a.low, b.low), vdivq_f32(a.high, b.high)}; }
  // As on x86: of two operands the second is taken where one is NaN.
  static F min(F a, F b) {
    return {vbslq_f32(vcltq_f32(a.low, b.low), a.low, b.low),
            vbslq_f32(vcltq_f32(a.high, b.high), a.high, b.high)};
  }
  static F max(F a, F b) { return {larger(a.low, b.low), larger(a.high, b.high)}; }
  static float32x4_t larger(float32x4_t a, float32x4_t b) {
    return vbslq_f32(vcgtq_f32(a, b), a, b);
  }
  static F fma(F a, F b, F c) {
    return {vfmaq_f32(c.low, a.low, b.low), vfmaq_f32(c.high, a.high, b.high)};
  }
  static F round(F a) { return {vrndnq_f32(a.low), vrndnq_f32(a.high)}; }
  // x * 2^n for whole n in [-126, 127].
  static F scale_by_power(F x, F n) {
    const auto power = [](float32x4_t whole) {
      const int32x4_t exponent = vaddq_s32(vcvtnq_s32_f32(whole), vdupq_n_s32(127));
      return vreinterpretq_f32_s32(vshlq_n_s32(exponent, 23));
    };
    return mul(x, {power(n.low), power(n.high)});
  }
  static float sum(F x) {
    const float32x4_t halves = vaddq_f32(x.low, x.high);
    return vpadds_f32(vadd_f32(vget_low_f32(halves), vget_high_f32(halves)));
  }
  static float highest(F x) {
    const float32x4_t halves = larger(x.low, x.high);
    const float32x4_t pairs = larger(halves, vextq_f32(halves, halves, 2));
    return vgetq_lane_f32(larger(pairs, vdupq_laneq_f32(pairs, 1)), 0);
  }
  // The steps of a Walsh-Hadamard transform within a vector: lanes 1, 2, 4 apart.
  static F turn_lanes(F x) {
    const auto within = [](float32x4_t four) {
      four = vreinterpretq_f32_u32(vtrn1q_u32(ones_apart(four, true), ones_apart(four, false)));
      const float32x4_t swapped = vextq_f32(four, four, 2);
      const float32x4_t sums = vaddq_f32(four, swapped);
      return vcombine_f32(vget_low_f32(sums), vget_high_f32(vsubq_f32(swapped, four)));
    };
    x = {within(x.low), within(x.high)};
    return {vaddq_f32(x.low, x.high), vsubq_f32(x.low, x.high)};
  }
  // Of pairs a b: a + b, or a - b, in both lanes.
  static uint32x4_t ones_apart(float32x4_t four, bool sum) {
    const float32x4_t first = vtrn1q_f32(four, four);
    const float32x4_t second = vtrn2q_f32(four, four);
    return vreinterpretq_u32_f32(sum ? vaddq_f32(first, second) : vsubq_f32(first, second));
  }
  // Lanes whose index (from `first_lane`) lies in [low, high] keep x, others become `other`.
  static F keep(F x, int first_lane, int low, int high, F other) {
    alignas(16) static constexpr int32_t kCounts[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    const auto of_four = [&](int at, float32x4_t own, float32x4_t others) {
      const int32x4_t lanes = vaddq_s32(vld1q_s32(kCounts + at), vdupq_n_s32(first_lane));
      const uint32x4_t inside =
          vandq_u32(vcgeq_s32(lanes, vdupq_n_s32(low)), vcleq_s32(lanes, vdupq_n_s32(high)));
      return vbslq_f32(inside, own, others);
    };
    return {of_four(0, x.low, other.low), of_four(4, x.high, other.high)};
  }

  // The 32 weights of one MXFP4 block: 16 even elements in two vectors, 16 odd ones. A value's
  // float32 has nothing below its upper half, whose two bytes are looked up.
  struct Fp4Table {
    uint8x16_t upper = vld1q_u8(kUpper);
    uint8x16_t lower = vld1q_u8(kLower);
    alignas(16) static constexpr uint8_t kUpper[16] = {0x00, 0x3F, 0x3F, 0x3F, 0x40, 0x40,
                                                       0x40, 0x40, 0x80, 0xBF, 0xBF, 0xBF,
                                                       0xC0, 0xC0, 0xC0, 0xC0};
    alignas(16) static constexpr uint8_t kLower[16] = {0x00, 0x00, 0x80, 0xC0, 0x00, 0x40,
                                                       0x80, 0xC0, 0x00, 0x00, 0x80, 0xC0,
                                                       0x00, 0x40, 0x80, 0xC0};
  };
  static void expand(const Fp4Table& table, const uint8_t* block, float scale, F* even, F* odd) {
    expand(table, vld1q_u8(block), scale, even, odd);
  }
  static void expand(const Fp4Table& table, Bytes16 block, float scale, F* even, F* odd) {
    const F scales = set1(scale);
    const auto values = [&](uint8x16_t codes, F* to) {
      const uint8x16_t upper = vqtbl1q_u8(table.upper, codes);
      const uint8x16_t lower = vqtbl1q_u8(table.lower, codes);
      to[0] = mul(scales, of_bf16(vreinterpretq_u16_u8(vzip1q_u8(lower, upper))));
      to[1] = mul(scales, of_bf16(vreinterpretq_u16_u8(vzip2q_u8(lower, upper))));
    };
    values(vandq_u8(block, vdupq_n_u8(15)), even);
    values(vshrq_n_u8(block, 4), odd);
  }

  // The 32 weights of a block of bf16 in 12 bits: the first 16 in two vectors, the last 16.
  static void expand_compact(const uint8_t* block, F* first, F* second) {
    uint16x8_t bits[4];
    join_compact(block, bits);
    for (int i = 0; i < 2; ++i) {
      first[i] = of_bf16(bits[i]);
      second[i] = of_bf16(bits[2 + i]);
    }
  }
  // The same as bf16s. A byte is a sign and seven bits of mantissa; code 0 is exponent 0.
  static void join_compact(const uint8_t* block, uint16x8_t bits[4]) {
    const uint8x16_t base = vdupq_n_u8(block[0]);
    const uint8x16_t nibbles = vld1q_u8(block + 1);
    for (int half = 0; half < 2; ++half) {
      const uint8x16_t codes =
          half == 0 ? vandq_u8(nibbles, vdupq_n_u8(15)) : vshrq_n_u8(nibbles, 4);
      const uint8x16_t exponents = vandq_u8(vaddq_u8(codes, base), vtstq_u8(codes, codes));
      const uint8x16_t bytes = vld1q_u8(block + 17 + 16 * half);
      const uint8x16_t lower = vsliq_n_u8(bytes, exponents, 7);
      const uint8x16_t upper = vbslq_u8(vdupq_n_u8(0x80), bytes, vshrq_n_u8(exponents, 1));
      bits[2 * half] = vreinterpretq_u16_u8(vzip1q_u8(lower, upper));
      bits[2 * half + 1] = vreinterpretq_u16_u8(vzip2q_u8(lower, upper));
    }
  }
};

#include "kernels/cpu/bytes_neon_inl.h"
#include "kernels/cpu/cpu_kernels_inl.h"

}  // namespace

std::unique_ptr<Kernels> make_neon_kernels(base::ThreadPool& pool,
                                           std::unique_ptr<TileKernels> tiles) {
  return std::make_unique<CpuKernels>(pool, std::move(tiles), "neon");
}

}  // namespace pelton::kernels
