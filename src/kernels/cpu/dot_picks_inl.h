// Single elements of a product, wherever they lie. Included by cpu_kernels_inl.h.

// A row of a matrix and a token: one element of a product.
struct Pick {
  int64_t row;
  int token;
};

// The marked elements of a product in the rows of the words [begin, end): those of 64 rows for all
// tokens, then those of the next 64, so that a row that several tokens want is read once. Where
// token 0 has the rows 1 and 70 and token 1 the rows 1 and 3: (row 1, token 0), (1, 1), (3, 1),
// (70, 0).
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
// hardware sees no stream of them: while some are read, those two turns on are asked for.
template <typename Rows>
inline void dot_picks(const Rows& rows, MarkedPicks picks, int64_t row_count, int block_count,
                      const float* x, float* out) {
  using Cursor = typename Rows::template Cursor<1>;
  constexpr int kPicks = 3;
  Pick turns[3][kPicks];  // one after the other, in a ring
  int counts[3] = {picks.take(turns[0]), 0, 0};
  if (counts[0] > 0) counts[1] = picks.take(turns[1]);
  for (int turn = 0; counts[turn % 3] > 0; ++turn) {
    const Pick* now = turns[turn % 3];
    const int count = counts[turn % 3];
    const int ahead = (turn + 2) % 3;
    counts[ahead] = picks.take(turns[ahead]);
    const Pick* asked = counts[ahead] > 0 ? turns[ahead] : now;
    Cursor at[kPicks];
    Cursor after[kPicks];
    const float* inputs[kPicks];
    F sums[kPicks];
    for (int i = 0; i < kPicks; ++i) {
      at[i] = rows.template at<1>(now[i].row);
      after[i] = rows.template at<1>(asked[i].row);
      inputs[i] = x + now[i].token * int64_t{block_count} * 32;
      sums[i] = Vector::zero();
    }
    for (int block = 0; block < block_count; ++block) {
#pragma GCC unroll 4
      for (int i = 0; i < kPicks; ++i) {
        F first[kParts];
        F second[kParts];
        after[i].fetch_far(0, block);
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
  }
}
