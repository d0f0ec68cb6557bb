// Rows of weights that lie row by row, in each format, and their products with tokens. Included by
// cpu_kernels_inl.h.

constexpr int kTokenBlock = 48;  // rows of activations that stay in L2 together

// A row type reads the rows of a matrix in one format, 32 weights at a time, into two halves: the
// first 16 and the last 16 columns, or for MXFP4 the even and the odd ones. A stream of rows is
// asked for kAhead blocks before it is read.
//
// Of 8 lanes (kParts 2), lane 0 adds up the products of the columns 0, 8, 16, 24, and then those of
// the next block; for MXFP4 0, 16, 1, 17. dot_rows of 5 rows with 7 tokens, in tiles of 2 rows and
// 4 tokens: rows 0 and 1 with tokens 0 to 3, then with 4 to 6; rows 2 and 3 likewise; row 4
// likewise.

// Columns [begin, end) of a row by x: those behind its last whole block.
template <typename T>
inline float dot_rest(const T* row, const float* x, int begin, int end) {
  F sum = Vector::zero();
  for (int c = begin; c < end; c += Vector::kLanes) {
    const int count = end - c < Vector::kLanes ? end - c : Vector::kLanes;
    sum = Vector::fma(load_part(row + c, count), load_part(x + c, count), sum);
  }
  return Vector::sum(sum);
}

// float32, float16, bf16. `rest`: of rows whose columns are no multiple of 32, what is left.
template <typename T>
struct PlainRows {
  static constexpr int kAhead = 32;  // blocks
  const T* weight;
  int64_t cols;

  template <int kRows>
  struct Cursor {
    const T* row[kRows];
    void fetch(int r, int block) const {
      const T* at = row[r] + block * 32;
      prefetch(at);
      if constexpr (sizeof(T) == 4) prefetch(at + 16);
    }
    void fetch_far(int r, int block) const {
      const T* at = row[r] + block * 32;
      prefetch_far(at);
      if constexpr (sizeof(T) == 4) prefetch_far(at + 16);
    }
    void read(int r, int block, F* first, F* second) const {
      const T* at = row[r] + block * 32;
      for (int p = 0; p < kParts; ++p) {
        first[p] = Vector::load(at + p * Vector::kLanes);
        second[p] = Vector::load(at + 16 + p * Vector::kLanes);
      }
    }
  };
  template <int kRows>
  Cursor<kRows> at(int64_t first_row) const {
    Cursor<kRows> cursor;
    for (int r = 0; r < kRows; ++r) cursor.row[r] = weight + (first_row + r) * cols;
    return cursor;
  }
  float rest(int64_t row, const float* x) const {
    return dot_rest(weight + row * cols, x, static_cast<int>(cols / 32 * 32),
                    static_cast<int>(cols));
  }
};

struct Q8Rows {
  static constexpr int kAhead = 60;
  const uint8_t* data;
  int64_t groups;  // blocks in a row

  template <int kRows>
  struct Cursor {
    const uint8_t* row[kRows];
    void fetch(int r, int block) const {
      prefetch(row[r] + int64_t{block} * tensor::kQ8_0BlockBytes);
    }
    void fetch_far(int r, int block) const {
      prefetch_far(row[r] + int64_t{block} * tensor::kQ8_0BlockBytes);
    }
    void read(int r, int block, F* first, F* second) const {
      const uint8_t* at = row[r] + int64_t{block} * tensor::kQ8_0BlockBytes;
      const F scale = Vector::set1(Vector::half(at));
      for (int p = 0; p < kParts; ++p) {
        first[p] = Vector::mul(scale, Vector::load_signed(at + 2 + p * Vector::kLanes));
        second[p] = Vector::mul(scale, Vector::load_signed(at + 18 + p * Vector::kLanes));
      }
    }
  };
  template <int kRows>
  Cursor<kRows> at(int64_t first_row) const {
    Cursor<kRows> cursor;
    for (int r = 0; r < kRows; ++r) {
      cursor.row[r] = data + (first_row + r) * groups * tensor::kQ8_0BlockBytes;
    }
    return cursor;
  }
};

#include "kernels/ggml_blocks_inl.h"

struct HardwareHalf {
  static float at(const uint8_t* from) { return Vector::half(from); }
};

[[gnu::noinline]] inline void read_ggml_group(Format format, const uint8_t* row, int64_t group,
                                              Weights32& to) {
  GgmlBlocks<HardwareHalf>::read(format, row, group, to);
}

// GGUF's other blocks, group by group, for rows that lie anywhere (ggml_rows_inl.h is faster).
struct GgmlRows {
  explicit GgmlRows(const StoredMatrix& matrix)
      : format(matrix.format),
        data(static_cast<const uint8_t*>(matrix.data)),
        row_bytes(kernels::row_bytes(matrix.format, matrix.cols)),
        groups(matrix.cols / 32) {}

  Format format;
  const uint8_t* data;
  int64_t row_bytes;
  int64_t groups;  // in a row

  template <int kRows>
  struct Cursor {
    Format format;
    const uint8_t* row[kRows];
    int64_t group_bytes;  // roughly
    void fetch(int r, int block) const { prefetch(row[r] + block * group_bytes); }
    void fetch_far(int r, int block) const { prefetch_far(row[r] + block * group_bytes); }
    void read(int r, int block, F* first, F* second) const {
      Weights32 weights;
      read_ggml_group(format, row[r], block, weights);
      for (int p = 0; p < kParts; ++p) {
        first[p] = Vector::fma(Vector::set1(weights.scale[0]),
                               Vector::load(weights.codes + p * Vector::kLanes),
                               Vector::set1(weights.offset[0]));
        second[p] = Vector::fma(Vector::set1(weights.scale[1]),
                                Vector::load(weights.codes + 16 + p * Vector::kLanes),
                                Vector::set1(weights.offset[1]));
      }
    }
  };
  template <int kRows>
  Cursor<kRows> at(int64_t first_row) const {
    Cursor<kRows> cursor;
    cursor.format = format;
    cursor.group_bytes = row_bytes / groups;
    for (int r = 0; r < kRows; ++r) cursor.row[r] = data + (first_row + r) * row_bytes;
    return cursor;
  }
};

// FP8 with a scale for each block.
struct F8BlockRows {
  static constexpr int kAhead = 64;
  const F8* weight;
  BlockScales scales;
  int64_t cols;

  template <int kRows>
  struct Cursor {
    const F8* row[kRows];
    const float* scale[kRows];
    int shift;  // from a block of 32 to that of its scale
    void fetch(int r, int block) const { prefetch(row[r] + block * 32); }
    void fetch_far(int r, int block) const { prefetch_far(row[r] + block * 32); }
    void read(int r, int block, F* first, F* second) const {
      const F8* at = row[r] + block * 32;
      const F gain = Vector::set1(scale[r][block >> shift] * KvElement<F8>::kGain);
      for (int p = 0; p < kParts; ++p) {
        first[p] = Vector::mul(gain, Vector::load(at + p * Vector::kLanes));
        second[p] = Vector::mul(gain, Vector::load(at + 16 + p * Vector::kLanes));
      }
    }
  };
  template <int kRows>
  Cursor<kRows> at(int64_t first_row) const {
    Cursor<kRows> cursor;
    // A scale of a whole row: all of its blocks come out at 0.
    cursor.shift =
        scales.cols >= cols ? 31 : __builtin_ctz(static_cast<unsigned>(scales.cols / 32));
    for (int r = 0; r < kRows; ++r) {
      const int64_t row = first_row + r;
      cursor.row[r] = weight + row * cols;
      cursor.scale[r] = scales.data + row / scales.rows * scales.per_row(cols);
    }
    return cursor;
  }
  float rest(int64_t row, const float* x) const {
    const int begin = static_cast<int>(cols / 32 * 32);
    const Cursor<1> cursor = at<1>(row);
    return dot_rest(weight + row * cols, x, begin, static_cast<int>(cols)) *
           (cursor.scale[0][begin / 32 >> cursor.shift] * KvElement<F8>::kGain);
  }
};

// GGUF's MXFP4: brought into the nibble order of Hugging Face in a register, so that the sums come
// out the same to the bit.
struct Mxfp4BlockRows {
  static constexpr int kAhead = 120;
  const uint8_t* data;
  int64_t groups;
  const float* powers;  // E8M0 -> float

  template <int kRows>
  struct Cursor {
    const uint8_t* row[kRows];
    const float* powers;
    Vector::Fp4Table table;
    void fetch(int r, int block) const {
      prefetch(row[r] + int64_t{block} * tensor::kMxfp4BlockBytes);
    }
    void read(int r, int block, F* even, F* odd) const {
      const uint8_t* at = row[r] + int64_t{block} * tensor::kMxfp4BlockBytes;
      Vector::expand(table, mxfp4_pairs(at + 1), powers[at[0]], even, odd);
    }
  };
  template <int kRows>
  Cursor<kRows> at(int64_t first_row) const {
    Cursor<kRows> cursor;
    for (int r = 0; r < kRows; ++r) {
      cursor.row[r] = data + (first_row + r) * groups * tensor::kMxfp4BlockBytes;
    }
    cursor.powers = powers;
    return cursor;
  }
};

// Hugging Face's MXFP4. Activations must lie in the same order (see interleave).
struct Mxfp4PairRows {
  static constexpr int kAhead = 128;
  const uint8_t* blocks;
  const uint8_t* scales;
  int64_t groups;       // blocks in a row
  const float* powers;  // E8M0 -> float

  template <int kRows>
  struct Cursor {
    const uint8_t* block_row[kRows];
    const uint8_t* scale_row[kRows];
    const float* powers;
    Vector::Fp4Table table;
    void fetch(int r, int block) const { prefetch(block_row[r] + block * 16); }
    void read(int r, int block, F* even, F* odd) const {
      const uint8_t* at = block_row[r] + block * 16;
      Vector::expand(table, at, powers[scale_row[r][block]], even, odd);
    }
  };
  template <int kRows>
  Cursor<kRows> at(int64_t first_row) const {
    Cursor<kRows> cursor;
    for (int r = 0; r < kRows; ++r) {
      cursor.block_row[r] = blocks + (first_row + r) * groups * 16;
      cursor.scale_row[r] = scales + (first_row + r) * groups;
    }
    cursor.powers = powers;
    return cursor;
  }
};

// sums[r][t] = row (first_row + r) . x[t], over block_count blocks of 32. Always inlined: a call
// for each tile costs a small model a tenth of its speed, and as kinds of rows came to this file
// gcc began to make calls.
template <int kRows, int kTokens, typename Rows>
[[gnu::always_inline]] inline void dot_tile(const Rows& rows, int64_t first_row, int block_count,
                                            const float* const* x, float sums[kRows][kTokens]) {
  const auto cursor = rows.template at<kRows>(first_row);
  F acc[kRows][kTokens];
  for (int r = 0; r < kRows; ++r) {
    for (int t = 0; t < kTokens; ++t) acc[r][t] = Vector::zero();
  }
  for (int block = 0; block < block_count; ++block) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      F even[kParts];
      F odd[kParts];
      cursor.fetch(r, block + Rows::kAhead);
      cursor.read(r, block, even, odd);
#pragma GCC unroll 8
      for (int t = 0; t < kTokens; ++t) {
        const float* at = x[t] + block * 32;
#pragma GCC unroll 2
        for (int p = 0; p < kParts; ++p) {
          acc[r][t] = Vector::fma(even[p], Vector::load(at + p * Vector::kLanes), acc[r][t]);
        }
#pragma GCC unroll 2
        for (int p = 0; p < kParts; ++p) {
          acc[r][t] = Vector::fma(odd[p], Vector::load(at + 16 + p * Vector::kLanes), acc[r][t]);
        }
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int t = 0; t < kTokens; ++t) sums[r][t] = Vector::sum(acc[r][t]);
  }
}

// A tile of kRows rows and `tokens` <= kTileTokens tokens; emit(row, token, sum).
template <int kRows, typename Rows, typename Emit>
inline void dot_tile_of(int tokens, const Rows& rows, int64_t first_row, int block_count,
                        const float* const* x, int first_token, const Emit& emit) {
  const auto run = [&]<int kTokens>() {
    float sums[kRows][kTokens];
    dot_tile<kRows, kTokens>(rows, first_row, block_count, x + first_token, sums);
    for (int r = 0; r < kRows; ++r) {
      for (int t = 0; t < kTokens; ++t) emit(first_row + r, first_token + t, sums[r][t]);
    }
  };
  switch (tokens) {
    case 1:
      return run.template operator()<1>();
    case 2:
      return run.template operator()<2>();
    case 3:
      return run.template operator()<3>();
    case 4:
      return run.template operator()<4>();
    case 5:
      if constexpr (Vector::kTileTokens >= 5) return run.template operator()<5>();
      return;
    default:
      if constexpr (Vector::kTileTokens >= 6) return run.template operator()<6>();
  }
}

// Rows [begin, end) against x[0..tokens).
template <typename Rows, typename Emit>
inline void dot_rows(const Rows& rows, int64_t begin, int64_t end, int block_count,
                     const float* const* x, int tokens, const Emit& emit) {
  if (tokens == 1) {
    int64_t row = begin;
    for (; row + Vector::kVectorRows <= end; row += Vector::kVectorRows) {
      dot_tile_of<Vector::kVectorRows>(1, rows, row, block_count, x, 0, emit);
    }
    for (; row < end; ++row) dot_tile_of<1>(1, rows, row, block_count, x, 0, emit);
    return;
  }
  for (int block = 0; block < tokens; block += kTokenBlock) {
    const int block_end = block + kTokenBlock < tokens ? block + kTokenBlock : tokens;
    const auto sweep = [&]<int kRows>(int64_t row) {
      for (int t = block; t < block_end; t += Vector::kTileTokens) {
        const int count = block_end - t < Vector::kTileTokens ? block_end - t : Vector::kTileTokens;
        dot_tile_of<kRows>(count, rows, row, block_count, x, t, emit);
      }
    };
    int64_t row = begin;
    for (; row + Vector::kTileRows <= end; row += Vector::kTileRows) {
      sweep.template operator()<Vector::kTileRows>(row);
    }
    for (; row < end; ++row) sweep.template operator()<1>(row);
  }
}

// As dot_rows, for rows that end within a block: `rest` is added. Row by row, since few models have
// such.
template <typename Rows, typename Emit>
inline void dot_uneven_rows(const Rows& rows, int64_t begin, int64_t end, int block_count,
                            const float* const* x, int tokens, const Emit& emit) {
  const auto emit_whole = [&](int64_t row, int t, float sum) {
    emit(row, t, sum + rows.rest(row, x[t]));
  };
  for (int64_t row = begin; row < end; ++row) {
    for (int t = 0; t < tokens; t += Vector::kTileTokens) {
      const int count = tokens - t < Vector::kTileTokens ? tokens - t : Vector::kTileTokens;
      dot_tile_of<1>(count, rows, row, block_count, x, t, emit_whole);
    }
  }
}

// As dot_rows, for a bf16 matrix that lies transposed, (cols, row_count): lanes are rows, each sums
// its products in the order of the columns. 32 rows at a time; begin and end are multiples of 32.
template <typename Emit>
inline void dot_columns(const Bf16* weight, int64_t row_count, int64_t begin, int64_t end, int cols,
                        const float* const* x, int tokens, const Emit& emit) {
  for (int64_t row = begin; row < end; row += 32) {
    for (int t = 0; t < tokens; ++t) {
      F acc[2 * kParts];
      for (F& part : acc) part = Vector::zero();
      for (int c = 0; c < cols; ++c) {
        const Bf16* at = weight + c * row_count + row;
        const F value = Vector::set1(x[t][c]);
#pragma GCC unroll 4
        for (int p = 0; p < 2 * kParts; ++p) {
          acc[p] = Vector::fma(value, Vector::load(at + p * Vector::kLanes), acc[p]);
        }
      }
      float sums[32];
      for (int p = 0; p < 2 * kParts; ++p) Vector::store(sums + p * Vector::kLanes, acc[p]);
      for (int i = 0; i < 32; ++i) emit(row + i, t, sums[i]);
    }
  }
}
