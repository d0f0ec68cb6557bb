// kernels/logit_rows.h with 4 lanes of NEON.
#include <algorithm>
#include <array>
#include <limits>

#include <arm_neon.h>

#include "kernels/logit_rows.h"
#include "kernels/logit_weight.h"

namespace pelton::kernels {
namespace {

// For each set of lanes: the bytes of those lanes, packed to the front.
constexpr std::array<std::array<uint8_t, 16>, 16> kPackings = [] {
  std::array<std::array<uint8_t, 16>, 16> packings{};
  for (size_t set = 0; set < 16; ++set) {
    size_t packed = 0;
    for (size_t lane = 0; lane < 4; ++lane) {
      if ((set >> lane & 1) == 0) continue;
      for (size_t byte = 0; byte < 4; ++byte) {
        packings[set][packed++] = static_cast<uint8_t>(4 * lane + byte);
      }
    }
  }
  return packings;
}();

struct Lanes {
  static constexpr std::string_view kName = "neon";
  static constexpr int kCount = 4;
  using Floats = float32x4_t;
  using Units = uint64x2_t;  // half as many
  using Flags = uint32x4_t;

  static Floats all(float x) { return vdupq_n_f32(x); }
  static Floats load(const float* from) { return vld1q_f32(from); }
  static void store(float* to, Floats x) { vst1q_f32(to, x); }
  static Floats add(Floats a, Floats b) { return vaddq_f32(a, b); }
  static Floats subtract(Floats a, Floats b) { return vsubq_f32(a, b); }
  static Floats multiply(Floats a, Floats b) { return vmulq_f32(a, b); }
  static Floats multiply_add(Floats a, Floats b, Floats c) { return vfmaq_f32(c, a, b); }
  // As on x86: the second where one is NaN.
  static Floats max(Floats a, Floats b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
  static float highest(Floats x) {
    const Floats pairs = max(x, vextq_f32(x, x, 2));
    return vgetq_lane_f32(max(pairs, vdupq_laneq_f32(pairs, 1)), 0);
  }

  static Flags no_flags() { return vdupq_n_u32(0); }
  static Flags either(Flags a, Flags b) { return vorrq_u32(a, b); }
  static bool any(Flags flags) { return vmaxvq_u32(flags) != 0; }
  static Flags broken(Floats x) {
    return vmvnq_u32(vcleq_f32(x, all(std::numeric_limits<float>::max())));
  }
  static uint32x4_t lane_bits() {
    alignas(16) static constexpr uint32_t kBits[4] = {1, 2, 4, 8};
    return vld1q_u32(kBits);
  }
  static unsigned at_least(Floats x, Floats floor) {
    return vaddvq_u32(vandq_u32(vcgeq_f32(x, floor), lane_bits()));
  }
  // Bit i keeps lane i.
  static Floats keep(Floats x, unsigned bits, Floats other) {
    return vbslq_f32(vtstq_u32(vdupq_n_u32(bits), lane_bits()), x, other);
  }

  // x * 2^n, where n stands in the lowest bits of `shifted`.
  static Floats times_power(Floats x, Floats shifted) {
    return vreinterpretq_f32_u32(
        vaddq_u32(vreinterpretq_u32_f32(x), vshlq_n_u32(vreinterpretq_u32_f32(shifted), 23)));
  }
  static void in_units(Floats x, Units& low, Units& high) {
    const float64x2_t shift = vdupq_n_f64(kUnitShift);
    low = vreinterpretq_u64_f64(vaddq_f64(vcvt_f64_f32(vget_low_f32(x)), shift));
    high = vreinterpretq_u64_f64(vaddq_f64(vcvt_high_f64_f32(x), shift));
  }
  static Units units(uint64_t x) { return vdupq_n_u64(x); }
  static Units add(Units a, Units b) { return vaddq_u64(a, b); }
  static Units subtract(Units a, Units b) { return vsubq_u64(a, b); }
  static void store(Mass* to, Units x) { vst1q_u64(to, x); }
  static Mass sum(Units x) { return vaddvq_u64(x); }

  // Packs the lanes of `chosen`; writes whole vectors.
  static void store_chosen(Floats x, int first_id, unsigned chosen, float* values, TokenId* ids) {
    alignas(16) static constexpr int32_t kCounts[4] = {0, 1, 2, 3};
    const uint8x16_t packing = vld1q_u8(kPackings[chosen].data());
    const int32x4_t id = vaddq_s32(vdupq_n_s32(first_id), vld1q_s32(kCounts));
    vst1q_f32(values, vreinterpretq_f32_u8(vqtbl1q_u8(vreinterpretq_u8_f32(x), packing)));
    vst1q_s32(ids, vreinterpretq_s32_u8(vqtbl1q_u8(vreinterpretq_u8_s32(id), packing)));
  }
};

#include "kernels/cpu/logit_rows_inl.h"

}  // namespace

std::unique_ptr<LogitRows> make_neon_logit_rows() {
  return std::make_unique<VectorLogitRows>();
}

}  // namespace pelton::kernels
