// Keys and values: written into the cache, and attended to. The part of the fast kernels' body that
// knows the layout of a KV block (tensor/kv_block.h); included by cpu_kernels_inl.h, and like it
// written once over `Vector`, inside each instruction set's unnamed namespace.
//
// Keys are taken in spans of kSpan positions, counted from position 0: the softmax is rescaled once
// a span. Where a span ends depends on the position alone, so a row's result does too.
//
// Of one head, keys with the scores 1, 3, 5 and the values 10, 20, 30, if a span had two keys
// (OnlineSoftmax, without a sink; Milakov and Gimelshein, arXiv 1805.02867):
//   span 0   highest 3, weights e^-2 = 0.1353 and 1; total 1.1353, to = 0.1353 * 10 + 20 = 21.353
//   span 1   highest 5, weight 1, shrink e^(3-5) = 0.1353; total 0.1353 * 1.1353 + 1 = 1.1537,
//            to = 0.1353 * 21.353 + 30 = 32.89
//   finish   32.89 / 1.1537 = 28.51, as softmax(1, 3, 5) . (10, 20, 30)
// A sink is a score that is there from the beginning, with the weight 1 and no value.

constexpr int kBlockKeys = 16;  // tokens in a block
constexpr int kSpan = 128;
constexpr int kSpanBlocks = kSpan / kBlockKeys;

// How a cached element becomes float32 and back; kGain is what Vector::load leaves out.
template <typename T>
struct KvElement;
template <>
struct KvElement<float> {
  static constexpr bool kScaled = false;
  static constexpr bool kRotated = false;
  static float code(float x) { return x; }
};
template <>
struct KvElement<F16> {
  static constexpr bool kScaled = false;
  static constexpr bool kRotated = false;
  static F16 code(float x) { return {tensor::float_to_f16(x)}; }
};
template <>
struct KvElement<Bf16> {
  static constexpr bool kScaled = false;
  static constexpr bool kRotated = false;
  static Bf16 code(float x) { return tensor::float_to_bf16(x); }
};
template <>
struct KvElement<int8_t> {
  static constexpr bool kScaled = true;
  static constexpr bool kRotated = true;
  static constexpr float kGain = 1.0f;
  static constexpr tensor::DType kType = tensor::DType::kI8;
  static int8_t code(float x) { return static_cast<int8_t>(__builtin_nearbyintf(x)); }
};
template <>
struct KvElement<F8> {
  static constexpr bool kScaled = true;
  static constexpr bool kRotated = false;
  static constexpr float kGain = 256.0f;
  static constexpr tensor::DType kType = tensor::DType::kF8E4m3;
  static F8 code(float x) { return {tensor::float_to_e4m3(x)}; }
};

// One kv head of one block. Element 5 of the key in slot 3 is keys[5 * 16 + 3], so that a vector
// has one element of many keys; element 5 of its value is values[3 * head_size + 5].
template <typename T>
struct KvHead {
  KvHead(const KvLayer& cache, int32_t block, int head)
      : keys(reinterpret_cast<T*>(static_cast<char*>(cache.data) +
                                  (int64_t{block} * cache.kv_heads + head) * bytes(cache))),
        values(keys + int64_t{kBlockKeys} * cache.head_size),
        scales(reinterpret_cast<Bf16*>(values + int64_t{kBlockKeys} * cache.head_size)) {}

  // What cache.head_bytes() says, without a call.
  static int64_t bytes(const KvLayer& cache) {
    constexpr int64_t kScaleBytes = KvElement<T>::kScaled ? sizeof(Bf16) : 0;
    return 2 * kBlockKeys * (cache.head_size * int64_t{sizeof(T)} + kScaleBytes);
  }

  T* keys;       // (head_size, kBlockKeys)
  T* values;     // (kBlockKeys, head_size)
  Bf16* scales;  // (2, kBlockKeys): keys', values'; one-byte types only
};

// kernels/kv_quantization.h says what and why; the order of additions is the same there.
inline void hadamard(float* x, int head_size) {
  if (head_size % Vector::kLanes != 0) return hadamard_transform(x, head_size);
  for (int i = 0; i < head_size; i += Vector::kLanes) {
    Vector::store(x + i, Vector::turn_lanes(Vector::load(x + i)));
  }
  const int size = hadamard_size(head_size);
  for (int step = Vector::kLanes; step < size; step *= 2) {
    for (int i = 0; i < head_size; i += Vector::kLanes) {
      if ((i & step) != 0) continue;
      const F a = Vector::load(x + i);
      const F b = Vector::load(x + i + step);
      Vector::store(x + i, Vector::add(a, b));
      Vector::store(x + i + step, Vector::sub(a, b));
    }
  }
}

// Turned, scaled and rounded as kv_quantization.h says; returns the scale.
template <typename T>
inline Bf16 code_vector(T* codes, const float* from, int size) {
  alignas(64) float rotated[kHeadSizeMax];
  __builtin_memcpy(rotated, from, static_cast<size_t>(size) * sizeof(float));
  if constexpr (KvElement<T>::kRotated) hadamard(rotated, size);
  const Bf16 scale = kv_scale(rotated, size, KvElement<T>::kType);
  const float inverse = 1.0f / tensor::bf16_to_float(scale);
  if (inverse != inverse) {
    __builtin_memset(codes, 0, static_cast<size_t>(size));
    return scale;
  }
  for (int i = 0; i < size; ++i) codes[i] = KvElement<T>::code(rotated[i] * inverse);
  return scale;
}

template <typename T>
inline void store_token(const KvHead<T>& to, int slot, const float* k, const float* v, int size) {
  T* values = to.values + int64_t{slot} * size;
  if constexpr (KvElement<T>::kScaled) {
    T keys[kHeadSizeMax];
    to.scales[slot] = code_vector(keys, k, size);
    to.scales[kBlockKeys + slot] = code_vector(values, v, size);
    for (int i = 0; i < size; ++i) to.keys[int64_t{i} * kBlockKeys + slot] = keys[i];
  } else {
    for (int i = 0; i < size; ++i) {
      to.keys[int64_t{i} * kBlockKeys + slot] = KvElement<T>::code(k[i]);
      values[i] = KvElement<T>::code(v[i]);
    }
  }
}

// What one row attends to in one kv head: these entries of its table, the last included.
struct KvRange {
  const int32_t* table;
  int first;
  int last;
  int kv_head;
};

// What is attended to a span later, keys and values: asked for a few lines at a time between the
// work on this span, so that memory is busy all the time. A head's part of a block is a page or
// less: the hardware does not see the next one coming.
class Prefetcher {
 public:
  static constexpr int kLines = 8;

  explicit Prefetcher(int64_t block_bytes) : block_bytes_(block_bytes) {}
  void add(const void* block) { blocks_[count_++] = static_cast<const char*>(block); }

  // The next kLines, or fewer at a block's end.
  void ask() {
    if (at_ >= end_) {
      if (taken_ == count_) return;
      at_ = blocks_[taken_++];
      end_ = at_ + block_bytes_;
    }
    const char* const stop = at_ + kLines * kLineBytes < end_ ? at_ + kLines * kLineBytes : end_;
    for (; at_ < stop; at_ += kLineBytes) prefetch_far(at_);
  }

 private:
  static constexpr int64_t kLineBytes = 64;
  const int64_t block_bytes_;
  const char* blocks_[kSpanBlocks];
  int count_ = 0;
  int taken_ = 0;
  const char* at_ = nullptr;
  const char* end_ = nullptr;
};

// scores[g * kSpan ..] of kVectors vectors of keys; blocks[b]: the keys of one block.
template <int kGroup, int kVectors, typename T>
inline void score_keys(float* scores, const float* query, const T* const* blocks, Prefetcher& ahead,
                       int size) {
  F sums[kGroup][kVectors];
  for (int g = 0; g < kGroup; ++g) {
    for (int v = 0; v < kVectors; ++v) sums[g][v] = Vector::zero();
  }
  for (int i = 0; i < size; ++i) {
    if (i % Prefetcher::kLines == 0) ahead.ask();
    F keys[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; v += kParts) {
      const T* row = blocks[v / kParts] + i * kBlockKeys;
      if constexpr (kParts == 2) {
        Vector::load_two(row, keys + v);
      } else {
        keys[v] = Vector::load(row);
      }
    }
#pragma GCC unroll 8
    for (int g = 0; g < kGroup; ++g) {
      const F element = Vector::set1(query[g * size + i]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sums[g][v] = Vector::fma(element, keys[v], sums[g][v]);
    }
  }
  for (int g = 0; g < kGroup; ++g) {
    float* to = scores + g * kSpan;
    for (int v = 0; v < kVectors; ++v) Vector::store(to + v * Vector::kLanes, sums[g][v]);
  }
}

// to[g][i..] = shrink[g] * to[g][i..] + sum over keys of weights[g * kSpan + key] * value[i..], for
// kVectors vectors.
template <int kGroup, int kVectors, typename T>
inline void weighted_sum_of_values(float* to, const float* weights, const float shrink[kGroup],
                                   const T* const* blocks, Prefetcher& ahead, int size, int low,
                                   int high) {
  F sums[kGroup][kVectors];
  for (int g = 0; g < kGroup; ++g) {
    for (int v = 0; v < kVectors; ++v) {
      sums[g][v] =
          Vector::mul(Vector::load(to + g * size + v * Vector::kLanes), Vector::set1(shrink[g]));
    }
  }
  for (int key = low; key <= high; ++key) {
    if (key % Prefetcher::kLines == 0) ahead.ask();
    const T* value = blocks[key / kBlockKeys] + int64_t{key % kBlockKeys} * size;
    F parts[kVectors];
    if constexpr (kVectors == 2) {
      Vector::load_two(value, parts);
    } else {
      for (int v = 0; v < kVectors; ++v) parts[v] = Vector::load(value + v * Vector::kLanes);
    }
#pragma GCC unroll 8
    for (int g = 0; g < kGroup; ++g) {
      const F weight = Vector::set1(weights[g * kSpan + key]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sums[g][v] = Vector::fma(weight, parts[v], sums[g][v]);
    }
  }
  for (int g = 0; g < kGroup; ++g) {
    for (int v = 0; v < kVectors; ++v) {
      Vector::store(to + g * size + v * Vector::kLanes, sums[g][v]);
    }
  }
}

// The same for the last `count` elements of a head whose size is no multiple of the lanes.
template <int kGroup, typename T>
inline void weighted_sum_of_rest(float* to, const float* weights, const float shrink[kGroup],
                                 const T* const* blocks, int size, int low, int high, int count) {
  F sums[kGroup];
  for (int g = 0; g < kGroup; ++g) {
    sums[g] = Vector::mul(load_part(to + g * size, count), Vector::set1(shrink[g]));
  }
  for (int key = low; key <= high; ++key) {
    const F part = load_part(blocks[key / kBlockKeys] + int64_t{key % kBlockKeys} * size, count);
    for (int g = 0; g < kGroup; ++g) {
      sums[g] = Vector::fma(Vector::set1(weights[g * kSpan + key]), part, sums[g]);
    }
  }
  for (int g = 0; g < kGroup; ++g) store_part(to + g * size, sums[g], count);
}

inline float scalar_exp(float x) {
  float lanes[Vector::kLanes];
  Vector::store(lanes, vector_exp(Vector::set1(x)));
  return lanes[0];
}

// One query row, kGroup heads that share a kv head, and what it has seen so far.
template <int kGroup, typename T>
class OnlineSoftmax {
 public:
  OnlineSoftmax(float* to, const float* q, const AttentionShape& shape, int first_head)
      : to_(to), size_(shape.head_size), softcap_(shape.softcap) {
    const float scale = shape.scale / gain();
    for (int i = 0; i < kGroup * size_; ++i) {
      query_[i] = q[i] * scale;
      to_[i] = 0.0f;
    }
    for (int g = 0; g < kGroup; ++g) {
      if constexpr (KvElement<T>::kRotated) hadamard(query_ + g * size_, size_);
      highest_[g] = shape.sinks != nullptr ? shape.sinks[first_head + g] : kLowest;
      total_[g] = shape.sinks != nullptr ? 1.0f : 0.0f;  // the sink itself
    }
  }

  // Keys [low, high] of span `span`, counted from its begin. `after`: what is attended to next.
  void accumulate_block(const KvLayer& cache, const KvRange& reach, const KvRange& after, int span,
                        int low, int high) {
    const int begin = span * kSpanBlocks;
    const int first = low / kBlockKeys;
    const int end = high / kBlockKeys + 1;
    const T* keys[kSpanBlocks];
    Prefetcher ahead(KvHead<T>::bytes(cache));
    const T* values[kSpanBlocks];
    const Bf16* scales[kSpanBlocks];
    for (int b = first; b < end; ++b) {
      const KvHead<T> head(cache, reach.table[begin + b], reach.kv_head);
      keys[b] = head.keys;
      ahead.add(block_ahead(cache, reach, after, begin + b + kSpanBlocks));
      values[b] = head.values;
      scales[b] = head.scales;
    }
    constexpr int kTogether = Vector::kKeyVectors / kParts;  // blocks
    int b = first;
    for (; b + kTogether <= end; b += kTogether) {
      score_keys<kGroup, Vector::kKeyVectors>(scores_ + b * kBlockKeys, query_, keys + b, ahead,
                                              size_);
    }
    for (; b < end; ++b)
      score_keys<kGroup, kParts>(scores_ + b * kBlockKeys, query_, keys + b, ahead, size_);

    float shrink[kGroup];
    for (int g = 0; g < kGroup; ++g) shrink[g] = softmax_weights(g, scales, ahead, low, high);
    constexpr int kWide = Vector::kValueVectors * Vector::kLanes;
    int i = 0;
    for (; i + kWide <= size_; i += kWide) {
      weighted_sum<Vector::kValueVectors>(values, shrink, ahead, i, low, high);
    }
    for (; i + Vector::kLanes <= size_; i += Vector::kLanes) {
      weighted_sum<1>(values, shrink, ahead, i, low, high);
    }
    if (i < size_) {
      const T* parts[kSpanBlocks];
      for (int block = first; block < end; ++block) parts[block] = values[block] + i;
      weighted_sum_of_rest<kGroup>(to_ + i, scores_, shrink, parts, size_, low, high, size_ - i);
    }
  }

  void finish() {
    for (int g = 0; g < kGroup; ++g) {
      const float scale = 1.0f / (total_[g] * gain());
      for (int i = 0; i < size_; ++i) to_[g * size_ + i] *= scale;
      if constexpr (KvElement<T>::kRotated) hadamard(to_ + g * size_, size_);
    }
  }

 private:
  // Below every score, and finite: what is rescaled by it was zero.
  static constexpr float kLowest = -1e30f;

  // What the Hadamard transform of the cache's type multiplies a vector's length by, squared.
  float gain() const {
    return static_cast<float>(KvElement<T>::kRotated ? hadamard_size(size_) : 1);
  }

  // Entry `at` of a reach that `after` continues.
  static const T* block_ahead(const KvLayer& cache, const KvRange& reach, const KvRange& after,
                              int at) {
    if (at <= reach.last) return KvHead<T>(cache, reach.table[at], reach.kv_head).keys;
    const int of_next = after.first + at - reach.last - 1;
    const int entry = of_next < after.last ? of_next : after.last;
    return KvHead<T>(cache, after.table[entry], after.kv_head).keys;
  }

  template <int kVectors>
  void weighted_sum(const T* const* values, const float* shrink, Prefetcher& ahead, int i, int low,
                    int high) {
    const T* parts[kSpanBlocks];
    for (int b = low / kBlockKeys; b <= high / kBlockKeys; ++b) parts[b] = values[b] + i;
    weighted_sum_of_values<kGroup, kVectors>(to_ + i, scores_, shrink, parts, ahead, size_, low,
                                             high);
  }

  // Makes head g's scores into weights against the highest so far, values' scales included. Returns
  // by how much the weights given before have shrunk.
  float softmax_weights(int g, const Bf16* const* scales, Prefetcher& ahead, int low, int high) {
    const int first = low / Vector::kLanes;
    const int last = high / Vector::kLanes;
    const F nothing = Vector::set1(-__builtin_inff());
    F best = Vector::set1(highest_[g]);
    for (int v = first; v <= last; ++v) {
      float* score = scores_ + g * kSpan + v * Vector::kLanes;
      F x = Vector::load(score);
      if constexpr (KvElement<T>::kScaled) x = Vector::mul(x, scale(scales, v, 0));
      if (softcap_ > 0.0f) x = capped(x);
      if (v == first || v == last) x = Vector::keep(x, v * Vector::kLanes, low, high, nothing);
      Vector::store(score, x);
      best = Vector::max(best, x);
    }
    ahead.ask();
    const float top = Vector::highest(best);
    const F tops = Vector::set1(top);
    F sum = Vector::zero();
    for (int v = first; v <= last; ++v) {
      float* score = scores_ + g * kSpan + v * Vector::kLanes;
      F weight = vector_exp(Vector::sub(Vector::load(score), tops));
      if (v == first || v == last) {
        weight = Vector::keep(weight, v * Vector::kLanes, low, high, Vector::zero());
      }
      sum = Vector::add(sum, weight);
      if constexpr (KvElement<T>::kScaled) weight = Vector::mul(weight, scale(scales, v, 1));
      Vector::store(score, weight);
    }
    const float shrink = scalar_exp(highest_[g] - top);
    total_[g] = total_[g] * shrink + Vector::sum(sum);
    highest_[g] = top;
    return shrink;
  }

  // c tanh(x / c) = c - 2c / (e^(2x/c) + 1)
  F capped(F x) const {
    const F twice = Vector::set1(2.0f * softcap_);
    const F e = vector_exp(Vector::mul(x, Vector::set1(2.0f / softcap_)));
    return Vector::sub(Vector::set1(softcap_),
                       Vector::div(twice, Vector::add(e, Vector::set1(1.0f))));
  }

  // The scales of the keys (which: 0) or values (1) of vector v of the span.
  static F scale(const Bf16* const* scales, int v, int which) {
    const Bf16* from = scales[v / kParts] + which * kBlockKeys + v % kParts * Vector::kLanes;
    return Vector::mul(Vector::load(from), Vector::set1(KvElement<T>::kGain));
  }

  float* to_;  // (kGroup, size_)
  const int size_;
  const float softcap_;
  float highest_[kGroup];
  float total_[kGroup];
  alignas(64) float query_[kGroup * kHeadSizeMax];
  alignas(64) float scores_[kGroup * kSpan];
};
