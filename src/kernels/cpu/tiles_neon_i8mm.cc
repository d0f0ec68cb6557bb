// Tile kernels with NEON and its products of four bytes (dotprod) and, from two tokens on, those of
// two rows and two tokens at once (i8mm). Compiled with those flags; nothing here may run before
// kernels.cc has asked the processor.
#include <vector>

#include <arm_neon.h>

#include "kernels/cpu/expert_groups.h"
#include "kernels/cpu/tile_kernels.h"
#include "kernels/tiles.h"
#include "tensor/tile.h"

namespace pelton::kernels {
namespace {

#include "kernels/cpu/tiles_neon_inl.h"

// The tile's 16 rows . kPairs pairs of tokens: sums[t]. An instruction adds the products of eight
// columns of two rows (r, s) with two tokens (t, u): rt, ru, st, su. A vector of weights has four
// columns of four rows, so that two of them, by turns, are four rows of eight columns:
//   r0..3 s0..3 ... and r4..7 s4..7 ... -> r0..7 s0..7
template <int kPairs, int kPlanes, typename Tile>
[[gnu::noinline]] void multiply_pairs(Tile tile, int64_t blocks, const RowView* x,
                                      L sums[2 * kPairs]) {
  L sum[2 * kPairs];
#pragma GCC unroll 4
  for (int t = 0; t < 2 * kPairs; ++t) sum[t] = Ints::zero_floats();
  for (int64_t b = 0; b < blocks; ++b) {
    Ints::Bytes weights[8];
    tile.load(b, weights);
    int32x4_t dots[kPairs][kPlanes][8];
    for (auto& of_pair : dots) {
      for (auto& of_plane : of_pair) {
        for (int32x4_t& dot : of_plane) dot = vdupq_n_s32(0);
      }
    }
#pragma GCC unroll 4
    for (int eight = 0; eight < 4; ++eight) {
      int8x16_t rows[8];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        const int32x4_t first = vreinterpretq_s32_s8(weights[2 * eight].part[i]);
        const int32x4_t second = vreinterpretq_s32_s8(weights[2 * eight + 1].part[i]);
        rows[2 * i] = vreinterpretq_s8_s32(vzip1q_s32(first, second));
        rows[2 * i + 1] = vreinterpretq_s8_s32(vzip2q_s32(first, second));
      }
#pragma GCC unroll 2
      for (int pair = 0; pair < kPairs; ++pair) {
#pragma GCC unroll 2
        for (int p = 0; p < kPlanes; ++p) {
          const int64_t at = (b * kPlanes + p) * kBlock + 8 * eight;
          const int8x16_t tokens =
              vcombine_s8(vld1_s8(x[2 * pair].values + at), vld1_s8(x[2 * pair + 1].values + at));
#pragma GCC unroll 8
          for (int i = 0; i < 8; ++i) {
            dots[pair][p][i] = vmmlaq_s32(dots[pair][p][i], rows[i], tokens);
          }
        }
      }
    }
    const L weight_scales = tile.scales(b);
#pragma GCC unroll 4
    for (int t = 0; t < 2 * kPairs; ++t) {
      Ints planes[kPlanes];
#pragma GCC unroll 2
      for (int p = 0; p < kPlanes; ++p) {
        const int32x4_t* const of_pair = dots[t / 2][p];
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
          planes[p].part[i] = t % 2 == 0 ? vuzp1q_s32(of_pair[2 * i], of_pair[2 * i + 1])
                                         : vuzp2q_s32(of_pair[2 * i], of_pair[2 * i + 1]);
        }
      }
      sum[t] = block_sum<kPlanes>(planes, weight_scales, x[t].scales[b], sum[t]);
    }
  }
#pragma GCC unroll 4
  for (int t = 0; t < 2 * kPairs; ++t) sums[t] = sum[t];
}

struct MatrixProducts {
  // Of five tokens: 0 to 3, then 4 with itself, whose second sums nobody takes.
  template <int kPlanes, typename Tile, typename Emit>
  static void multiply(const uint8_t* tiles, int64_t begin, int64_t end, int64_t blocks,
                       const RowView* x, int tokens, uint8_t* scratch, const Emit& emit) {
    if (tokens == 1) {
      return multiply_tiles<kPlanes, Tile>(tiles, begin, end, blocks, x, tokens, scratch, emit);
    }
    constexpr int kMost = 2 / kPlanes;  // pairs whose sums stay in registers
    const int64_t bytes = tile_bytes(Tile::kFormat, blocks * kBlock);
    for (int64_t i = begin; i < end; ++i) {
      const Tile tile{tiles + i * bytes};
      for (int first = 0; first < tokens;) {
        const int left = tokens - first;
        const auto run = [&]<int kPairs>() {
          RowView rows[2 * kPairs];
          for (int t = 0; t < 2 * kPairs; ++t) rows[t] = x[first + (t < left ? t : 0)];
          L sums[2 * kPairs];
          multiply_pairs<kPairs, kPlanes>(tile, blocks, rows, sums);
          for (int t = 0; t < 2 * kPairs && t < left; ++t) emit(i, first + t, sums[t]);
          first += 2 * kPairs;
        };
        if (left > 2) {
          run.template operator()<kMost>();
        } else {
          run.template operator()<1>();
        }
      }
    }
  }
};

}  // namespace

std::unique_ptr<TileKernels> make_i8mm_tiles(base::ThreadPool& pool) {
  return std::make_unique<Tiles<MatrixProducts>>(pool);
}

}  // namespace pelton::kernels
