// AVX-512 (F, BW, DQ, VL): 16 lanes. Compiled with those flags; nothing here may run before
// kernels.cc has asked the processor.
#include <immintrin.h>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/weight_row.h"
#include "tensor/bits.h"
#include "tensor/dtype.h"

namespace pelton::kernels {
namespace {

struct Vector {
  static constexpr std::string_view kName = "avx512";
  static constexpr int kLanes = 16;
  static constexpr int kTileRows = 4;  // 4 x 6 sums, leaving 8 registers for weights and tables
  static constexpr int kTileTokens = 6;
  static constexpr int kVectorRows = 8;  // rows at a time for a single token

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
  // 16 signed bytes.
  static F load_signed(const uint8_t* from) {
    return _mm512_cvtepi32_ps(
        _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
  }
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
  // Lanes whose index (from `first_lane`) lies in [low, high] keep x, others become `other`.
  static F keep(F x, int first_lane, int low, int high, F other) {
    const uint32_t upto_high = (uint32_t{2} << (high - first_lane)) - 1;
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
};

#include "kernels/cpu/cpu_kernels_inl.h"

}  // namespace

std::unique_ptr<Kernels> make_avx512_kernels(base::ThreadPool& pool) {
  return std::make_unique<CpuKernels>(pool);
}

}  // namespace pelton::kernels
