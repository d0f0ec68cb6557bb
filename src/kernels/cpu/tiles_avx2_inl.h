// Sixteen rows in two AVX2 registers, and the tile kernels over them. Included inside the unnamed
// namespace of tiles_avx2.cc and tiles_avxvnni.cc, each compiled with its own flags (the second for
// processors that have VNNI for such registers: Intel's clients since 2021, AMD since Zen 5).

struct Pair {
  __m256 low;
  __m256 high;
};

struct Ints {
  __m256i low;
  __m256i high;

  static constexpr int kPanelTokens = 2;

  using Floats = Pair;
  struct Bytes {  // weights: with VNNI unsigned, as they are stored, else signed
    __m256i low;
    __m256i high;
  };
  using Four = __m256i;

#ifdef __AVXVNNI__
  static constexpr int32_t offset(int32_t stored) {
    return stored;
  }
  static Ints begin(const int32_t* begin) {
    const __m256i lanes = _mm256_set1_epi32(*begin);
    return {lanes, lanes};
  }
#else
  // There is nothing to make up for.
  static constexpr int32_t offset(int32_t) {
    return 0;
  }
  static Ints begin(const int32_t*) {
    return {_mm256_setzero_si256(), _mm256_setzero_si256()};
  }
#endif
  static Four broadcast(const int8_t* four) {
    int32_t bits;
    __builtin_memcpy(&bits, four, sizeof bits);
    return _mm256_set1_epi32(bits);
  }
#ifdef __AVXVNNI__
  static __m256i dot(__m256i sum, __m256i weights, __m256i four) {
    return _mm256_dpbusd_avx_epi32(sum, weights, four);
  }
#else
  // |w| * (a with w's sign), as of -3 and 5: 3 * -5. No pair exceeds 2 * 127 * 127, which 16 bits
  // hold.
  static __m256i dot(__m256i sum, __m256i weights, __m256i four) {
    const __m256i pairs =
        _mm256_maddubs_epi16(_mm256_abs_epi8(weights), _mm256_sign_epi8(four, weights));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  }
#endif
  static Ints dot(Ints sum, Bytes weights, Four four) {
    return {dot(sum.low, weights.low, four), dot(sum.high, weights.high, four)};
  }
  static Ints dot(Ints sum, Bytes weights, const int8_t* four) {
    return dot(sum, weights, broadcast(four));
  }
  static Ints add(Ints a, Ints b) {
    return {_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)};
  }
  static Ints shift_left_7(Ints a) {
    return {_mm256_slli_epi32(a.low, 7), _mm256_slli_epi32(a.high, 7)};
  }

  static __m256i load_half(const uint8_t* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  }
#ifdef __AVXVNNI__
  static Bytes from_offset_bytes(const uint8_t* from) {
    return {load_half(from), load_half(from + 32)};
  }
  // E2M1 codes to twice their values, plus 12 (13, which is -3, to 6); nibbles are numbers plus 8
  // already.
  static __m256i code_table() {
    return _mm256_broadcastsi128_si256(
        _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
  }
  static __m256i numbers(__m256i nibbles) {
    return nibbles;
  }
#else
  static Bytes from_offset_bytes(const uint8_t* from) {
    const __m256i flip = _mm256_set1_epi8(-128);
    return {_mm256_xor_si256(load_half(from), flip), _mm256_xor_si256(load_half(from + 32), flip)};
  }
  // E2M1 codes to twice their values; nibbles are numbers plus 8.
  static __m256i code_table() {
    return _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12));
  }
  static __m256i numbers(__m256i nibbles) {
    return _mm256_sub_epi8(nibbles, _mm256_set1_epi8(8));
  }
#endif
  static void from_codes(const uint8_t* from, Bytes* low, Bytes* high) {
    const __m256i table = code_table();
    const __m256i nibble = _mm256_set1_epi8(15);
    const auto lows = [&](__m256i codes) {
      return _mm256_shuffle_epi8(table, _mm256_and_si256(codes, nibble));
    };
    const __m256i first = load_half(from);
    const __m256i second = load_half(from + 32);
    *low = {lows(first), lows(second)};
    *high = {lows(_mm256_srli_epi16(first, 4)), lows(_mm256_srli_epi16(second, 4))};
  }
  static void from_nibbles(const uint8_t* from, Bytes* low, Bytes* high) {
    const __m256i nibble = _mm256_set1_epi8(15);
    const auto lows = [&](__m256i both) { return numbers(_mm256_and_si256(both, nibble)); };
    const __m256i first = load_half(from);
    const __m256i second = load_half(from + 32);
    *low = {lows(first), lows(second)};
    *high = {lows(_mm256_srli_epi16(first, 4)), lows(_mm256_srli_epi16(second, 4))};
  }
  static void store_spread(uint8_t* to, Bytes weights) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), weights.low);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 32), weights.high);
  }
  static Bytes from_spread(const uint8_t* from) {
    return {load_half(from), load_half(from + 32)};
  }

  static Floats half_floats(const uint8_t* from) {
    const auto half = [&](int at) {
      return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + at)));
    };
    return {half(0), half(16)};
  }
  // E8M0; 2^-127 becomes 0.
  static Floats powers(const uint8_t* from) {
    const auto half = [&](int at) {
      const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from + at));
      return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu8_epi32(bytes), 23));
    };
    return {half(0), half(8)};
  }
  // The largest magnitude of 32 floats; NaN if one of them is infinite or NaN.
  static float largest_or_nan(const float* x) {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    __m256 largest = _mm256_setzero_ps();
    __m256 not_finite = _mm256_setzero_ps();
    for (int i = 0; i < 32; i += 8) {
      const __m256 value = _mm256_loadu_ps(x + i);
      largest = _mm256_max_ps(largest, _mm256_andnot_ps(sign, value));
      const __m256 zero = _mm256_sub_ps(value, value);  // or NaN
      not_finite = _mm256_or_ps(not_finite, _mm256_cmp_ps(zero, zero, _CMP_UNORD_Q));
    }
    if (_mm256_movemask_ps(not_finite) != 0) return __builtin_nanf("");
    const __m128 four =
        _mm_max_ps(_mm256_castps256_ps128(largest), _mm256_extractf128_ps(largest, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
  }
  static Floats to_floats(Ints a) {
    return {_mm256_cvtepi32_ps(a.low), _mm256_cvtepi32_ps(a.high)};
  }
  static Floats zero_floats() {
    return {_mm256_setzero_ps(), _mm256_setzero_ps()};
  }
  static Floats set1(float x) {
    return {_mm256_set1_ps(x), _mm256_set1_ps(x)};
  }
  static Floats load(const float* from) {
    return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)};
  }
  static void store(float* to, Floats x) {
    _mm256_storeu_ps(to, x.low);
    _mm256_storeu_ps(to + 8, x.high);
  }
  static Floats add(Floats a, Floats b) {
    return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
  }
  static Floats mul(Floats a, Floats b) {
    return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
  }
  static Floats div(Floats a, Floats b) {
    return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
  }
  static Floats min(Floats a, Floats b) {
    return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)};
  }
  static Floats max(Floats a, Floats b) {
    return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
  }
  static Floats fma(Floats a, Floats b, Floats c) {
    return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
  }
  static Floats round(Floats a) {
    return {_mm256_round_ps(a.low, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
            _mm256_round_ps(a.high, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
  }
  // n is whole and in the range of a float's exponent.
  static Floats scale_by_power(Floats x, Floats n) {
    const auto scale = [](__m256 value, __m256 power) {
      const __m256i shifted = _mm256_slli_epi32(_mm256_cvtps_epi32(power), 23);
      return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(value), shifted));
    };
    return {scale(x.low, n.low), scale(x.high, n.high)};
  }
};

#include "kernels/cpu/tile_kernels_inl.h"
