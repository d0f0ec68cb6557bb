// Sixteen rows in the lanes of an AVX-512 register, and the tile kernels over them. Included inside
// the unnamed namespace of tiles_avx512.cc and tiles_avx512_vbmi.cc, each compiled with its own
// flags (VNNI; VNNI and VBMI, which looks codes up without masking them).

struct Ints {
  __m512i lanes;

  static constexpr int kPanelTokens = 6;  // 2 tiles x 6 sums of integers, as many of floats

  using Floats = __m512;
  using Bytes = __m512i;  // unsigned: the weight and an offset
  using Four = __m512i;   // four activations, in every lane

  // Weights are stored as bytes without a sign.
  static constexpr int32_t offset(int32_t stored) { return stored; }
  static Ints begin(const int32_t* begin) { return {_mm512_set1_epi32(*begin)}; }
  static Four broadcast(const int8_t* four) {
    int32_t bits;
    __builtin_memcpy(&bits, four, sizeof bits);
    return _mm512_set1_epi32(bits);
  }
  static Ints dot(Ints sum, Bytes weights, Four four) {
    return {_mm512_dpbusd_epi32(sum.lanes, weights, four)};
  }
  // Broadcast by the instruction itself, which g++ does not do: a fifth fewer of them to look ahead
  // over.
  static Ints dot(Ints sum, Bytes weights, const int8_t* four) {
    struct [[gnu::may_alias, gnu::packed]] Bits {
      int32_t four;
    };
    asm("vpdpbusd %1%{1to16%}, %2, %0"
        : "+v"(sum.lanes)
        : "m"(*reinterpret_cast<const Bits*>(four)), "v"(weights));
    return sum;
  }
  static Ints add(Ints a, Ints b) { return {_mm512_add_epi32(a.lanes, b.lanes)}; }
  static Ints shift_left_7(Ints a) { return {_mm512_slli_epi32(a.lanes, 7)}; }

  static Bytes from_offset_bytes(const uint8_t* from) { return _mm512_loadu_si512(from); }
  // E2M1 codes to twice their values, plus 12.
  static void from_codes(const uint8_t* from, Bytes* low, Bytes* high) {
    const __m512i table = _mm512_broadcast_i32x4(
        _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
    const __m512i codes = _mm512_loadu_si512(from);
#ifdef __AVX512VBMI__
    // Looks at six bits, of which the table forgets two.
    *low = _mm512_permutexvar_epi8(codes, table);
    *high = _mm512_permutexvar_epi8(_mm512_srli_epi16(codes, 4), table);
#else
    const __m512i nibble = _mm512_set1_epi8(15);
    *low = _mm512_shuffle_epi8(table, _mm512_and_si512(codes, nibble));
    *high = _mm512_shuffle_epi8(table, _mm512_and_si512(_mm512_srli_epi16(codes, 4), nibble));
#endif
  }
  // Nibbles are numbers plus 8.
  static void from_nibbles(const uint8_t* from, Bytes* low, Bytes* high) {
    const __m512i nibble = _mm512_set1_epi8(15);
    const __m512i both = _mm512_loadu_si512(from);
    *low = _mm512_and_si512(both, nibble);
    *high = _mm512_and_si512(_mm512_srli_epi16(both, 4), nibble);
  }
  static void store_spread(uint8_t* to, Bytes weights) {
    _mm512_storeu_si512(to, weights);
  }
  static Bytes from_spread(const uint8_t* from) {
    return _mm512_loadu_si512(from);
  }

  static Floats half_floats(const uint8_t* from) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  }
  // E8M0; 2^-127 becomes 0.
  static Floats powers(const uint8_t* from) {
    const __m512i bits =
        _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
    return _mm512_castsi512_ps(_mm512_slli_epi32(bits, 23));
  }
  // The largest magnitude of 32 floats; NaN if one of them is infinite or NaN.
  static float largest_or_nan(const float* x) {
    const __m512 low = _mm512_loadu_ps(x);
    const __m512 high = _mm512_loadu_ps(x + 16);
    constexpr int kNotFinite = 0x01 | 0x08 | 0x10 | 0x80;  // NaN, +inf, -inf, signalling NaN
    if ((_mm512_fpclass_ps_mask(low, kNotFinite) | _mm512_fpclass_ps_mask(high, kNotFinite)) != 0) {
      return __builtin_nanf("");
    }
    return _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(low), _mm512_abs_ps(high)));
  }
  static Floats to_floats(Ints a) {
    return _mm512_cvtepi32_ps(a.lanes);
  }
  static Floats zero_floats() {
    return _mm512_setzero_ps();
  }
  static Floats set1(float x) {
    return _mm512_set1_ps(x);
  }
  static Floats load(const float* from) {
    return _mm512_loadu_ps(from);
  }
  static void store(float* to, Floats x) {
    _mm512_storeu_ps(to, x);
  }
  static Floats add(Floats a, Floats b) {
    return _mm512_add_ps(a, b);
  }
  static Floats mul(Floats a, Floats b) {
    return _mm512_mul_ps(a, b);
  }
  static Floats div(Floats a, Floats b) {
    return _mm512_div_ps(a, b);
  }
  static Floats min(Floats a, Floats b) {
    return _mm512_min_ps(a, b);
  }
  static Floats max(Floats a, Floats b) {
    return _mm512_max_ps(a, b);
  }
  static Floats fma(Floats a, Floats b, Floats c) {
    return _mm512_fmadd_ps(a, b, c);
  }
  static Floats round(Floats a) {
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT);
  }
  static Floats scale_by_power(Floats x, Floats n) {
    return _mm512_scalef_ps(x, n);
  }
};

#include "kernels/cpu/tile_kernels_inl.h"
