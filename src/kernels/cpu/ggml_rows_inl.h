// Rows in GGUF's blocks (kernels/ggml_blocks_inl.h has the layouts) by whole vectors: the scales of
// a block once for all of its groups of 32, the codes of a group at once. Weights have the bits
// that ggml_blocks_inl.h gives them, one at a time: scale * code + offset, rounded once. Included
// by cpu_kernels_inl.h.
//
// For one token, sums of kGgmlRows rows side by side, so that their chains of additions hide each
// other. For several, a strip of the rows becomes floats that stay in L1 and all tokens take it:
// for 4 rows and 13 tokens, columns 0 to 511 of the rows are decoded, tiles of 6, 6 and 1 tokens
// add their products, then columns 512 to 1023 follow. The order of additions is dot_tile's.

constexpr int kGgmlRows = 4;
constexpr int kStripGroups = 16;  // 4 rows of 512 floats: 8 KiB

// What a block says of its groups: weight = scale * code + offset. By half group.
struct BlockFactors {
  float scale[16];
  float offset[16];
};

inline uint32_t load_u32(const uint8_t* from) {
  uint32_t bits;
  __builtin_memcpy(&bits, from, sizeof bits);
  return bits;
}

// A kind of block: its groups of 32 and its bytes; what factors there are; `factors` reads them for
// all groups, `codes` the 32 of one.

// Blocks of one group: scale, perhaps an offset, perhaps fifth bits, nibbles less kZero.
template <bool kOffset_, bool kFifth, int kZero>
struct OneGroup {
  static constexpr int kGroups = 1;
  static constexpr bool kOffset = kOffset_;
  static constexpr int kBitsAt = kOffset ? 4 : 2;
  static constexpr int kCodesAt = kBitsAt + (kFifth ? 4 : 0);
  static constexpr int kBytes = kCodesAt + 16;

  static void factors(const uint8_t* block, BlockFactors& to) {
    to.scale[0] = to.scale[1] = Vector::half(block);
    if (kOffset) to.offset[0] = to.offset[1] = Vector::half(block + 2);
  }
  static Bytes32 codes(const uint8_t* block, int) {
    Bytes32 codes = nibbles(block + kCodesAt);
    if (kFifth) codes = either(codes, fifth_bits(load_u32(block + kBitsAt)));
    return less(codes, kZero);
  }
};
using Q4_0Block = OneGroup<false, false, 8>;
using Q4_1Block = OneGroup<true, false, 0>;
using Q5_0Block = OneGroup<false, true, 16>;
using Q5_1Block = OneGroup<true, true, 0>;

struct Iq4NlBlock {
  static constexpr int kGroups = 1;
  static constexpr bool kOffset = false;
  static constexpr int kBytes = 18;

  static void factors(const uint8_t* block, BlockFactors& to) {
    to.scale[0] = to.scale[1] = Vector::half(block);
  }
  static Bytes32 codes(const uint8_t* block, int) { return iq4_values(nibbles(block + 2)); }
};

struct Iq4XsBlock {
  static constexpr int kGroups = 8;
  static constexpr bool kOffset = false;
  static constexpr int kBytes = 136;

  // Run r: bits of `low` from 4 r on, and of `high` from 2 r on above them, less 32.
  static void factors(const uint8_t* block, BlockFactors& to) {
    const uint32_t high = load_u32(block) >> 16;
    const uint64_t six = bytes_of_nibbles(load_u32(block + 4)) | bytes_of_pairs(high);
    const Floats8 scales = difference(floats_of_u8(six), all_8(32.0f));
    store_twice(to.scale, product(all_8(Vector::half(block)), scales));
  }
  static Bytes32 codes(const uint8_t* block, int run) {
    return iq4_values(nibbles(block + 8 + run * 16));
  }
};

struct Q2KBlock {
  static constexpr int kGroups = 8;
  static constexpr bool kOffset = true;
  static constexpr int kBytes = 84;

  static void factors(const uint8_t* block, BlockFactors& to) {
    const Floats8 d = all_8(Vector::half(block + 80));
    const Floats8 minus = all_8(-Vector::half(block + 82));
    for (int i = 0; i < 16; i += 8) {
      uint64_t both;
      __builtin_memcpy(&both, block + i, sizeof both);
      const Floats8 scales = floats_of_u8(both & 0x0f0f0f0f0f0f0f0f);
      const Floats8 minima = floats_of_u8(both >> 4 & 0x0f0f0f0f0f0f0f0f);
      store_8(to.scale + i, product(d, scales));
      store_8(to.offset + i, product(minus, minima));
    }
  }
  static Bytes32 codes(const uint8_t* block, int run) {
    return bits_at(load_32(block + 16 + run / 4 * 32), run % 4 * 2, 2);
  }
};

struct Q3KBlock {
  static constexpr int kGroups = 8;
  static constexpr bool kOffset = false;
  static constexpr int kBytes = 110;

  // Half group i: nibble i of the first 8 bytes (low ones first), and of the last four, seen as
  // four rows of four pairs of bits, those of row i / 4; less 32.
  static void factors(const uint8_t* block, BlockFactors& to) {
    const Floats8 d = all_8(Vector::half(block + 108));
    uint64_t low;
    __builtin_memcpy(&low, block + 96, sizeof low);
    const uint64_t high = load_u32(block + 104);
    constexpr uint64_t kNibbles = 0x0f0f0f0f0f0f0f0f;
    constexpr uint64_t kPairs = 0x03030303;
    const uint64_t first = (high & kPairs) | (high >> 2 & kPairs) << 32;
    const uint64_t last = (high >> 4 & kPairs) | (high >> 6 & kPairs) << 32;
    const uint64_t six[2] = {(low & kNibbles) | first << 4, (low >> 4 & kNibbles) | last << 4};
    for (int i = 0; i < 2; ++i) {
      const Floats8 scales = difference(floats_of_u8(six[i]), all_8(32.0f));
      store_8(to.scale + 8 * i, product(d, scales));
    }
  }
  // A third bit that is not set: minus 4.
  static Bytes32 codes(const uint8_t* block, int run) {
    const Bytes32 low = bits_at(load_32(block + 32 + run / 4 * 32), run % 4 * 2, 2);
    const Bytes32 third = up(bits_at(load_32(block), run, 1), 2);
    return less(either(low, third), 4);
  }
};

template <bool kFifth>
struct Q45KBlock {
  static constexpr int kGroups = 8;
  static constexpr bool kOffset = true;
  static constexpr int kCodesAt = kFifth ? 48 : 16;
  static constexpr int kBytes = kCodesAt + 128;

  // Of 12 bytes the first four hold the scales of runs 0 to 3 in six bits, the next four their
  // minima; the last four of runs 4 to 7 the low nibbles, of scales and then of minima, whose upper
  // bits are the upper bits of the first eight.
  static void factors(const uint8_t* block, BlockFactors& to) {
    const uint64_t a = load_u32(block + 4);
    const uint64_t b = load_u32(block + 8);
    const uint64_t c = load_u32(block + 12);
    const auto join = [](uint64_t from, uint64_t low_nibbles) {
      const uint64_t later = (low_nibbles & 0x0f0f0f0f) | (from >> 2 & 0x30303030);
      return (from & 0x3f3f3f3f) | later << 32;
    };
    const Floats8 d = all_8(Vector::half(block));
    const Floats8 minus = all_8(-Vector::half(block + 2));
    store_twice(to.scale, product(d, floats_of_u8(join(a, c))));
    store_twice(to.offset, product(minus, floats_of_u8(join(b, c >> 4))));
  }
  static Bytes32 codes(const uint8_t* block, int run) {
    const Bytes32 low = bits_at(load_32(block + kCodesAt + run / 2 * 32), run % 2 * 4, 4);
    if (!kFifth) return low;
    return either(low, up(bits_at(load_32(block + 16), run, 1), 4));
  }
};

struct Q6KBlock {
  static constexpr int kGroups = 8;
  static constexpr bool kOffset = false;
  static constexpr int kBytes = 210;

  static void factors(const uint8_t* block, BlockFactors& to) {
    const Floats8 d = all_8(Vector::half(block + 208));
    const Bytes16 scales = load_16(block + 192);
    store_8(to.scale, product(d, first_floats(scales)));
    store_8(to.scale + 8, product(d, last_floats(scales)));
  }
  static Bytes32 codes(const uint8_t* block, int run) {
    const int half = run / 4;
    const int of_half = run % 4;
    const Bytes32 low = bits_at(load_32(block + half * 64 + of_half % 2 * 32), of_half / 2 * 4, 4);
    const Bytes32 high = bits_at(load_32(block + 128 + half * 32), of_half * 2, 2);
    return less(either(low, up(high, 4)), 32);
  }
};

// Group `group` of a block as floats, its first 16 and its last 16.
template <typename Block>
inline void read_block_group(const uint8_t* block, const BlockFactors& factors, int group, F* first,
                             F* second) {
  const Bytes32 codes = Block::codes(block, group);
  Vector::load_codes(first_16(codes), first);
  Vector::load_codes(last_16(codes), second);
  const F scale[2] = {Vector::set1(factors.scale[2 * group]),
                      Vector::set1(factors.scale[2 * group + 1])};
#pragma GCC unroll 2
  for (int p = 0; p < kParts; ++p) {
    if constexpr (Block::kOffset) {
      first[p] = Vector::fma(scale[0], first[p], Vector::set1(factors.offset[2 * group]));
      second[p] = Vector::fma(scale[1], second[p], Vector::set1(factors.offset[2 * group + 1]));
    } else {
      first[p] = Vector::mul(scale[0], first[p]);
      second[p] = Vector::mul(scale[1], second[p]);
    }
  }
}

// sums[r] = row r of kRows, which lie row_bytes apart from `rows` on, . x.
template <typename Block, int kRows>
[[gnu::noinline]] inline void ggml_row_sums(const uint8_t* rows, int64_t row_bytes, int groups,
                                            const float* x, float* sums) {
  constexpr int kAhead = 1024;  // bytes of each row
  F acc[kRows];
  for (F& sum : acc) sum = Vector::zero();
  for (int at = 0; at < groups; at += Block::kGroups) {
    BlockFactors factors[kRows];
    const uint8_t* const block = rows + at / Block::kGroups * int64_t{Block::kBytes};
    for (int r = 0; r < kRows; ++r) {
      const uint8_t* const of_row = block + r * row_bytes;
      for (int line = 0; line < Block::kBytes; line += 64) prefetch(of_row + kAhead + line);
      Block::factors(of_row, factors[r]);
      // From memory a factor is broadcast by the load; gcc would permute registers instead.
      asm("" : "+m"(factors[r]));
    }
#pragma GCC unroll 8
    for (int group = 0; group < Block::kGroups; ++group) {
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        F first[kParts];
        F second[kParts];
        read_block_group<Block>(block + r * row_bytes, factors[r], group, first, second);
        const float* const input = x + (at + group) * 32;
#pragma GCC unroll 2
        for (int p = 0; p < kParts; ++p) {
          acc[r] = Vector::fma(first[p], Vector::load(input + p * Vector::kLanes), acc[r]);
        }
#pragma GCC unroll 2
        for (int p = 0; p < kParts; ++p) {
          acc[r] = Vector::fma(second[p], Vector::load(input + 16 + p * Vector::kLanes), acc[r]);
        }
      }
    }
  }
  for (int r = 0; r < kRows; ++r) sums[r] = Vector::sum(acc[r]);
}

// Groups [begin, end) of a row, whole blocks, as floats.
template <typename Block>
[[gnu::noinline]] inline void decode_ggml_groups(const uint8_t* row, int begin, int end,
                                                 float* to) {
  for (int at = begin; at < end; at += Block::kGroups) {
    const uint8_t* const block = row + at / Block::kGroups * int64_t{Block::kBytes};
    BlockFactors factors;
    Block::factors(block, factors);
    asm("" : "+m"(factors));
#pragma GCC unroll 8
    for (int group = 0; group < Block::kGroups; ++group, to += 32) {
      F first[kParts];
      F second[kParts];
      read_block_group<Block>(block, factors, group, first, second);
#pragma GCC unroll 2
      for (int p = 0; p < kParts; ++p) {
        Vector::store(to + p * Vector::kLanes, first[p]);
        Vector::store(to + 16 + p * Vector::kLanes, second[p]);
      }
    }
  }
}

struct GgmlReader {
  void (*sums)(const uint8_t* rows, int64_t row_bytes, int groups, const float* x, float* sums);
  void (*sum)(const uint8_t* row, int64_t row_bytes, int groups, const float* x, float* sums);
  void (*decode)(const uint8_t* row, int begin, int end, float* to);
};

template <typename Block>
inline GgmlReader ggml_reader_of() {
  return {ggml_row_sums<Block, kGgmlRows>, ggml_row_sums<Block, 1>, decode_ggml_groups<Block>};
}

inline GgmlReader ggml_reader(Format format) {
  switch (format) {
    case Format::kQ4_0:
      return ggml_reader_of<Q4_0Block>();
    case Format::kQ4_1:
      return ggml_reader_of<Q4_1Block>();
    case Format::kQ5_0:
      return ggml_reader_of<Q5_0Block>();
    case Format::kQ5_1:
      return ggml_reader_of<Q5_1Block>();
    case Format::kIq4Nl:
      return ggml_reader_of<Iq4NlBlock>();
    case Format::kQ2_K:
      return ggml_reader_of<Q2KBlock>();
    case Format::kQ3_K:
      return ggml_reader_of<Q3KBlock>();
    case Format::kQ4_K:
      return ggml_reader_of<Q45KBlock<false>>();
    case Format::kQ5_K:
      return ggml_reader_of<Q45KBlock<true>>();
    case Format::kQ6_K:
      return ggml_reader_of<Q6KBlock>();
    default:
      return ggml_reader_of<Iq4XsBlock>();
  }
}

// Sums of kRows rows and the tokens of a block: that of row r and token t at r * kTokenBlock + t.
//
// acc[r][t] += strip row r, `groups` groups that begin at column `first`, . x[t].
template <int kRows, int kTokens>
inline void add_strip_tile(const float (*strip)[kStripGroups * 32], int groups,
                           const float* const* x, int first, F* acc) {
  F sums[kRows][kTokens];
  for (int r = 0; r < kRows; ++r) {
    for (int t = 0; t < kTokens; ++t) sums[r][t] = acc[r * kTokenBlock + t];
  }
  for (int column = 0; column < groups * 32; column += Vector::kLanes) {
    F row[kRows];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) row[r] = Vector::load(strip[r] + column);
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      const F input = Vector::load(x[t] + first + column);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) sums[r][t] = Vector::fma(row[r], input, sums[r][t]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int t = 0; t < kTokens; ++t) acc[r * kTokenBlock + t] = sums[r][t];
  }
}

template <int kRows>
[[gnu::noinline]] inline void add_strip(const float (*strip)[kStripGroups * 32], int groups,
                                        const float* const* x, int first, int tokens, F* acc) {
  int t = 0;
  const auto sweep = [&]<int kTokens>() {
    for (; t + kTokens <= tokens; t += kTokens) {
      add_strip_tile<kRows, kTokens>(strip, groups, x + t, first, acc + t);
    }
  };
  sweep.template operator()<Vector::kTileTokens>();
  sweep.template operator()<Vector::kTileTokens / 2>();
  sweep.template operator()<1>();
}

// kRows rows from `row` on against x[0..tokens), tokens <= kTokenBlock.
template <int kRows, typename Emit>
inline void dot_ggml_strips(const GgmlReader& reader, const uint8_t* rows, int64_t row_bytes,
                            int64_t row, int groups, const float* const* x, int first_token,
                            int tokens, const Emit& emit) {
  alignas(64) float strip[kRows][kStripGroups * 32];
  F acc[kRows * kTokenBlock];
  for (F& sum : acc) sum = Vector::zero();
  for (int group = 0; group < groups; group += kStripGroups) {
    const int end = group + kStripGroups < groups ? group + kStripGroups : groups;
    for (int r = 0; r < kRows; ++r) {
      reader.decode(rows + (row + r) * row_bytes, group, end, strip[r]);
    }
    add_strip<kRows>(strip, end - group, x + first_token, group * 32, tokens, acc);
  }
  for (int r = 0; r < kRows; ++r) {
    for (int t = 0; t < tokens; ++t)
      emit(row + r, first_token + t, Vector::sum(acc[r * kTokenBlock + t]));
  }
}

// As dot_rows, for a matrix in one of GGUF's blocks.
template <typename Emit>
inline void dot_ggml_rows(const StoredMatrix& matrix, int64_t begin, int64_t end,
                          const float* const* x, int tokens, const Emit& emit) {
  const GgmlReader reader = ggml_reader(matrix.format);
  const auto* const rows = static_cast<const uint8_t*>(matrix.data);
  const int64_t bytes = row_bytes(matrix.format, matrix.cols);
  const int groups = static_cast<int>(matrix.cols / 32);
  if (tokens == 1) {
    float sums[kGgmlRows];
    int64_t row = begin;
    for (; row + kGgmlRows <= end; row += kGgmlRows) {
      reader.sums(rows + row * bytes, bytes, groups, x[0], sums);
      for (int r = 0; r < kGgmlRows; ++r) emit(row + r, 0, sums[r]);
    }
    for (; row < end; ++row) {
      reader.sum(rows + row * bytes, bytes, groups, x[0], sums);
      emit(row, 0, sums[0]);
    }
    return;
  }
  for (int block = 0; block < tokens; block += kTokenBlock) {
    const int count = block + kTokenBlock < tokens ? kTokenBlock : tokens - block;
    int64_t row = begin;
    for (; row + Vector::kTileRows <= end; row += Vector::kTileRows) {
      dot_ggml_strips<Vector::kTileRows>(reader, rows, bytes, row, groups, x, block, count, emit);
    }
    for (; row < end; ++row) {
      dot_ggml_strips<1>(reader, rows, bytes, row, groups, x, block, count, emit);
    }
  }
}
