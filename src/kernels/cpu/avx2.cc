// AVX2, FMA and F16C: 8 lanes. Compiled with those flags; nothing here may run before kernels.cc
// has asked the processor.
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
  static constexpr int kLanes = 8;
  static constexpr int kTileRows = 2;  // 2 x 4 sums of 16 registers
  static constexpr int kTileTokens = 4;
  static constexpr int kVectorRows = 4;

  static constexpr int kHeads = 4;       // query heads that share a key load
  static constexpr int kKeyVectors = 2;  // 4 x 2 sums of 16 registers
  static constexpr int kValueVectors = 2;

  using F = __m256;

  static F zero() { return _mm256_setzero_ps(); }
  static F set1(float x) { return _mm256_set1_ps(x); }
  static F load(const float* from) { return _mm256_loadu_ps(from); }
  static F load(const Bf16* from) {
    const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
  }
  static F load(const F16* from) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  static F load(const int8_t* from) {
    return _mm256_cvtepi32_ps(
        _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))));
  }
  // Times 2^-8: shifted into a float16's place the exponent is 8 too small.
  static F load(const F8* from) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
    const __m128i shifted = _mm_slli_epi16(_mm_cvtepi8_epi16(bytes), 7);
    // The sign came twice; the lower copy stands in the exponent.
    return _mm256_cvtph_ps(_mm_and_si128(shifted, _mm_set1_epi16(int16_t{-0x4001})));
  }
  // Two vectors that adjoin.
  template <typename T>
  static void load_two(const T* from, F* to) {
    to[0] = load(from);
    to[1] = load(from + kLanes);
  }
  static void load_two(const F8* from, F* to) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    const __m256i shifted = _mm256_slli_epi16(_mm256_cvtepi8_epi16(bytes), 7);
    const __m256i halves = _mm256_and_si256(shifted, _mm256_set1_epi16(int16_t{-0x4001}));
    to[0] = _mm256_cvtph_ps(_mm256_castsi256_si128(halves));
    to[1] = _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1));
  }
  // 16 signed bytes in kParts vectors.
  static void load_codes(__m128i codes, F* to) {
    to[0] = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes));
    to[1] = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(codes, 8)));
  }
  // 8 signed bytes.
  static F load_signed(const uint8_t* from) { return load(reinterpret_cast<const int8_t*>(from)); }
  // A float16.
  static float half(const uint8_t* from) {
    uint16_t bits;
    __builtin_memcpy(&bits, from, sizeof bits);
    return _cvtsh_ss(bits);
  }
  static void store(float* to, F x) { _mm256_storeu_ps(to, x); }
  static F add(F a, F b) { return _mm256_add_ps(a, b); }
  static F sub(F a, F b) { return _mm256_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F div(F a, F b) { return _mm256_div_ps(a, b); }
  static F min(F a, F b) { return _mm256_min_ps(a, b); }
  static F max(F a, F b) { return _mm256_max_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static F round(F a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  // x * 2^n for whole n in [-126, 127].
  static F scale_by_power(F x, F n) {
    const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_mul_ps(x, _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23)));
  }
  static float sum(F x) {
    const __m128 halves = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    const __m128 pairs = _mm_add_ps(halves, _mm_movehl_ps(halves, halves));
    return _mm_cvtss_f32(_mm_add_ss(pairs, _mm_shuffle_ps(pairs, pairs, 1)));
  }
  static float highest(F x) {
    const __m128 halves = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    const __m128 pairs = _mm_max_ps(halves, _mm_movehl_ps(halves, halves));
    return _mm_cvtss_f32(_mm_max_ss(pairs, _mm_shuffle_ps(pairs, pairs, 1)));
  }
  // The steps of a Walsh-Hadamard transform within a vector: lanes 1, 2, 4 apart.
  static F turn_lanes(F x) {
    x = turn_step<0xAA>(x, _mm256_permute_ps(x, 0xB1));
    x = turn_step<0xCC>(x, _mm256_permute_ps(x, 0x4E));
    return turn_step<0xF0>(x, _mm256_permute2f128_ps(x, x, 1));
  }
  template <int kUpper>
  static F turn_step(F x, F partner) {
    return _mm256_blend_ps(_mm256_add_ps(x, partner), _mm256_sub_ps(partner, x), kUpper);
  }
  // Lanes whose index (from `first_lane`) lies in [low, high] keep x, others become `other`.
  static F keep(F x, int first_lane, int low, int high, F other) {
    const __m256i lanes =
        _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(first_lane));
    const __m256i outside = _mm256_or_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(low), lanes),
                                            _mm256_cmpgt_epi32(lanes, _mm256_set1_epi32(high)));
    return _mm256_blendv_ps(x, other, _mm256_castsi256_ps(outside));
  }

  // The 32 weights of one MXFP4 block: 16 even elements in two vectors, 16 odd ones.
  struct Fp4Table {
    F magnitudes = _mm256_loadu_ps(tensor::kFp4Values);
  };
  static void expand(const Fp4Table& table, const uint8_t* block, float scale, F* even, F* odd) {
    const auto half = [&](int at) {
      return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(block + at));
    };
    expand_halves(table, half(0), half(8), scale, even, odd);
  }
  static void expand(const Fp4Table& table, __m128i block, float scale, F* even, F* odd) {
    expand_halves(table, block, _mm_srli_si128(block, 8), scale, even, odd);
  }
  static void expand_halves(const Fp4Table& table, __m128i first, __m128i second, float scale,
                            F* even, F* odd) {
    const F scaled = _mm256_mul_ps(table.magnitudes, _mm256_set1_ps(scale));
    const __m256i sign_bit = _mm256_set1_epi32(8);
    for (int half = 0; half < 2; ++half) {
      const __m256i low = _mm256_cvtepu8_epi32(half == 0 ? first : second);
      const __m256i high = _mm256_srli_epi32(low, 4);
      // vpermps looks at the low three bits only: the magnitude; bit 3 is the sign.
      const auto signed_value = [&](__m256i nibble) {
        const __m256i sign = _mm256_slli_epi32(_mm256_and_si256(nibble, sign_bit), 28);
        return _mm256_xor_ps(_mm256_permutevar8x32_ps(scaled, nibble), _mm256_castsi256_ps(sign));
      };
      even[half] = signed_value(low);
      odd[half] = signed_value(high);
    }
  }

  // The 32 weights of a block of bf16 in 12 bits: the first 16 in two vectors, the last 16.
  static void expand_compact(const uint8_t* block, F* first, F* second) {
    const __m256i base = _mm256_set1_epi32(block[0]);
    for (int half = 0; half < 2; ++half) {
      const __m256i nibbles = _mm256_cvtepu8_epi32(load_8(block + 1 + 8 * half));
      const __m256i low = _mm256_and_si256(nibbles, _mm256_set1_epi32(15));
      first[half] = join_compact(block + 17 + 8 * half, low, base);
      second[half] = join_compact(block + 33 + 8 * half, _mm256_srli_epi32(nibbles, 4), base);
    }
  }
  // 8 bytes of sign and mantissa: the sign comes to bit 31, the mantissa to 16 to 22. Code 0 is
  // exponent 0.
  static F join_compact(const uint8_t* bytes, __m256i codes, __m256i base) {
    const __m256i moved = _mm256_slli_epi32(_mm256_cvtepi8_epi32(load_8(bytes)), 16);
    const int mask = static_cast<int>(0x807F0000u);
    const __m256i is_zero = _mm256_cmpeq_epi32(codes, _mm256_setzero_si256());
    const __m256i exponents = _mm256_andnot_si256(is_zero, _mm256_add_epi32(codes, base));
    return _mm256_castsi256_ps(_mm256_or_si256(_mm256_and_si256(moved, _mm256_set1_epi32(mask)),
                                               _mm256_slli_epi32(exponents, 23)));
  }
  static __m128i load_8(const uint8_t* from) {
    return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
  }
};

#include "kernels/cpu/bytes_x86_inl.h"
#include "kernels/cpu/cpu_kernels_inl.h"

}  // namespace

std::unique_ptr<Kernels> make_avx2_kernels(base::ThreadPool& pool,
                                           std::unique_ptr<TileKernels> tiles) {
  return std::make_unique<CpuKernels>(pool, std::move(tiles), "avx2");
}

}  // namespace pelton::kernels
