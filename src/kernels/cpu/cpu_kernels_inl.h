// The body of the fast kernels, written once over `Vector` (lanes, loads, fused multiply-add).
// Included inside the unnamed namespace of avx512.cc and avx2.cc, each compiled with its own flags,
// so that no function built for one instruction set can be picked by the linker for the other.
//
// The order of every sum is a function of the row alone: lane i adds the products i, i+kLanes, ...
// in order, then the lanes are folded by one fixed tree. Tiles, threads and batches only decide who
// does it, so results are batch-invariant.

constexpr int kParts = 16 / Vector::kLanes;  // vectors in half an MXFP4 block, or in 16 keys
constexpr int kTokenBlock = 48;              // rows of activations that stay in L2 together
constexpr int kRowChunk = 32;                // weight rows handed out at a time
constexpr int kMarkWords = 2;                // the same, where some of the rows are marked
constexpr int kActivationChunk = 32;         // activations of an expert at a time: one MXFP4 block

using F = Vector::F;

inline F vector_exp(F x) {
  // 2^n e^r with |r| <= ln(2)/2; e^r by its Taylor series to r^6 (error below 2e-7 relative).
  x = Vector::max(Vector::min(x, Vector::set1(88.0f)), Vector::set1(-87.0f));
  const F n = Vector::round(Vector::mul(x, Vector::set1(1.44269504f)));
  F r = Vector::fma(n, Vector::set1(-0.693359375f), x);
  r = Vector::fma(n, Vector::set1(2.12194440e-4f), r);
  F e = Vector::set1(1.0f / 720);
  e = Vector::fma(e, r, Vector::set1(1.0f / 120));
  e = Vector::fma(e, r, Vector::set1(1.0f / 24));
  e = Vector::fma(e, r, Vector::set1(1.0f / 6));
  e = Vector::fma(e, r, Vector::set1(0.5f));
  e = Vector::fma(e, r, Vector::set1(1.0f));
  e = Vector::fma(e, r, Vector::set1(1.0f));
  return Vector::scale_by_power(e, n);
}

inline void prefetch(const void* address) {
  _mm_prefetch(static_cast<const char*>(address), _MM_HINT_T0);
}

#include "kernels/cpu/attention_inl.h"

// A row type reads the rows of a matrix in one format, 32 weights at a time, into two halves: the
// first 16 and the last 16 columns, or for MXFP4 the even and the odd ones. A stream of rows is
// asked for kAhead blocks before it is read.

// float32, float16, bf16.
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
      const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at + 1));
      const __m128i nibble = _mm_set1_epi8(15);
      const __m128i low = _mm_and_si128(bytes, nibble);                      // elements 0 to 15
      const __m128i high = _mm_and_si128(_mm_srli_epi16(bytes, 4), nibble);  // 16 to 31
      const __m128i join = _mm_set1_epi16(0x1001);  // element 2b + 16 * element 2b+1
      const __m128i pairs =
          _mm_packus_epi16(_mm_maddubs_epi16(low, join), _mm_maddubs_epi16(high, join));
      Vector::expand(table, pairs, powers[at[0]], even, odd);
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

// sums[r][t] = row (first_row + r) . x[t], over block_count blocks of 32.
template <int kRows, int kTokens, typename Rows>
inline void dot_tile(const Rows& rows, int64_t first_row, int block_count, const float* const* x,
                     float sums[kRows][kTokens]) {
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

// A row of a matrix and a token: one element of a product.
struct Pick {
  int64_t row;
  int token;
};

// The marked elements of a product in the rows of the words [begin, end): those of 64 rows for all
// tokens, then those of the next 64, so that a row that several tokens want is read once.
class MarkedPicks {
 public:
  MarkedPicks(const uint64_t* marks, int64_t words, int tokens, int64_t begin, int64_t end)
      : marks_(marks), words_(words), tokens_(tokens), word_(begin), end_(end) {
    if (begin < end) left_ = marks[begin];
  }

  // Up to kPicks of them; how many. The others are as the first, if there is one.
  template <int kPicks>
  int take(Pick (&picks)[kPicks]) {
    int count = 0;
    while (count < kPicks && find()) {
      picks[count++] = {word_ * 64 + __builtin_ctzll(left_), token_};
      left_ &= left_ - 1;
    }
    for (int i = count; i < kPicks && count > 0; ++i) picks[i] = picks[0];
    return count;
  }

 private:
  bool find() {
    while (left_ == 0) {
      if (word_ == end_) return false;
      if (++token_ == tokens_) {
        token_ = 0;
        if (++word_ == end_) return false;
      }
      left_ = marks_[token_ * words_ + word_];
    }
    return true;
  }

  const uint64_t* const marks_;
  const int64_t words_;
  const int tokens_;
  int64_t word_;
  const int64_t end_;
  int token_ = 0;
  uint64_t left_ = 0;  // of this word and token
};

// out[token][row] for all of `picks`, each summed as dot_tile sums it. Rows lie anywhere, so that
// no stream of them could be asked for: while some are read the next are.
template <typename Rows>
inline void dot_picks(const Rows& rows, MarkedPicks picks, int64_t row_count, int block_count,
                      const float* x, float* out) {
  using Cursor = typename Rows::template Cursor<1>;
  constexpr int kPicks = 3;
  Pick now[kPicks];
  for (int count = picks.take(now); count > 0;) {
    Pick next[kPicks];
    const int next_count = picks.take(next);
    Cursor at[kPicks];
    Cursor after[kPicks];
    const float* inputs[kPicks];
    F sums[kPicks];
    for (int i = 0; i < kPicks; ++i) {
      at[i] = rows.template at<1>(now[i].row);
      after[i] = rows.template at<1>((next_count > 0 ? next : now)[i].row);
      inputs[i] = x + now[i].token * int64_t{block_count} * 32;
      sums[i] = Vector::zero();
    }
    for (int block = 0; block < block_count; ++block) {
#pragma GCC unroll 4
      for (int i = 0; i < kPicks; ++i) {
        F first[kParts];
        F second[kParts];
        after[i].fetch(0, block);
        at[i].read(0, block, first, second);
        const float* input = inputs[i] + block * 32;
#pragma GCC unroll 2
        for (int p = 0; p < kParts; ++p) {
          sums[i] = Vector::fma(first[p], Vector::load(input + p * Vector::kLanes), sums[i]);
        }
#pragma GCC unroll 2
        for (int p = 0; p < kParts; ++p) {
          sums[i] = Vector::fma(second[p], Vector::load(input + 16 + p * Vector::kLanes), sums[i]);
        }
      }
    }
    for (int i = 0; i < count; ++i)
      out[now[i].token * row_count + now[i].row] = Vector::sum(sums[i]);
    __builtin_memcpy(now, next, sizeof now);
    count = next_count;
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

// Puts each group of 32 into the order in which MXFP4 rows are read: evens first.
inline void interleave(float* to, const float* from, int count) {
  for (int base = 0; base < count; base += 32) {
    for (int i = 0; i < 16; ++i) {
      to[base + i] = from[base + 2 * i];
      to[base + 16 + i] = from[base + 2 * i + 1];
    }
  }
}

inline bool reads_evens_first(Format format) {
  return format == Format::kMxfp4Pairs || format == Format::kMxfp4Blocks;
}

// Activations in the order in which a matrix of that format reads its weights.
inline void arrange(float* to, const float* from, int count, Format format) {
  if (reads_evens_first(format)) return interleave(to, from, count);
  __builtin_memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
}

class CpuKernels final : public Kernels {
 public:
  CpuKernels(base::ThreadPool& pool, std::unique_ptr<TileKernels> tiles)
      : pool_(pool), tiles_(std::move(tiles)) {
    for (int s = 0; s < 256; ++s) powers_[s] = tensor::e8m0_to_float(static_cast<uint8_t>(s));
  }

  std::string_view name() const override { return Vector::kName; }
  tensor::DType kv_dtype() const override { return tensor::DType::kF16; }

  void reserve(const ScratchShape& shape) override {
    const auto tokens = static_cast<size_t>(shape.tokens);
    const size_t assignments = tokens * static_cast<size_t>(shape.experts_per_token);
    token_rows_.reserve(tokens);
    sequence_of_row_.reserve(tokens);
    if (shape.tiled) return tiles_->reserve(shape);
    grouped_rows_.reserve(assignments);
    groups_.reserve(shape);
    inputs_.reserve(tokens * static_cast<size_t>(shape.hidden));
    activations_.reserve(assignments * static_cast<size_t>(shape.inner));
    outputs_.reserve(assignments * static_cast<size_t>(shape.hidden));
  }

  int64_t scratch_bytes() const override {
    const auto bytes = [](const auto& vector) {
      return static_cast<int64_t>(vector.capacity() * sizeof(vector[0]));
    };
    return bytes(token_rows_) + bytes(grouped_rows_) + bytes(sequence_of_row_) + groups_.bytes() +
           bytes(inputs_) + bytes(activations_) + bytes(outputs_) + tiles_->scratch_bytes();
  }

  void embed(float* out, const TokenId* tokens, int token_count, const Matrix& table) override {
    const StoredMatrix matrix{table.data, nullptr, table.rows, table.cols, table.format};
    for (int t = 0; t < token_count; ++t) {
      read_weight_row(matrix, tokens[t], out + int64_t{t} * table.cols);
    }
  }

  void rms_norm(float* out, const float* x, const float* weight, int tokens, int hidden,
                float epsilon) override {
    pool_.parallel_for(tokens, 8, [&](int64_t begin, int64_t end, int) {
      for (int64_t t = begin; t < end; ++t) {
        const float* row = x + t * hidden;
        F squares = Vector::zero();
        for (int i = 0; i < hidden; i += Vector::kLanes) {
          const F value = Vector::load(row + i);
          squares = Vector::fma(value, value, squares);
        }
        const float mean = Vector::sum(squares) / static_cast<float>(hidden);
        const F scale = Vector::set1(1.0f / __builtin_sqrtf(mean + epsilon));
        for (int i = 0; i < hidden; i += Vector::kLanes) {
          const F normed = Vector::mul(Vector::load(row + i), scale);
          Vector::store(out + t * hidden + i, Vector::mul(normed, Vector::load(weight + i)));
        }
      }
    });
  }

  void linear(float* out, const float* x, const Linear& linear, int tokens,
              Output output) override {
    const Matrix& matrix = linear.weight;
    if (is_tiled(matrix.format)) return tiles_->linear(out, x, linear, tokens, output);
    const StoredMatrix stored{matrix.data, nullptr, matrix.rows, matrix.cols, matrix.format};
    token_rows_.resize(static_cast<size_t>(tokens));
    for (int t = 0; t < tokens; ++t) token_rows_[t] = x + int64_t{t} * matrix.cols;
    pool_.parallel_for(matrix.rows, kRowChunk, [&](int64_t begin, int64_t end, int) {
      const auto emit = [&](int64_t row, int t, float sum) {
        float& to = out[int64_t{t} * matrix.rows + row];
        const float value = sum + (linear.bias != nullptr ? linear.bias[row] : 0.0f);
        to = output == Output::kAccumulate ? to + value : value;
      };
      dot_plain(stored, begin, end, token_rows_.data(), tokens, emit);
    });
  }

  void linear_marked(float* out, const float* x, const Matrix& matrix, const uint64_t* marks,
                     int tokens) override {
    CHECK(!is_tiled(matrix.format));
    const int64_t words = mark_words(matrix.rows);
    const int blocks = static_cast<int>(matrix.cols / 32);
    pool_.parallel_for(words, kMarkWords, [&](int64_t begin, int64_t end, int) {
      with_plain_rows(matrix.format, matrix.data, matrix.cols, [&](const auto& rows) {
        dot_picks(rows, {marks, words, tokens, begin, end}, matrix.rows, blocks, x, out);
      });
    });
  }

  void rotate(float* x, int64_t stride, const float* cos_sin, int tokens, int heads,
              int head_size) override {
    const int half = head_size / 2;
    pool_.parallel_for(tokens, 16, [&](int64_t begin, int64_t end, int) {
      for (int64_t t = begin; t < end; ++t) {
        const float* cosine = cos_sin + t * head_size;
        const float* sine = cosine + half;
        for (int h = 0; h < heads; ++h) {
          float* low = x + t * stride + int64_t{h} * head_size;
          float* high = low + half;
          for (int i = 0; i < half; ++i) {
            const float a = low[i];
            const float b = high[i];
            low[i] = a * cosine[i] - b * sine[i];
            high[i] = b * cosine[i] + a * sine[i];
          }
        }
      }
    });
  }

  void store_kv(const KvLayer& cache, const float* k, const float* v, int64_t stride,
                const SequenceRows* sequences, int sequence_count) override {
    with_element(cache, [&]<typename T>() {
      store_rows<T>(cache, k, v, stride, sequences, sequence_count);
    });
  }

  void attention(float* out, const float* q, int64_t stride, const KvLayer& cache,
                 const AttentionShape& shape, const SequenceRows* sequences,
                 int sequence_count) override {
    with_element(cache, [&]<typename T>() {
      attend_rows<T>(out, q, stride, cache, shape, sequences, sequence_count);
    });
  }

  void choose_experts(ExpertChoice* choices, const float* logits, int tokens, int experts,
                      int k) override {
    for (int t = 0; t < tokens; ++t) {
      choose(choices + int64_t{t} * k, logits + int64_t{t} * experts, experts, k);
    }
  }

  void experts(float* out, const float* x, const ExpertChoice* choices,
               const ExpertWeights& weights, const MoeShape& shape, int tokens) override {
    const Experts& gate = weights.gate;
    if (is_tiled(gate.format)) return tiles_->experts(out, x, choices, weights, shape, tokens);
    const Experts& down = weights.down;
    const int k = shape.experts_per_token;
    groups_.group(choices, tokens, k, gate.experts);
    const int64_t assignments = int64_t{tokens} * k;
    inputs_.resize(static_cast<size_t>(int64_t{tokens} * gate.cols));
    activations_.resize(static_cast<size_t>(assignments * down.cols));
    outputs_.resize(static_cast<size_t>(assignments * down.rows));

    pool_.parallel_for(tokens, 8, [&](int64_t begin, int64_t end, int) {
      for (int64_t t = begin; t < end; ++t) {
        arrange(inputs_.data() + t * gate.cols, x + t * gate.cols, gate.cols, gate.format);
      }
    });
    grouped_rows_.resize(static_cast<size_t>(assignments));
    for (int64_t i = 0; i < assignments; ++i) {
      grouped_rows_[i] = inputs_.data() + int64_t{groups_.assignments()[i] / k} * gate.cols;
    }
    expert_up(weights, shape);
    for (int64_t i = 0; i < assignments; ++i) {
      grouped_rows_[i] = activations_.data() + int64_t{groups_.assignments()[i]} * down.cols;
    }
    expert_down(down);
    pool_.parallel_for(tokens, 8, [&](int64_t begin, int64_t end, int) {
      for (int64_t t = begin; t < end; ++t) mix(out + t * down.rows, choices, t, k, down.rows);
    });
  }

 private:
  // body<T>(), where T is the type of the cache's elements.
  template <typename Body>
  static void with_element(const KvLayer& cache, const Body& body) {
    CHECK(cache.block_tokens == kBlockKeys && cache.head_size <= kHeadSizeMax);
    switch (cache.dtype) {
      case tensor::DType::kF32:
        return body.template operator()<float>();
      case tensor::DType::kF16:
        return body.template operator()<F16>();
      case tensor::DType::kBf16:
        return body.template operator()<Bf16>();
      case tensor::DType::kF8E4m3:
        return body.template operator()<F8>();
      default:
        CHECK(cache.dtype == tensor::DType::kI8);
        return body.template operator()<int8_t>();
    }
  }

  template <typename T>
  void store_rows(const KvLayer& cache, const float* k, const float* v, int64_t stride,
                  const SequenceRows* sequences, int sequence_count) {
    CHECK(cache.block_bytes() == cache.kv_heads * KvHead<T>::bytes(cache));
    const int size = cache.head_size;
    for (int s = 0; s < sequence_count; ++s) {
      const SequenceRows& rows = sequences[s];
      pool_.parallel_for(rows.row_count, 16, [&](int64_t begin, int64_t end, int) {
        for (int64_t r = begin; r < end; ++r) {
          const int position = rows.start + static_cast<int>(r);
          const int64_t row = (rows.row_begin + r) * stride;
          for (int h = 0; h < cache.kv_heads; ++h) {
            const int64_t from = row + int64_t{h} * size;
            store_token(KvHead<T>(cache, rows.blocks[position / kBlockKeys], h),
                        position % kBlockKeys, k + from, v + from, size);
          }
        }
      });
    }
  }

  template <typename T>
  void attend_rows(float* out, const float* q, int64_t stride, const KvLayer& cache,
                   const AttentionShape& shape, const SequenceRows* sequences, int sequence_count) {
    const int group = shape.heads / shape.kv_heads;
    int64_t row_count = 0;
    for (int s = 0; s < sequence_count; ++s) row_count += sequences[s].row_count;
    sequence_of_row_.clear();
    for (int s = 0; s < sequence_count; ++s) {
      sequence_of_row_.insert(sequence_of_row_.end(), sequences[s].row_count, s);
    }
    pool_.parallel_for(row_count * shape.kv_heads, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t item = begin; item < end; ++item) {
        const int64_t index = item / shape.kv_heads;
        const int kv_head = static_cast<int>(item % shape.kv_heads);
        const SequenceRows& rows = sequences[sequence_of_row_[index]];
        const int row = static_cast<int>(index) - (rows.row_begin - sequences[0].row_begin);
        for (int head = 0; head < group;) {
          const int first = kv_head * group + head;
          const int together = group - head >= Vector::kHeads ? Vector::kHeads
                               : group - head >= 4            ? 4
                                                              : 1;
          if (together == Vector::kHeads) {
            attend<Vector::kHeads, T>(out, q, stride, cache, shape, rows, row, kv_head, first);
          } else if (together == 4) {
            attend<4, T>(out, q, stride, cache, shape, rows, row, kv_head, first);
          } else {
            attend<1, T>(out, q, stride, cache, shape, rows, row, kv_head, first);
          }
          head += together;
        }
      }
    });
  }

  // One query row, kGroup heads that share a kv head.
  template <int kGroup, typename T>
  static void attend(float* out, const float* q, int64_t stride, const KvLayer& cache,
                     const AttentionShape& shape, const SequenceRows& rows, int row, int kv_head,
                     int first_head) {
    const int position = rows.start + row;
    const int first =
        shape.window > 0 && position >= shape.window ? position - shape.window + 1 : 0;
    const int64_t head = int64_t{first_head} * shape.head_size;
    const int64_t row_index = int64_t{rows.row_begin} + row;
    RowAttention<kGroup, T> attention(out + row_index * shape.heads * shape.head_size + head,
                                      q + row_index * stride + head, shape, first_head);
    for (int span = first / kSpan; span <= position / kSpan; ++span) {
      const int begin = span * kSpan;
      const int low = first > begin ? first - begin : 0;
      const int high = position - begin < kSpan - 1 ? position - begin : kSpan - 1;
      attention.see(cache, rows.blocks + span * kSpanBlocks, kv_head, low, high,
                    position / kBlockKeys - span * kSpanBlocks);
    }
    attention.finish();
  }

  // The k largest, descending, the lower index among equals; then softmax over them.
  static void choose(ExpertChoice* best, const float* logits, int experts, int k) {
    int found = 0;
    for (int e = 0; e < experts; ++e) {
      if (found == k && !(logits[e] > best[k - 1].weight)) continue;
      int at = found < k ? found++ : k - 1;
      for (; at > 0 && logits[e] > best[at - 1].weight; --at) best[at] = best[at - 1];
      best[at] = {e, logits[e]};
    }
    const float highest = best[0].weight;
    float total = 0.0f;
    for (int j = 0; j < k; ++j) {
      best[j].weight = scalar_exp(best[j].weight - highest);
      total += best[j].weight;
    }
    for (int j = 0; j < k; ++j) best[j].weight /= total;
  }

  // body(rows) for a matrix that lies row by row, in any format but MXFP4.
  template <typename Body>
  static void with_plain_rows(Format format, const void* data, int64_t cols, const Body& body) {
    switch (format) {
      case Format::kF32:
        return body(PlainRows<float>{static_cast<const float*>(data), cols});
      case Format::kF16:
        return body(PlainRows<F16>{static_cast<const F16*>(data), cols});
      case Format::kQ8_0:
        return body(Q8Rows{static_cast<const uint8_t*>(data), cols / 32});
      default:
        return body(PlainRows<Bf16>{static_cast<const Bf16*>(data), cols});
    }
  }

  // Rows [begin, end) of such a matrix.
  template <typename Emit>
  static void dot_plain(const StoredMatrix& matrix, int64_t begin, int64_t end,
                        const float* const* x, int tokens, const Emit& emit) {
    with_plain_rows(matrix.format, matrix.data, matrix.cols, [&](const auto& rows) {
      dot_rows(rows, begin, end, static_cast<int>(matrix.cols / 32), x, tokens, emit);
    });
  }

  // Rows [begin, end) of one expert's matrix, in any format.
  template <typename Emit>
  void dot_expert(const Experts& experts, int expert, int64_t begin, int64_t end,
                  const float* const* x, int tokens, const Emit& emit) const {
    const StoredMatrix matrix = expert_matrix(experts, expert);
    const int blocks = experts.cols / 32;
    const auto* bytes = static_cast<const uint8_t*>(matrix.data);
    switch (matrix.format) {
      case Format::kMxfp4Pairs:
        return dot_rows(Mxfp4PairRows{bytes, matrix.scales, blocks, powers_}, begin, end, blocks, x,
                        tokens, emit);
      case Format::kMxfp4Blocks:
        return dot_rows(Mxfp4BlockRows{bytes, blocks, powers_}, begin, end, blocks, x, tokens,
                        emit);
      case Format::kBf16Columns:
        return dot_columns(static_cast<const Bf16*>(matrix.data), matrix.rows, begin, end,
                           experts.cols, x, tokens, emit);
      default:
        return dot_plain(matrix, begin, end, x, tokens, emit);
    }
  }

  // activations_[assignment] = swiglu(gate x + bias, up x + bias), in the order down reads them.
  void expert_up(const ExpertWeights& weights, const MoeShape& shape) {
    const int activation_count = weights.down.cols;
    const int chunks = activation_count / kActivationChunk;
    const int64_t tasks = static_cast<int64_t>(groups_.active().size()) * chunks;
    pool_.parallel_for(tasks, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t task = begin; task < end; ++task) {
        const ActiveExpert& active = groups_.active()[task / chunks];
        const int first = static_cast<int>(task % chunks) * kActivationChunk;
        for (int token = 0; token < active.count; token += kTokenBlock) {
          const int tokens =
              active.count - token < kTokenBlock ? active.count - token : kTokenBlock;
          float gate[kTokenBlock][kActivationChunk];
          float up[kTokenBlock][kActivationChunk];
          gate_and_up(weights, active.expert, first, grouped_rows_.data() + active.begin + token,
                      tokens, gate, up);
          for (int t = 0; t < tokens; ++t) {
            const int64_t assignment = groups_.assignments()[active.begin + token + t];
            swiglu(gate[t], up[t], shape);
            arrange(activations_.data() + assignment * activation_count + first, gate[t],
                    kActivationChunk, weights.down.format);
          }
        }
      }
    });
  }

  // kActivationChunk gates and ups from `first` on, with their biases.
  void gate_and_up(const ExpertWeights& weights, int expert, int first, const float* const* x,
                   int tokens, float (*gate)[kActivationChunk],
                   float (*up)[kActivationChunk]) const {
    const Experts& gates = weights.gate;
    const float* bias = gates.bias + int64_t{expert} * gates.rows;
    if (weights.interleaved()) {
      const auto emit = [&](int64_t row, int t, float sum) {
        const int i = static_cast<int>(row / 2) - first;
        (row % 2 == 0 ? gate : up)[t][i] = sum + bias[row];
      };
      dot_expert(gates, expert, 2 * first, 2 * (first + kActivationChunk), x, tokens, emit);
      return;
    }
    const Experts& ups = weights.up;
    const float* up_bias = ups.bias + int64_t{expert} * ups.rows;
    for (const bool is_gate : {true, false}) {
      float(*to)[kActivationChunk] = is_gate ? gate : up;
      const float* add = is_gate ? bias : up_bias;
      const auto emit = [&](int64_t row, int t, float sum) { to[t][row - first] = sum + add[row]; };
      dot_expert(is_gate ? gates : ups, expert, first, first + kActivationChunk, x, tokens, emit);
    }
  }

  // gate <- min(gate, limit) * sigmoid(alpha * gate) * (clamp(up) + 1)
  static void swiglu(float* gate, const float* up, const MoeShape& shape) {
    const F limit = Vector::set1(shape.swiglu_limit);
    const F low = Vector::set1(-shape.swiglu_limit);
    const F alpha = Vector::set1(-shape.swiglu_alpha);
    const F one = Vector::set1(1.0f);
    for (int i = 0; i < kActivationChunk; i += Vector::kLanes) {
      const F g = Vector::min(Vector::load(gate + i), limit);
      const F u = Vector::max(Vector::min(Vector::load(up + i), limit), low);
      const F sigmoid = Vector::div(one, Vector::add(one, vector_exp(Vector::mul(alpha, g))));
      Vector::store(gate + i, Vector::mul(Vector::mul(g, sigmoid), Vector::add(u, one)));
    }
  }

  // outputs_[assignment] = down a + bias
  void expert_down(const Experts& matrix) {
    const int chunks = (matrix.rows + kRowChunk - 1) / kRowChunk;
    const int64_t tasks = static_cast<int64_t>(groups_.active().size()) * chunks;
    pool_.parallel_for(tasks, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t task = begin; task < end; ++task) {
        const ActiveExpert& active = groups_.active()[task / chunks];
        const int64_t first = (task % chunks) * kRowChunk;
        const int64_t last = first + kRowChunk < matrix.rows ? first + kRowChunk : matrix.rows;
        const float* bias = matrix.bias + int64_t{active.expert} * matrix.rows;
        const auto emit = [&](int64_t row, int t, float sum) {
          outputs_[int64_t{groups_.assignments()[active.begin + t]} * matrix.rows + row] =
              sum + bias[row];
        };
        dot_expert(matrix, active.expert, first, last, grouped_rows_.data() + active.begin,
                   active.count, emit);
      }
    });
  }

  // out += the chosen experts' outputs, weighted, best first.
  void mix(float* out, const ExpertChoice* choices, int64_t token, int k, int rows) const {
    for (int i = 0; i < rows; i += Vector::kLanes) {
      F sum = Vector::zero();
      for (int j = 0; j < k; ++j) {
        const int64_t assignment = token * k + j;
        sum = Vector::fma(Vector::set1(choices[assignment].weight),
                          Vector::load(outputs_.data() + assignment * rows + i), sum);
      }
      Vector::store(out + i, Vector::add(Vector::load(out + i), sum));
    }
  }

  base::ThreadPool& pool_;
  const std::unique_ptr<TileKernels> tiles_;
  float powers_[256];

  // Working memory for the largest step: see reserve.
  std::vector<const float*> token_rows_;
  std::vector<const float*> grouped_rows_;
  std::vector<int> sequence_of_row_;
  ExpertGroups groups_;
  std::vector<float> inputs_;       // (tokens, hidden), as gate reads them
  std::vector<float> activations_;  // (assignments, intermediate), as down reads them
  std::vector<float> outputs_;      // (assignments, hidden)
};
