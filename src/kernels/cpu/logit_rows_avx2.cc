// kernels/logit_rows.h with 8 lanes. Compiled for AVX2 and FMA; kernels.cc asks the processor
// first.
#include <algorithm>
#include <array>
#include <limits>

#include <immintrin.h>

#include "kernels/logit_rows.h"
#include "kernels/logit_weight.h"

namespace pelton::kernels {
namespace {

// For each set of lanes: their numbers, packed to the front.
constexpr std::array<std::array<uint8_t, 8>, 256> kPackings = [] {
  std::array<std::array<uint8_t, 8>, 256> packings{};
  for (size_t set = 0; set < 256; ++set) {
    size_t packed = 0;
    for (size_t lane = 0; lane < 8; ++lane) {
      if ((set >> lane & 1) != 0) packings[set][packed++] = static_cast<uint8_t>(lane);
    }
  }
  return packings;
}();

struct Lanes {
  static constexpr std::string_view kName = "avx2";
  static constexpr int kCount = 8;
  using Floats = __m256;
  using Units = __m256i;  // half as many
  using Flags = __m256;

  static Floats all(float x) { return _mm256_set1_ps(x); }
  static Floats load(const float* from) { return _mm256_loadu_ps(from); }
  static void store(float* to, Floats x) { _mm256_storeu_ps(to, x); }
  static Floats add(Floats a, Floats b) { return _mm256_add_ps(a, b); }
  static Floats subtract(Floats a, Floats b) { return _mm256_sub_ps(a, b); }
  static Floats multiply(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
  static Floats multiply_add(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
  static Floats max(Floats a, Floats b) { return _mm256_max_ps(a, b); }
  static float highest(Floats x) {
    __m128 half = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    half = _mm_max_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_max_ss(half, _mm_shuffle_ps(half, half, 1)));
  }

  static Flags no_flags() { return _mm256_setzero_ps(); }
  static Flags either(Flags a, Flags b) { return _mm256_or_ps(a, b); }
  static bool any(Flags flags) { return _mm256_movemask_ps(flags) != 0; }
  static Flags broken(Floats x) {
    return _mm256_cmp_ps(x, all(std::numeric_limits<float>::max()), _CMP_NLE_UQ);
  }
  static unsigned at_least(Floats x, Floats floor) {
    return static_cast<unsigned>(_mm256_movemask_ps(_mm256_cmp_ps(x, floor, _CMP_GE_OQ)));
  }
  // Bit i keeps lane i.
  static Floats keep(Floats x, unsigned bits, Floats other) {
    const __m256i lane_bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const __m256i set = _mm256_and_si256(_mm256_set1_epi32(static_cast<int>(bits)), lane_bits);
    return _mm256_blendv_ps(other, x, _mm256_castsi256_ps(_mm256_cmpeq_epi32(set, lane_bits)));
  }

  // x * 2^n, where n stands in the lowest bits of `shifted`.
  static Floats times_power(Floats x, Floats shifted) {
    return _mm256_castsi256_ps(_mm256_add_epi32(
        _mm256_castps_si256(x), _mm256_slli_epi32(_mm256_castps_si256(shifted), 23)));
  }
  static void in_units(Floats x, Units& low, Units& high) {
    const __m256d shift = _mm256_set1_pd(kUnitShift);
    const __m256d first = _mm256_cvtps_pd(_mm256_castps256_ps128(x));
    const __m256d second = _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1));
    low = _mm256_castpd_si256(_mm256_add_pd(first, shift));
    high = _mm256_castpd_si256(_mm256_add_pd(second, shift));
  }
  static Units units(uint64_t x) { return _mm256_set1_epi64x(static_cast<int64_t>(x)); }
  static Units add(Units a, Units b) { return _mm256_add_epi64(a, b); }
  static Units subtract(Units a, Units b) { return _mm256_sub_epi64(a, b); }
  static void store(Mass* to, Units x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), x); }
  static Mass sum(Units x) {
    const __m128i half = _mm_add_epi64(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    return static_cast<Mass>(_mm_extract_epi64(half, 0)) +
           static_cast<Mass>(_mm_extract_epi64(half, 1));
  }

  // Packs the lanes of `chosen`; writes whole vectors.
  static void store_chosen(Floats x, int first_id, unsigned chosen, float* values, TokenId* ids) {
    const __m256i packing = _mm256_cvtepu8_epi32(
        _mm_loadl_epi64(reinterpret_cast<const __m128i*>(kPackings[chosen].data())));
    _mm256_storeu_ps(values, _mm256_permutevar8x32_ps(x, packing));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(ids),
                        _mm256_add_epi32(_mm256_set1_epi32(first_id), packing));
  }
};

#include "kernels/cpu/logit_rows_inl.h"

}  // namespace

std::unique_ptr<LogitRows> make_avx2_logit_rows() {
  return std::make_unique<VectorLogitRows>();
}

}  // namespace pelton::kernels
