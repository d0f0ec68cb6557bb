// Latent attention in its absorbed form: one cached row of each token is the key of all heads and,
// but for its end, their value: with rank 4 and rope_size 1, a row of 5 elements gives each head
// the score q . row, of all five, and the value row[0..4). Included by cpu_kernels_inl.h, and like
// it written once over `Vector`, inside each instruction set's unnamed namespace.
//
// Rows are widened to float32 kLatentSpan at a time, counted from position 0, and met by all heads
// of a chunk: a row is read once for kLatentHeads products. The order of a head's sums depends on
// the position alone.

constexpr int kLatentSpan = 32;
constexpr int kLatentHeads = 16;  // that share the widened rows
constexpr int kLatentTile = 4;    // heads, and keys, in registers

// One query row and up to kLatentHeads heads.
template <typename T>
class LatentAttention {
 public:
  // out: (heads, rank); q: (heads, width)
  LatentAttention(float* out, const float* q, const LatentShape& shape, int heads)
      : out_(out), q_(q), shape_(shape), heads_(heads) {
    for (int64_t i = 0; i < int64_t{heads} * shape.rank; ++i) out[i] = 0.0f;
    for (int h = 0; h < heads; ++h) {
      highest_[h] = -1e30f;  // below every score, and finite: what is rescaled by it was zero
      total_[h] = 0.0f;
    }
  }

  // Positions begin .. begin + count of a sequence, count <= kLatentSpan.
  void accumulate(const KvLayer& cache, const int32_t* blocks, int begin, int count) {
    const int width = shape_.width();
    for (int k = 0; k < count; ++k) {
      widen(cache, blocks[(begin + k) / kBlockKeys], (begin + k) % kBlockKeys, rows_ + k * width);
    }
    const int padded = (count + kLatentTile - 1) / kLatentTile * kLatentTile;
    for (int i = count * width; i < padded * width; ++i) rows_[i] = 0.0f;
    int h = 0;
    for (; h + kLatentTile <= heads_; h += kLatentTile) meet<kLatentTile>(h, count, padded);
    for (; h < heads_; ++h) meet<1>(h, count, padded);
  }

  void finish() {
    for (int h = 0; h < heads_; ++h) {
      const F scale = Vector::set1(1.0f / total_[h]);
      float* to = out_ + int64_t{h} * shape_.rank;
      for (int i = 0; i < shape_.rank; i += Vector::kLanes) {
        Vector::store(to + i, Vector::mul(Vector::load(to + i), scale));
      }
    }
  }

 private:
  static void widen(const KvLayer& cache, int32_t block, int slot, float* to) {
    if constexpr (KvElement<T>::kScaled) {
      read_latent_row(cache, block, slot, to);
    } else {
      const auto* from = reinterpret_cast<const T*>(static_cast<const char*>(cache.data) +
                                                    block * block_bytes(cache)) +
                         int64_t{slot} * cache.head_size;
      int i = 0;
      for (; i + Vector::kLanes <= cache.head_size; i += Vector::kLanes) {
        Vector::store(to + i, Vector::load(from + i));
      }
      const int rest = cache.head_size - i;
      if (rest > 0) store_part(to + i, load_part(from + i, rest), rest);
    }
  }
  // What cache.block_bytes() says of types without scales, without a call.
  static int64_t block_bytes(const KvLayer& cache) {
    return int64_t{kBlockKeys} * cache.head_size * static_cast<int64_t>(sizeof(T));
  }

  // Heads first .. first + kHeads against the widened rows.
  template <int kHeads>
  void meet(int first, int count, int padded) {
    for (int key = 0; key < padded; key += kLatentTile) score<kHeads>(first, key);
    float shrink[kHeads];
    for (int h = 0; h < kHeads; ++h) shrink[h] = weigh(first + h, h, count);
    for (int i = 0; i < shape_.rank; i += Vector::kLanes) mix<kHeads>(first, shrink, i, count);
  }

  // scores_[h][key ..] of kLatentTile keys.
  template <int kHeads>
  void score(int first, int key) {
    const int width = shape_.width();
    const float* const query = q_ + int64_t{first} * width;
    const float* const rows = rows_ + int64_t{key} * width;
    F sums[kHeads][kLatentTile];
    for (int h = 0; h < kHeads; ++h) {
      for (int k = 0; k < kLatentTile; ++k) sums[h][k] = Vector::zero();
    }
    int i = 0;
    for (; i + Vector::kLanes <= width; i += Vector::kLanes) {
      F keys[kLatentTile];
      for (int k = 0; k < kLatentTile; ++k) keys[k] = Vector::load(rows + k * width + i);
#pragma GCC unroll 4
      for (int h = 0; h < kHeads; ++h) {
        const F part = Vector::load(query + h * width + i);
#pragma GCC unroll 4
        for (int k = 0; k < kLatentTile; ++k) sums[h][k] = Vector::fma(part, keys[k], sums[h][k]);
      }
    }
    for (int h = 0; h < kHeads && i < width; ++h) {
      const F part = load_part(query + h * width + i, width - i);
      for (int k = 0; k < kLatentTile; ++k) {
        sums[h][k] = Vector::fma(part, load_part(rows + k * width + i, width - i), sums[h][k]);
      }
    }
    for (int h = 0; h < kHeads; ++h) {
      for (int k = 0; k < kLatentTile; ++k) {
        scores_[h * kLatentSpan + key + k] = Vector::sum(sums[h][k]) * shape_.scale;
      }
    }
  }

  // Makes the scores into weights against the highest so far; returns by how much the weights given
  // before have shrunk. `at`: the head's place in scores_.
  float weigh(int head, int at, int count) {
    float* const scores = scores_ + at * kLatentSpan;
    float top = highest_[head];
    for (int k = 0; k < count; ++k) top = scores[k] > top ? scores[k] : top;
    for (int k = count; k < kLatentSpan; ++k) scores[k] = top;
    const F tops = Vector::set1(top);
    for (int k = 0; k < kLatentSpan; k += Vector::kLanes) {
      Vector::store(scores + k, vector_exp(Vector::sub(Vector::load(scores + k), tops)));
    }
    const float shrink = scalar_exp(highest_[head] - top);
    float sum = 0.0f;
    for (int k = 0; k < count; ++k) sum += scores[k];
    total_[head] = total_[head] * shrink + sum;
    highest_[head] = top;
    return shrink;
  }

  // out[h][i ..] = shrink * out[h][i ..] + sum over keys of weight * row[i ..], of one vector.
  template <int kHeads>
  void mix(int first, const float* shrink, int i, int count) {
    const int width = shape_.width();
    float* const to = out_ + int64_t{first} * shape_.rank + i;
    F sums[kHeads];
    for (int h = 0; h < kHeads; ++h) {
      sums[h] = Vector::mul(Vector::load(to + int64_t{h} * shape_.rank), Vector::set1(shrink[h]));
    }
    for (int k = 0; k < count; ++k) {
      const F value = Vector::load(rows_ + int64_t{k} * width + i);
#pragma GCC unroll 4
      for (int h = 0; h < kHeads; ++h) {
        sums[h] = Vector::fma(Vector::set1(scores_[h * kLatentSpan + k]), value, sums[h]);
      }
    }
    for (int h = 0; h < kHeads; ++h) Vector::store(to + int64_t{h} * shape_.rank, sums[h]);
  }

  float* const out_;
  const float* const q_;
  const LatentShape& shape_;
  const int heads_;
  float highest_[kLatentHeads];
  float total_[kLatentHeads];
  alignas(64) float scores_[kLatentTile * kLatentSpan];
  alignas(64) float rows_[kLatentSpan * kLatentWidthMax];
};
