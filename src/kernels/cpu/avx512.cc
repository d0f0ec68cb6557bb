// AVX-512 (F, BW, DQ, VL): 16 lanes. Compiled with those flags; nothing here may run before
// kernels.cc has asked the processor.
#include <immintrin.h>

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

struct Vector {
  static constexpr int kLanes = 16;
  static constexpr int kTileRows = 4;  // 4 x 6 sums, leaving 8 registers for weights and tables
  static constexpr int kTileTokens = 6;
  static constexpr int kVectorRows = 8;  // rows at a time for a single token

  static constexpr int kHeads = 8;       // query heads that share a key load
  static constexpr int kKeyVectors = 2;  // 8 x 2 sums: the chains of additions hide each other
  static constexpr int kValueVectors = 2;

  using F = __m512;

  static F zero() { return _mm512_setzero_ps(); }
  static F set1(float x) { return _mm512_set1_ps(x); }
  static F load(const float* from) { return _mm512_loadu_ps(from); }
  static F load(const Bf16* from) {
    const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
  }
  static F load(const F16* from) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  }
  static F load(const int8_t* from) {
    return _mm512_cvtepi32_ps(
        _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
  }
  // Times 2^-8: shifted into a float16's place the exponent is 8 too small.
  static F load(const F8* from) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    const __m256i shifted = _mm256_slli_epi16(_mm256_cvtepi8_epi16(bytes), 7);
    // The sign came twice; the lower copy stands in the exponent.
    return _mm512_cvtph_ps(_mm256_and_si256(shifted, _mm256_set1_epi16(int16_t{-0x4001})));
  }
  // Two vectors that adjoin.
  template <typename T>
  static void load_two(const T* from, F* to) {
    to[0] = load(from);
    to[1] = load(from + kLanes);
  }
  static void load_two(const F8* from, F* to) {
    const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    const __m512i shifted = _mm512_slli_epi16(_mm512_cvtepi8_epi16(bytes), 7);
    const __m512i halves = _mm512_and_si512(shifted, _mm512_set1_epi16(int16_t{-0x4001}));
    to[0] = _mm512_cvtph_ps(_mm512_castsi512_si256(halves));
    to[1] = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(halves, 1));
  }
  // 16 signed bytes in kParts vectors.
  static void load_codes(__m128i codes, F* to) {
    to[0] = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(codes));
  }
  // 16 signed bytes.
  static F load_signed(const uint8_t* from) { return load(reinterpret_cast<const int8_t*>(from)); }
  // A float16.
  static float half(const uint8_t* from) {
    uint16_t bits;
    __builtin_memcpy(&bits, from, sizeof bits);
    return _cvtsh_ss(bits);
  }
  static void store(float* to, F x) { _mm512_storeu_ps(to, x); }
  static F add(F a, F b) { return _mm512_add_ps(a, b); }
  static F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F div(F a, F b) { return _mm512_div_ps(a, b); }
  static F min(F a, F b) { return _mm512_min_ps(a, b); }
  static F max(F a, F b) { return _mm512_max_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F round(F a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT); }
  // x * 2^n for whole n.
  static F scale_by_power(F x, F n) { return _mm512_scalef_ps(x, n); }
  static float sum(F x) { return _mm512_reduce_add_ps(x); }
  static float highest(F x) { return _mm512_reduce_max_ps(x); }
  // The steps of a Walsh-Hadamard transform within a vector: lanes 1, 2, 4, 8 apart.
  static F turn_lanes(F x) {
    x = turn_step(x, _mm512_permute_ps(x, 0xB1), 0xAAAA);
    x = turn_step(x, _mm512_permute_ps(x, 0x4E), 0xCCCC);
    x = turn_step(x, _mm512_shuffle_f32x4(x, x, 0xB1), 0xF0F0);
    return turn_step(x, _mm512_shuffle_f32x4(x, x, 0x4E), 0xFF00);
  }
  static F turn_step(F x, F partner, __mmask16 upper) {
    return _mm512_mask_sub_ps(_mm512_add_ps(x, partner), upper, partner, x);
  }
  // Lanes whose index (from `first_lane`) lies in [low, high] keep x, others become `other`.
  static F keep(F x, int first_lane, int low, int high, F other) {
    const int upto = high - first_lane < kLanes ? high - first_lane : kLanes - 1;
    const uint32_t upto_high = (uint32_t{2} << upto) - 1;
    const uint32_t below_low = low > first_lane ? (uint32_t{1} << (low - first_lane)) - 1 : 0;
    return _mm512_mask_mov_ps(other, static_cast<__mmask16>(upto_high & ~below_low), x);
  }

  // The 32 weights of one MXFP4 block: 16 even elements, 16 odd ones.
  struct Fp4Table {
    F values = _mm512_loadu_ps(tensor::kFp4Values);
  };
  static void expand(const Fp4Table& table, const uint8_t* block, float scale, F* even, F* odd) {
    expand(table, _mm_loadu_si128(reinterpret_cast<const __m128i*>(block)), scale, even, odd);
  }
  static void expand(const Fp4Table& table, __m128i block, float scale, F* even, F* odd) {
    const F scaled = _mm512_mul_ps(table.values, _mm512_set1_ps(scale));
    const __m512i bytes = _mm512_cvtepu8_epi32(block);
    // vpermps looks at the low four bits only: no masking.
    even[0] = _mm512_permutexvar_ps(bytes, scaled);
    odd[0] = _mm512_permutexvar_ps(_mm512_srli_epi32(bytes, 4), scaled);
  }

  // The 32 weights of a block of bf16 in 12 bits: the first 16, the last 16.
  static void expand_compact(const uint8_t* block, F* first, F* second) {
    // The float32's exponent of each code, 0 of code 0.
    const __m512i codes =
        _mm512_setr_epi32(0, 1 << 23, 2 << 23, 3 << 23, 4 << 23, 5 << 23, 6 << 23, 7 << 23, 8 << 23,
                          9 << 23, 10 << 23, 11 << 23, 12 << 23, 13 << 23, 14 << 23, 15 << 23);
    const __m512i exponents =
        _mm512_maskz_add_epi32(0xFFFE, codes, _mm512_set1_epi32(int{block[0]} << 23));
    const __m512i nibbles = _mm512_cvtepu8_epi32(load_16(block + 1));
    // vpermd looks at the low four bits only: no masking.
    first[0] = join_compact(block + 17, _mm512_permutexvar_epi32(nibbles, exponents));
    second[0] = join_compact(block + 33,
                             _mm512_permutexvar_epi32(_mm512_srli_epi32(nibbles, 4), exponents));
  }
  // 16 bytes of sign and mantissa: the sign comes to bit 31, the mantissa to 16 to 22.
  static F join_compact(const uint8_t* bytes, __m512i exponents) {
    const __m512i moved = _mm512_slli_epi32(_mm512_cvtepi8_epi32(load_16(bytes)), 16);
    // moved & mask | exponents
    constexpr int kAndOr = 0xEA;
    const int mask = static_cast<int>(0x807F0000u);
    return _mm512_castsi512_ps(
        _mm512_ternarylogic_epi32(moved, _mm512_set1_epi32(mask), exponents, kAndOr));
  }
  static __m128i load_16(const uint8_t* from) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  }
};

#include "kernels/cpu/bytes_x86_inl.h"
#include "kernels/cpu/cpu_kernels_inl.h"

}  // namespace

std::unique_ptr<Kernels> make_avx512_kernels(base::ThreadPool& pool,
                                             std::unique_ptr<TileKernels> tiles,
                                             std::string_view name) {
  return std::make_unique<CpuKernels>(pool, std::move(tiles), name);
}

}  // namespace pelton::kernels
