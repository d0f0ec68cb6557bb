// How attention's warps read one kv head's part of a block (operations.h), of each KvType: keys and
// values as right operands of mma.sync, and what is to be multiplied with scores and weights.
//
// fp8: e4m3's numbers are bf16 numbers, so products with codes are as exact as with bf16 keys; a
// key's scale is multiplied with its score and a value's with its weight, once for each token
// instead of once for each element.
#pragma once

#include <type_traits>

#include "cuda/device/gpu.h"
#include "cuda/operations.h"

namespace pelton::cuda {

// Key 4t + 2h + i of a block stands in column 2t + i of its product h: then four neighbours'
// weights lie in one lane, as the product with values wants them.
PELTON_DEVICE int key_of_column(int product, int column) {
  return 4 * (column / 2) + column % 2 + 2 * product;
}

// What the scores of a lane's four keys are multiplied with: key 4t + 2h + i.
struct KeyFactors {
  float of[2][2];
};

// Keeps of two bf16 numbers those whose index is below `count`.
PELTON_DEVICE uint32_t keep_first(uint32_t pair, int count) {
  return count <= 0 ? 0 : count == 1 ? pair & 0xFFFFu : pair;
}

// Two e4m3 codes, in the upper bytes of the halves of `codes`, as bf16 numbers 2^120 times too
// small: sign, then exponent and mantissa below the exponent's lowest four bits (a code whose
// exponent is 0 becomes a subnormal, which is what it should be).
PELTON_DEVICE uint32_t small_bf16x2_of_e4m3(uint32_t codes) {
  return (codes & 0x80008000u) | ((codes >> 4) & 0x07F007F0u);
}

// Four e4m3 codes as bf16: those in bytes 0 and 2, then those in bytes 1 and 3. Exact. The code of
// NaN, which nobody writes, becomes 480: whatever stands in places that nobody wrote is finite.
PELTON_DEVICE void bf16_of_e4m3(uint32_t (&out)[2], uint32_t codes) {
  constexpr uint32_t kTwoTo120 = 0x7B807B80u;
  out[0] = multiply_bf16x2(small_bf16x2_of_e4m3(codes << 8), kTwoTo120);
  out[1] = multiply_bf16x2(small_bf16x2_of_e4m3(codes), kTwoTo120);
}

// float16 or bf16.
template <int kHead, KvType kType>
struct KvBlock {
  static constexpr bool kIsF16 = kType == KvType::kF16;
  const uint16_t* keys;

  PELTON_DEVICE KvBlock(const Attention& args, int64_t block, int kv_head)
      : keys(static_cast<const uint16_t*>(args.cache.data) +
             (block * args.cache.kv_heads + kv_head) * (int64_t{2} * kHead * kBlockTokens)) {}

  // Row `high` of the left operands. Of every 32 elements lane t has 8t to 8t + 7.
  PELTON_DEVICE static void load_query(uint32_t (&query)[kHead / 16][4], const uint16_t* row,
                                       int high, int t) {
#pragma unroll
    for (int part = 0; part < kHead / 32; ++part) {
      const Words4 words = load(reinterpret_cast<const Words4*>(row + 32 * part + 8 * t));
      query[2 * part][high] = words.word[0];
      query[2 * part][2 + high] = words.word[1];
      query[2 * part + 1][high] = words.word[2];
      query[2 * part + 1][2 + high] = words.word[3];
    }
  }

  // scores of the block's keys, still to be multiplied with their factors: (two products, 4)
  PELTON_DEVICE void score(float (&scores)[2][4], const uint32_t (&query)[kHead / 16][4],
                           int lane) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int i = 0; i < 4; ++i) scores[h][i] = 0;
      const uint16_t* key = keys + key_of_column(h, lane / 4) * kHead;
#pragma unroll
      for (int part = 0; part < kHead / 32; ++part) {
        const Words4 words = load(reinterpret_cast<const Words4*>(key + 32 * part + lane % 4 * 8));
        const uint32_t first[2] = {words.word[0], words.word[1]};
        const uint32_t second[2] = {words.word[2], words.word[3]};
        multiply(scores[h], query[2 * part], first);
        multiply(scores[h], query[2 * part + 1], second);
      }
    }
  }

  PELTON_DEVICE KeyFactors key_factors(float scale, int) const {
    return {{{scale, scale}, {scale, scale}}};
  }

  // A value's weight as it is summed up: rounded to what the product takes.
  PELTON_DEVICE static float weight(float share) {
    if constexpr (kIsF16) return f16_to_float(to_f16(share));
    return low_bf16(uint32_t{to_bf16(share)});
  }

  // values += weights * the block's values. Places from `valid` on, counted from the lane's first,
  // hold anything, NaN perhaps: 0 times that would not be 0.
  PELTON_DEVICE void add_values(float (&values)[kHead / 8][4], const float (&weights)[2][4],
                                int valid, int lane) const {
    const int t = lane % 4;
    const uint32_t left[4] = {
        pack(weights[0][0], weights[0][1]), pack(weights[0][2], weights[0][3]),
        pack(weights[1][0], weights[1][1]), pack(weights[1][2], weights[1][3])};
#pragma unroll
    for (int n = 0; n < kHead / 8; ++n) {
      const uint16_t* from =
          keys + kHead * kBlockTokens + (8 * n + lane / 4) * kBlockTokens + 4 * t;
      const Words2 words = load(reinterpret_cast<const Words2*>(from));
      const uint32_t pair[2] = {keep_first(words.word[0], valid),
                                keep_first(words.word[1], valid - 2)};
      multiply(values[n], left, pair);
    }
  }

 private:
  PELTON_DEVICE static void multiply(float (&sums)[4], const uint32_t (&left)[4],
                                     const uint32_t (&right)[2]) {
    if constexpr (kIsF16) {
      mma_f16(sums, left, right);
    } else {
      mma(sums, left, right);
    }
  }
  PELTON_DEVICE static uint32_t pack(float low, float high) {
    if constexpr (kIsF16) return pack_f16(low, high);
    return pack_bf16(low, high);
  }
};

template <int kHead>
struct KvBlock<kHead, KvType::kFp8> {
  static_assert(kHead == 32 || kHead == 64);

  const unsigned char* keys;

  PELTON_DEVICE KvBlock(const Attention& args, int64_t block, int kv_head)
      : keys(static_cast<const unsigned char*>(args.cache.data) +
             (block * args.cache.kv_heads + kv_head) * kv_head_bytes(KvType::kFp8, kHead)) {}

  // Lane t has the quarter of the row that begins at t kHead / 4; of every four elements 0 and 2
  // stand together, then 1 and 3, as bf16_of_e4m3 gives them.
  PELTON_DEVICE static void load_query(uint32_t (&query)[kHead / 16][4], const uint16_t* row,
                                       int high, int t) {
#pragma unroll
    for (int k = 0; k < kHead / 16; ++k) {
      const Words2 words = load(reinterpret_cast<const Words2*>(row + kHead / 4 * t + 4 * k));
      query[k][high] = (words.word[0] & 0xFFFFu) | words.word[1] << 16;
      query[k][2 + high] = words.word[0] >> 16 | (words.word[1] & 0xFFFF0000u);
    }
  }

  PELTON_DEVICE void score(float (&scores)[2][4], const uint32_t (&query)[kHead / 16][4],
                           int lane) const {
    using Codes = std::conditional_t<kHead == 64, Words4, Words2>;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int i = 0; i < 4; ++i) scores[h][i] = 0;
      const unsigned char* key = keys + key_of_column(h, lane / 4) * kHead + lane % 4 * (kHead / 4);
      const Codes codes = load(reinterpret_cast<const Codes*>(key));
#pragma unroll
      for (int k = 0; k < kHead / 16; ++k) {
        uint32_t right[2];
        bf16_of_e4m3(right, codes.word[k]);
        mma(scores[h], query[k], right);
      }
    }
  }

  PELTON_DEVICE KeyFactors key_factors(float scale, int t) const {
    const Words2 scales = load_scales(0, t);
    return {{{low_bf16(scales.word[0]) * scale, high_bf16(scales.word[0]) * scale},
             {low_bf16(scales.word[1]) * scale, high_bf16(scales.word[1]) * scale}}};
  }

  // Rounded only when it has been multiplied with the value's scale.
  PELTON_DEVICE static float weight(float share) {
    return share;
  }

  PELTON_DEVICE void add_values(float (&values)[kHead / 8][4], const float (&weights)[2][4], int,
                                int lane) const {
    const Words2 scales = load_scales(1, lane % 4);
    const float scale[2][2] = {{low_bf16(scales.word[0]), high_bf16(scales.word[0])},
                               {low_bf16(scales.word[1]), high_bf16(scales.word[1])}};
    uint32_t left[4];
#pragma unroll
    for (int high = 0; high < 2; ++high) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        left[2 * i + high] = pack_bf16(scaled(weights[0][2 * high + i], scale[0][i]),
                                       scaled(weights[1][2 * high + i], scale[1][i]));
      }
    }
#pragma unroll
    for (int part = 0; part < kHead / 32; ++part) {
      const unsigned char* from = keys + kHead * kBlockTokens + part * 512 + lane * 16;
      const Words4 codes = load(reinterpret_cast<const Words4*>(from));
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        uint32_t right[2];
        bf16_of_e4m3(right, codes.word[n]);
        mma(values[4 * part + n], left, right);
      }
    }
  }

 private:
  // Of keys (0) or values (1): the lane's four tokens'.
  PELTON_DEVICE Words2 load_scales(int which, int t) const {
    const unsigned char* from = keys + 2 * kHead * kBlockTokens + which * 2 * kBlockTokens + 8 * t;
    return load(reinterpret_cast<const Words2*>(from));
  }

  // A token that a row does not see has weight 0, whatever its scale: it may be NaN.
  PELTON_DEVICE static float scaled(float weight, float scale) {
    return weight == 0 ? 0 : weight * scale;
  }
};

}  // namespace pelton::cuda
