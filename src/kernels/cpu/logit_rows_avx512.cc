// kernels/logit_rows.h with 16 lanes. Compiled for AVX-512; kernels.cc asks the processor first.
#include <algorithm>
#include <limits>

#include <immintrin.h>

#include "kernels/logit_rows.h"
#include "kernels/logit_weight.h"

namespace pelton::kernels {
namespace {

struct Lanes {
  static constexpr std::string_view kName = "avx512";
  static constexpr int kCount = 16;
  using Floats = __m512;
  using Units = __m512i;  // half as many
  using Flags = __mmask16;

  static Floats all(float x) { return _mm512_set1_ps(x); }
  static Floats load(const float* from) { return _mm512_loadu_ps(from); }
  static void store(float* to, Floats x) { _mm512_storeu_ps(to, x); }
  static Floats add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
  static Floats subtract(Floats a, Floats b) { return _mm512_sub_ps(a, b); }
  static Floats multiply(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
  static Floats multiply_add(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
  static Floats max(Floats a, Floats b) { return _mm512_max_ps(a, b); }
  static float highest(Floats x) { return _mm512_reduce_max_ps(x); }

  static Flags no_flags() { return 0; }
  static Flags either(Flags a, Flags b) { return _kor_mask16(a, b); }
  static bool any(Flags flags) { return flags != 0; }
  static Flags broken(Floats x) {
    return _mm512_cmp_ps_mask(x, all(std::numeric_limits<float>::max()), _CMP_NLE_UQ);
  }
  static unsigned at_least(Floats x, Floats floor) {
    return _mm512_cmp_ps_mask(x, floor, _CMP_GE_OQ);
  }
  // Bit i keeps lane i.
  static Floats keep(Floats x, unsigned bits, Floats other) {
    return _mm512_mask_mov_ps(other, static_cast<__mmask16>(bits), x);
  }

  // x * 2^n, where n stands in the lowest bits of `shifted`.
  static Floats times_power(Floats x, Floats shifted) {
    return _mm512_castsi512_ps(_mm512_add_epi32(
        _mm512_castps_si512(x), _mm512_slli_epi32(_mm512_castps_si512(shifted), 23)));
  }
  static void in_units(Floats x, Units& low, Units& high) {
    const __m512d shift = _mm512_set1_pd(kUnitShift);
    const __m512d first = _mm512_cvtps_pd(_mm512_castps512_ps256(x));
    const __m512d second = _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1));
    low = _mm512_castpd_si512(_mm512_add_pd(first, shift));
    high = _mm512_castpd_si512(_mm512_add_pd(second, shift));
  }
  static Units units(uint64_t x) { return _mm512_set1_epi64(static_cast<int64_t>(x)); }
  static Units add(Units a, Units b) { return _mm512_add_epi64(a, b); }
  static Units subtract(Units a, Units b) { return _mm512_sub_epi64(a, b); }
  static void store(Mass* to, Units x) { _mm512_storeu_si512(to, x); }
  static Mass sum(Units x) { return static_cast<Mass>(_mm512_reduce_add_epi64(x)); }

  // Packs the lanes of `chosen`; writes whole vectors. (Compressing into memory is slow on Zen 4.)
  static void store_chosen(Floats x, int first_id, unsigned chosen, float* values, TokenId* ids) {
    const auto mask = static_cast<__mmask16>(chosen);
    const __m512i counts = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i id = _mm512_add_epi32(_mm512_set1_epi32(first_id), counts);
    _mm512_storeu_ps(values, _mm512_maskz_compress_ps(mask, x));
    _mm512_storeu_si512(ids, _mm512_maskz_compress_epi32(mask, id));
  }
};

#include "kernels/cpu/logit_rows_inl.h"

}  // namespace

std::unique_ptr<LogitRows> make_avx512_logit_rows() {
  return std::make_unique<VectorLogitRows>();
}

}  // namespace pelton::kernels
