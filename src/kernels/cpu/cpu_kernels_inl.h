// The body of the fast kernels, written once over `Vector` (lanes, loads, fused multiply-add).
// Included inside the unnamed namespace of avx512.cc and avx2.cc, each compiled with its own flags,
// so that no function built for one instruction set can be picked by the linker for the other.
//
// The order of every sum is a function of the row alone: lane i adds the products i, i+kLanes, ...
// in order, then the lanes are folded by one fixed tree. Tiles, threads and batches only decide who
// does it, so results are batch-invariant.

#include "kernels/cpu/lanes_inl.h"

constexpr int kRowChunk = 32;         // weight rows handed out at a time
constexpr int kMarkWords = 8;         // the same, where some of the rows are marked
constexpr int kActivationChunk = 32;  // activations of an expert at a time: one MXFP4 block
constexpr int kLowRankChunk = 1024;   // outputs of an adapter at a time

#include "kernels/cpu/activations_inl.h"
#include "kernels/cpu/attention_inl.h"
#include "kernels/cpu/dot_picks_inl.h"
#include "kernels/cpu/dot_rows_inl.h"
#include "kernels/cpu/encoder_rows_inl.h"
#include "kernels/cpu/ggml_rows_inl.h"
#include "kernels/cpu/latent_inl.h"
#include "kernels/cpu/low_rank_inl.h"
#include "kernels/cpu/residual_rows_inl.h"
#include "kernels/cpu/rows_compact_inl.h"

class CpuKernels final : public Kernels {
 public:
  CpuKernels(base::ThreadPool& pool, std::unique_ptr<TileKernels> tiles, std::string_view name)
      : pool_(pool), tiles_(std::move(tiles)), name_(name) {
    for (int s = 0; s < 256; ++s) powers_[s] = tensor::e8m0_to_float(static_cast<uint8_t>(s));
  }

  std::string_view name() const override { return name_; }
  tensor::DType kv_dtype() const override { return tensor::DType::kF16; }

  void reserve(const StepCapacity& shape) override {
    room_.reserve(shape);
    low_rank_.reserve(shape);
    if (shape.tiled) return tiles_->reserve(shape);
    groups_.reserve(shape);
  }

  int64_t scratch_bytes() const override {
    return room_.bytes() + low_rank_.bytes() + groups_.bytes() + tiles_->scratch_bytes();
  }

  void embed(float* out, const TokenId* tokens, int token_count, const Matrix& table) override {
    const StoredMatrix matrix = stored(table);
    for (int t = 0; t < token_count; ++t) {
      read_weight_row(matrix, tokens[t], out + int64_t{t} * table.cols);
    }
  }

  void rms_norm(float* out, const float* x, const float* weight, int tokens, int hidden,
                float epsilon) override {
    pool_.parallel_for(tokens, 8, [&](int64_t begin, int64_t end, int) {
      for (int64_t t = begin; t < end; ++t) {
        rms_norm_row(out + t * hidden, x + t * hidden, weight, hidden, epsilon);
      }
    });
  }

  void add_rms_norm(float* out, const float* x, const float* weight, int tokens, int hidden,
                    float epsilon) override {
    pool_.parallel_for(tokens, 8, [&](int64_t begin, int64_t end, int) {
      for (int64_t t = begin; t < end; ++t) {
        const F scale = inverse_rms(x + t * hidden, hidden, epsilon);
        add_normed_row(out + t * hidden, x + t * hidden, weight, scale, hidden);
      }
    });
  }

  void add_scaled(float* out, const float* x, float scale, int tokens, int hidden) override {
    pool_.parallel_for(tokens, 8, [&](int64_t begin, int64_t end, int) {
      for (int64_t t = begin; t < end; ++t) {
        add_scaled_row(out + t * hidden, x + t * hidden, Vector::set1(scale), hidden);
      }
    });
  }

  void layer_norm(float* out, const float* x, const float* weight, const float* bias, int tokens,
                  int hidden, float epsilon) override {
    pool_.parallel_for(tokens, 8, [&](int64_t begin, int64_t end, int) {
      for (int64_t t = begin; t < end; ++t) {
        layer_norm_row(out + t * hidden, x + t * hidden, weight, bias, hidden, epsilon);
      }
    });
  }

  void rms_norm_heads(float* x, int64_t stride, const float* weight, int tokens, int heads,
                      int head_size, float epsilon) override {
    pool_.parallel_for(tokens, 8, [&](int64_t begin, int64_t end, int) {
      for (int64_t t = begin; t < end; ++t) {
        for (int h = 0; h < heads; ++h) {
          float* head = x + t * stride + int64_t{h} * head_size;
          rms_norm_row(head, head, weight, head_size, epsilon);
        }
      }
    });
  }

  void linear(float* out, const float* x, const Linear& linear, int tokens,
              Output output) override {
    const Matrix& matrix = linear.weight;
    if (is_tiled(matrix.format)) return tiles_->linear(out, x, linear, tokens, output);
    const StoredMatrix weights = stored(matrix);
    if (matrix.input_order != nullptr) x = sorted_inputs(x, matrix, tokens);
    const float* const* rows = room_.rows_of(x, tokens, matrix.cols);
    // A small one, a router's, is shared too.
    const int64_t chunk = matrix.rows < 2 * kRowChunk ? kRowChunk / 4 : kRowChunk;
    pool_.parallel_for(matrix.rows, chunk, [&](int64_t begin, int64_t end, int) {
      const auto emit = [&](int64_t row, int t, float sum) {
        float& to = out[int64_t{t} * matrix.rows + row];
        const float value = sum + (linear.bias != nullptr ? linear.bias[row] : 0.0f);
        to = output == Output::kAccumulate ? to + value : value;
      };
      dot_plain(weights, begin, end, rows, tokens, emit);
    });
  }

  void linear_marked(float* out, const float* x, const Matrix& matrix, const uint64_t* marks,
                     int tokens) override {
    CHECK(!is_tiled(matrix.format));
    const int64_t words = mark_words(matrix.rows);
    const int blocks = static_cast<int>(matrix.cols / 32);
    pool_.parallel_for(words, kMarkWords, [&](int64_t begin, int64_t end, int) {
      const auto pick = [&](const auto& rows) {
        dot_picks(rows, {marks, words, tokens, begin, end}, matrix.rows, blocks, x, out);
      };
      const StoredMatrix weights = stored(matrix);
      if (is_ggml_blocks(weights.format)) return pick(GgmlRows(weights));
      with_plain_rows(weights, pick);
    });
  }

  void rotate(float* x, int64_t stride, const float* cos_sin, int tokens,
              const RotaryShape& shape) override {
    const int half = shape.size / 2;
    // From one pair to the next, and within one.
    const bool neighbours = shape.pairs == RotaryShape::Pairs::kNeighbours;
    const int step = neighbours ? 2 : 1;
    const int apart = neighbours ? 1 : half;
    pool_.parallel_for(tokens, 16, [&](int64_t begin, int64_t end, int) {
      for (int64_t t = begin; t < end; ++t) {
        const float* cosine = cos_sin + t * shape.size;
        const float* sine = cosine + half;
        for (int h = 0; h < shape.heads; ++h) {
          float* low = x + t * stride + int64_t{h} * shape.head_stride;
          float* high = low + apart;
          for (int i = 0; i < half; ++i) {
            const float a = low[i * step];
            const float b = high[i * step];
            low[i * step] = a * cosine[i] - b * sine[i];
            high[i * step] = b * cosine[i] + a * sine[i];
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

  void linear_heads(float* out, const HeadStrides& out_strides, const float* x,
                    const HeadStrides& x_strides, const HeadMatrices& matrices,
                    int tokens) override {
    const StoredMatrix weights = stored(matrices.weight);
    pool_.parallel_for(matrices.heads, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t h = begin; h < end; ++h) {
        head_products(out + h * out_strides.head, out_strides.token, x + h * x_strides.head,
                      x_strides.token, weights, matrices.first + h * matrices.stride, matrices.rows,
                      tokens);
      }
    });
  }

  void linear_heads_transposed(float* out, const HeadStrides& out_strides, const float* x,
                               const HeadStrides& x_strides, const HeadMatrices& matrices,
                               int tokens) override {
    const StoredMatrix weights = stored(matrices.weight);
    CHECK(weights.cols <= kLatentWidthMax);
    pool_.parallel_for(matrices.heads, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t h = begin; h < end; ++h) {
        add_scaled_rows(out + h * out_strides.head, out_strides.token, x + h * x_strides.head,
                        x_strides.token, weights, matrices.first + h * matrices.stride,
                        matrices.rows, tokens);
      }
    });
  }

  void store_latent(const KvLayer& cache, const float* rows, int64_t stride,
                    const SequenceRows* sequences, int sequence_count) override {
    CHECK(cache.latent && cache.block_tokens == kBlockKeys);
    for (int s = 0; s < sequence_count; ++s) {
      const SequenceRows& of = sequences[s];
      pool_.parallel_for(of.row_count, 16, [&](int64_t begin, int64_t end, int) {
        for (int64_t r = begin; r < end; ++r) {
          const int position = of.start + static_cast<int>(r);
          write_latent_row(cache, of.blocks[position / kBlockKeys], position % kBlockKeys,
                           rows + (of.row_begin + r) * stride);
        }
      });
    }
  }

  void latent_attention(float* out, const float* q, const KvLayer& cache, const LatentShape& shape,
                        const SequenceRows* sequences, int sequence_count) override {
    with_type(cache.dtype, [&]<typename T>() {
      attend_latent_rows<T>(out, q, cache, shape, sequences, sequence_count);
    });
  }

  void glu(float* gate, const float* up, int64_t count, const GluShape& shape) override {
    const int64_t chunks = (count + kActivationChunk - 1) / kActivationChunk;
    pool_.parallel_for(chunks, 64, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin * kActivationChunk; i < end * kActivationChunk;
           i += kActivationChunk) {
        if (count - i < kActivationChunk) return glu_rest(gate + i, up + i, count - i, shape);
        glu_chunk(gate + i, up + i, shape);
      }
    });
  }

  void activate(float* x, int64_t count, ActivationKind kind) override {
    const int64_t chunks = (count + kActivationChunk - 1) / kActivationChunk;
    pool_.parallel_for(chunks, 64, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin * kActivationChunk; i < end * kActivationChunk && i < count;
           i += Vector::kLanes) {
        const int64_t left = count - i;
        if (left >= Vector::kLanes) {
          Vector::store(x + i, activation_of(Vector::load(x + i), kind));
        } else {
          const int part = static_cast<int>(left);
          store_part(x + i, activation_of(load_part(x + i, part), kind), part);
        }
      }
    });
  }

  void route(ExpertChoice* choices, const float* logits, int tokens,
             const RouterShape& shape) override {
    for (int64_t t = 0; t < tokens; ++t) {
      ExpertChoice* const of_token = choices + t * shape.k;
      const float* const row = logits + t * shape.experts;
      if (shape.kind == RouterShape::Kind::kSoftmaxOfTopK) {
        choose(of_token, row, shape.experts, shape.k);
      } else {
        route_token(of_token, row, shape);
      }
    }
  }

  void experts(float* out, const float* x, const ExpertChoice* choices,
               const ExpertWeights& weights, const MoeShape& shape, int tokens) override {
    if (shape.adapters == nullptr) {
      return base_experts(out, x, choices, weights, shape, tokens, nullptr);
    }
    low_rank_.group_experts(choices, tokens, shape.experts_per_token, shape.adapters,
                            weights.down.cols);
    VectorExpertAdditions additions(pool_, low_rank_, x, weights.gate.cols);
    base_experts(out, x, choices, weights, shape, tokens, &additions);
  }

  void add_low_rank(float* out, int64_t stride, const float* x, const AdaptedRows* groups,
                    int group_count) override {
    if (group_count == 0) return;
    low_rank_.plan_rows(x, groups, group_count);
    multiply_low_rank(pool_, low_rank_);
    const int64_t rows = groups[0].adapter->rows;  // all are of one matrix of the base
    const int64_t chunks = (rows + kLowRankChunk - 1) / kLowRankChunk;
    pool_.parallel_for(low_rank_.place_count() * chunks, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t item = begin; item < end; ++item) {
        const auto place = static_cast<int>(item / chunks);
        const int64_t first = item % chunks * kLowRankChunk;
        const int64_t count = rows - first < kLowRankChunk ? rows - first : kLowRankChunk;
        const LowRankWorkspace::Product& product = low_rank_.product_at(place);
        add_low_rank_part(product.matrix,
                          product.factors + int64_t{place} * low_rank_.rank_stride(), first,
                          static_cast<int>(count), out + low_rank_.row_at(place) * stride + first);
      }
    });
  }

 private:
  void base_experts(float* out, const float* x, const ExpertChoice* choices,
                    const ExpertWeights& weights, const MoeShape& shape, int tokens,
                    ExpertAdditions* additions) {
    const Experts& gate = weights.gate;
    if (is_tiled(gate.format)) {
      return tiles_->experts(out, x, choices, weights, shape, tokens, additions);
    }
    const Experts& down = weights.down;
    const int k = shape.experts_per_token;
    groups_.group(choices, tokens, k, gate.experts, shape.dealt);
    const int64_t assignments = int64_t{tokens} * k;
    CHECK(shape.exchange != nullptr || gate.cols == down.rows);
    at_ = room_.for_experts(tokens, assignments, gate.cols, down.cols);

    pool_.parallel_for(tokens, 8, [&](int64_t begin, int64_t end, int) {
      for (int64_t t = begin; t < end; ++t) {
        arrange(at_.inputs + t * gate.cols, x + t * gate.cols, gate.cols, gate.format);
      }
    });
    const auto own = static_cast<int64_t>(groups_.assignments().size());
    for (int64_t i = 0; i < own; ++i) {
      at_.rows[i] = at_.inputs + int64_t{groups_.assignments()[i] / k} * gate.cols;
    }
    expert_up(weights, shape, additions);
    if (additions != nullptr) additions->multiply_activations();
    if (shape.exchange != nullptr) {
      const ColumnExchange::Array activations{at_.activations, kActivationChunk * sizeof(float)};
      shape.exchange->gather(&activations, 1, assignments);
    }
    for (int64_t i = 0; i < own; ++i) {
      at_.rows[i] = at_.activations + int64_t{groups_.assignments()[i]} * down.cols;
    }
    expert_down(down);
    if (shape.dealt != nullptr) shape.dealt->gather(at_.outputs, down.rows, assignments);
    pool_.parallel_for(tokens, 8, [&](int64_t begin, int64_t end, int) {
      for (int64_t t = begin; t < end; ++t) {
        for (int64_t i = t * k; additions != nullptr && i < (t + 1) * k; ++i) {
          if (additions->adds_to(i)) additions->add_to_down(i, at_.outputs + i * down.rows);
        }
        mix(out + t * down.rows, choices, t, k, down.rows);
      }
    });
  }

  // body<T>(), where T is the type of the cache's elements.
  template <typename Body>
  static void with_element(const KvLayer& cache, const Body& body) {
    CHECK(cache.block_tokens == kBlockKeys && cache.head_size <= kHeadSizeMax);
    with_type(cache.dtype, body);
  }

  template <typename Body>
  static void with_type(tensor::DType dtype, const Body& body) {
    switch (dtype) {
      case tensor::DType::kF32:
        return body.template operator()<float>();
      case tensor::DType::kF16:
        return body.template operator()<F16>();
      case tensor::DType::kBf16:
        return body.template operator()<Bf16>();
      case tensor::DType::kF8E4m3:
        return body.template operator()<F8>();
      default:
        CHECK(dtype == tensor::DType::kI8);
        return body.template operator()<int8_t>();
    }
  }

  // (tokens, cols), in the order in which the matrix' columns lie.
  const float* sorted_inputs(const float* x, const Matrix& matrix, int tokens) {
    float* const sorted = room_.for_reordered(int64_t{tokens} * matrix.cols);
    pool_.parallel_for(tokens, 8, [&](int64_t begin, int64_t end, int) {
      reorder_inputs(sorted, x, matrix, begin, end);
    });
    return sorted;
  }

  // out[t] = rows [first, first + row_count) of x[t]
  static void head_products(float* out, int64_t out_stride, const float* x, int64_t x_stride,
                            const StoredMatrix& weights, int64_t first, int row_count, int tokens) {
    for (int block = 0; block < tokens; block += kTokenBlock) {
      const int count = tokens - block < kTokenBlock ? tokens - block : kTokenBlock;
      const float* rows[kTokenBlock];
      for (int64_t t = 0; t < count; ++t) rows[t] = x + (block + t) * x_stride;
      const auto emit = [&](int64_t row, int t, float sum) {
        out[(block + t) * out_stride + row - first] = sum;
      };
      dot_plain(weights, first, first + row_count, rows, count, emit);
    }
  }

  // out[t] = sum over r of x[t][r] * row first + r
  static void add_scaled_rows(float* out, int64_t out_stride, const float* x, int64_t x_stride,
                              const StoredMatrix& weights, int64_t first, int row_count,
                              int tokens) {
    const int cols = static_cast<int>(weights.cols);
    for (int64_t t = 0; t < tokens; ++t) {
      for (int c = 0; c < cols; ++c) out[t * out_stride + c] = 0.0f;
    }
    alignas(64) float row[kLatentWidthMax];
    for (int r = 0; r < row_count; ++r) {
      read_weight_row(weights, first + r, row);
      for (int64_t t = 0; t < tokens; ++t) {
        const F factor = Vector::set1(x[t * x_stride + r]);
        float* const to = out + t * out_stride;
        for (int c = 0; c < cols; c += Vector::kLanes) {
          Vector::store(to + c, Vector::fma(factor, Vector::load(row + c), Vector::load(to + c)));
        }
      }
    }
  }

  template <typename T>
  void attend_latent_rows(float* out, const float* q, const KvLayer& cache,
                          const LatentShape& shape, const SequenceRows* sequences,
                          int sequence_count) {
    CHECK(cache.latent && cache.block_tokens == kBlockKeys && shape.width() == cache.head_size);
    CHECK(shape.width() <= kLatentWidthMax);
    int64_t row_count = 0;
    for (int s = 0; s < sequence_count; ++s) row_count += sequences[s].row_count;
    const int* sequence_of_row = room_.sequence_of_rows(sequences, sequence_count);
    const int chunks = (shape.heads + kLatentHeads - 1) / kLatentHeads;
    pool_.parallel_for(row_count * chunks, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t item = begin; item < end; ++item) {
        const int64_t index = item / chunks;
        const SequenceRows& rows = sequences[sequence_of_row[index]];
        const int64_t row = sequences[0].row_begin + index;
        const int first = static_cast<int>(item % chunks) * kLatentHeads;
        const int left = shape.heads - first;
        const int64_t vector = row * shape.heads + first;
        LatentAttention<T> attention(out + vector * shape.rank, q + vector * shape.width(), shape,
                                     left < kLatentHeads ? left : kLatentHeads);
        const int last = rows.start + static_cast<int>(row - rows.row_begin);
        for (int at = 0; at <= last; at += kLatentSpan) {
          const int rest = last + 1 - at;
          attention.accumulate(cache, rows.blocks, at, rest < kLatentSpan ? rest : kLatentSpan);
        }
        attention.finish();
      }
    });
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
    int64_t row_count = 0;
    for (int s = 0; s < sequence_count; ++s) row_count += sequences[s].row_count;
    const int* sequence_of_row = room_.sequence_of_rows(sequences, sequence_count);
    const int64_t items = row_count * shape.kv_heads;
    // A row of q, and what it sees in one kv head.
    const auto item_of = [&](int64_t item) {
      const int64_t index = item / shape.kv_heads;
      const SequenceRows& rows = sequences[sequence_of_row[index]];
      const int64_t row = sequences[0].row_begin + index;
      const int position = rows.key_count > 0 ? rows.key_count - 1
                                              : rows.start + static_cast<int>(row - rows.row_begin);
      const int first =
          shape.window > 0 && position >= shape.window ? position - shape.window + 1 : 0;
      return AttentionItem{.row = row,
                           .first = first,
                           .last = position,
                           .reach = {.table = rows.blocks,
                                     .first = first / kBlockKeys,
                                     .last = position / kBlockKeys,
                                     .kv_head = static_cast<int>(item % shape.kv_heads)}};
    };
    pool_.parallel_for(items, 1, [&](int64_t begin, int64_t end, int) {
      AttentionItem now = item_of(begin);
      for (int64_t item = begin; item < end; ++item) {
        const AttentionItem next = item + 1 < items ? item_of(item + 1) : now;
        attend_item<T>(out, q, stride, cache, shape, now, next.reach);
        now = next;
      }
    });
  }

  // Keys [first, last] of one query row, and the blocks in which one kv head has them. At position
  // 20 with a window of 8: keys 13 to 20, entries 0 and 1 of the table, of span 0 its keys 13
  // to 20.
  struct AttentionItem {
    int64_t row;
    int first;
    int last;
    KvRange reach;
  };

  // All query heads that share its kv head. `after`: what is attended to next.
  template <typename T>
  static void attend_item(float* out, const float* q, int64_t stride, const KvLayer& cache,
                          const AttentionShape& shape, const AttentionItem& item,
                          const KvRange& after) {
    const int group = shape.heads / shape.kv_heads;
    for (int head = 0; head < group;) {
      const int first = item.reach.kv_head * group + head;
      const int left = group - head;
      if (left >= Vector::kHeads) {
        attend<Vector::kHeads, T>(out, q, stride, cache, shape, item, after, first);
        head += Vector::kHeads;
      } else if (left >= 4) {
        attend<4, T>(out, q, stride, cache, shape, item, after, first);
        head += 4;
      } else {
        attend<1, T>(out, q, stride, cache, shape, item, after, first);
        head += 1;
      }
    }
  }

  // kGroup of them, from first_head on.
  template <int kGroup, typename T>
  static void attend(float* out, const float* q, int64_t stride, const KvLayer& cache,
                     const AttentionShape& shape, const AttentionItem& item, const KvRange& after,
                     int first_head) {
    const int64_t head = int64_t{first_head} * shape.head_size;
    OnlineSoftmax<kGroup, T> attention(out + item.row * shape.heads * shape.head_size + head,
                                       q + item.row * stride + head, shape, first_head);
    for (int span = item.first / kSpan; span <= item.last / kSpan; ++span) {
      const int begin = span * kSpan;
      const int low = item.first > begin ? item.first - begin : 0;
      const int high = item.last - begin < kSpan - 1 ? item.last - begin : kSpan - 1;
      attention.accumulate_block(cache, item.reach, after, span, low, high);
    }
    attention.finish();
  }

  // The k largest, descending, the lower index among equals; then softmax over them. The best two
  // of the logits 1 4 2 4: {0}, {1, 0}, {1, 2}, where 2 took the place of 0, and {1, 3}, where 3
  // took that of 2; weights of 0.5 each.
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

  // body(rows) for a matrix that lies row by row, in any format but MXFP4 and GGUF's other blocks.
  template <typename Body>
  static void with_plain_rows(const StoredMatrix& matrix, const Body& body) {
    const int64_t cols = matrix.cols;
    const void* const data = matrix.data;
    switch (matrix.format) {
      case Format::kF32:
        return body(PlainRows<float>{static_cast<const float*>(data), cols});
      case Format::kF16:
        return body(PlainRows<F16>{static_cast<const F16*>(data), cols});
      case Format::kQ8_0:
        return body(Q8Rows{static_cast<const uint8_t*>(data), cols / 32});
      case Format::kF8Blocks:
        return body(F8BlockRows{static_cast<const F8*>(data), matrix.block_scales, cols});
      case Format::kCompactBf16:
        return body(CompactRows{static_cast<const uint8_t*>(data),
                                kernels::row_bytes(matrix.format, cols)});
      default:
        CHECK(matrix.format == Format::kBf16);
        return body(PlainRows<Bf16>{static_cast<const Bf16*>(data), cols});
    }
  }

  // Rows [begin, end) of such a matrix.
  template <typename Emit>
  static void dot_plain(const StoredMatrix& matrix, int64_t begin, int64_t end,
                        const float* const* x, int tokens, const Emit& emit) {
    if (is_ggml_blocks(matrix.format)) return dot_ggml_rows(matrix, begin, end, x, tokens, emit);
    if (matrix.format == Format::kCompactBf16) {
      return dot_compact_rows(matrix, begin, end, x, tokens, emit);
    }
    const bool has_rest = matrix.cols % 32 != 0;
    const int blocks = static_cast<int>(matrix.cols / 32);
    with_plain_rows(matrix, [&](const auto& rows) {
      if constexpr (requires { rows.rest(begin, x[0]); }) {
        if (has_rest) return dot_uneven_rows(rows, begin, end, blocks, x, tokens, emit);
      }
      dot_rows(rows, begin, end, blocks, x, tokens, emit);
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

  // at_.activations[assignment] = glu(gate x + bias, up x + bias), in the order down reads them.
  void expert_up(const ExpertWeights& weights, const MoeShape& shape,
                 const ExpertAdditions* additions) {
    const int width = weights.down.cols;
    const bool shared = shape.exchange != nullptr;
    const int offset = shared ? shape.exchange->first() * kActivationChunk : 0;
    const int activation_count = shared ? shape.exchange->count() * kActivationChunk : width;
    const int chunks = (activation_count + kActivationChunk - 1) / kActivationChunk;
    const int64_t tasks = static_cast<int64_t>(groups_.active().size()) * chunks;
    pool_.parallel_for(tasks, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t task = begin; task < end; ++task) {
        const ActiveExpert& active = groups_.active()[task / chunks];
        const int first = static_cast<int>(task % chunks) * kActivationChunk;
        const int left = activation_count - first;
        const int count = left < kActivationChunk ? left : kActivationChunk;
        for (int token = 0; token < active.count; token += kTokenBlock) {
          const int tokens =
              active.count - token < kTokenBlock ? active.count - token : kTokenBlock;
          float gate[kTokenBlock][kActivationChunk];
          float up[kTokenBlock][kActivationChunk];
          if (count < kActivationChunk) {  // what no row of weights fills
            __builtin_memset(gate, 0, sizeof gate);
            __builtin_memset(up, 0, sizeof up);
          }
          gate_and_up(weights, active.expert, {first, count}, at_.rows + active.begin + token,
                      tokens, gate, up);
          for (int t = 0; t < tokens; ++t) {
            const int64_t assignment = groups_.assignments()[active.begin + token + t];
            const bool adds = additions != nullptr && additions->adds_to(assignment);
            if (adds) {
              additions->add_to_gate_and_up(assignment, first, count, gate[t], up[t]);
            }
            glu_chunk(gate[t], up[t], shape.glu);
            if (adds) additions->keep_activations(assignment, first, count, gate[t]);
            arrange(at_.activations + assignment * width + offset + first, gate[t], count,
                    weights.down.format);
          }
        }
      }
    });
  }

  static const float* bias_of(const Experts& experts, int expert) {
    return experts.bias != nullptr ? experts.bias + int64_t{expert} * experts.rows : nullptr;
  }

  // Activations of an expert, kActivationChunk but for the last.
  struct Chunk {
    int first;
    int count;
  };

  // A chunk's gates and ups, with their biases.
  void gate_and_up(const ExpertWeights& weights, int expert, Chunk chunk, const float* const* x,
                   int tokens, float (*gate)[kActivationChunk],
                   float (*up)[kActivationChunk]) const {
    const Experts& gates = weights.gate;
    const float* bias = bias_of(gates, expert);
    const int first = chunk.first;
    if (weights.interleaved()) {
      const auto emit = [&](int64_t row, int t, float sum) {
        const int i = static_cast<int>(row / 2) - first;
        (row % 2 == 0 ? gate : up)[t][i] = sum;
      };
      dot_expert(gates, expert, 2 * first, 2 * (first + chunk.count), x, tokens, emit);
      add_bias(bias, {2 * first, chunk.count}, 2, tokens, gate);
      add_bias(bias, {2 * first + 1, chunk.count}, 2, tokens, up);
      return;
    }
    const Experts& ups = weights.up;
    const float* up_bias = bias_of(ups, expert);
    for (const bool is_gate : {true, false}) {
      float(*to)[kActivationChunk] = is_gate ? gate : up;
      const float* add = is_gate ? bias : up_bias;
      const auto emit = [&](int64_t row, int t, float sum) { to[t][row - first] = sum; };
      dot_expert(is_gate ? gates : ups, expert, first, first + chunk.count, x, tokens, emit);
      add_bias(add, chunk, 1, tokens, to);
    }
  }

  // Each row of `chunks` += bias[first], bias[first + step], ...; null: none.
  static void add_bias(const float* bias, Chunk chunk, int step, int tokens,
                       float (*chunks)[kActivationChunk]) {
    if (bias == nullptr) return;
    for (int t = 0; t < tokens; ++t) {
      for (int i = 0; i < chunk.count; ++i) chunks[t][i] += bias[chunk.first + i * step];
    }
  }

  // at_.outputs[assignment] = down a + bias
  void expert_down(const Experts& matrix) {
    const int chunks = (matrix.rows + kRowChunk - 1) / kRowChunk;
    const int64_t tasks = static_cast<int64_t>(groups_.active().size()) * chunks;
    pool_.parallel_for(tasks, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t task = begin; task < end; ++task) {
        const ActiveExpert& active = groups_.active()[task / chunks];
        const int64_t first = (task % chunks) * kRowChunk;
        const int64_t last = first + kRowChunk < matrix.rows ? first + kRowChunk : matrix.rows;
        const float* bias = bias_of(matrix, active.expert);
        const auto output = [&](int t) {
          return at_.outputs + int64_t{groups_.assignments()[active.begin + t]} * matrix.rows;
        };
        const auto emit = [&](int64_t row, int t, float sum) { output(t)[row] = sum; };
        dot_expert(matrix, active.expert, first, last, at_.rows + active.begin, active.count, emit);
        for (int t = 0; bias != nullptr && t < active.count; ++t) {
          float* const to = output(t);
          for (int64_t row = first; row < last; ++row) to[row] += bias[row];
        }
      }
    });
  }

  // out += the chosen experts' outputs, weighted, best first.
  void mix(float* out, const ExpertChoice* choices, int64_t token, int k, int rows) const {
    int i = 0;
    for (; i + Vector::kLanes <= rows; i += Vector::kLanes) {
      F sum = Vector::zero();
      for (int j = 0; j < k; ++j) {
        const int64_t assignment = token * k + j;
        sum = Vector::fma(Vector::set1(choices[assignment].weight),
                          Vector::load(at_.outputs + assignment * rows + i), sum);
      }
      Vector::store(out + i, Vector::add(Vector::load(out + i), sum));
    }
    for (; i < rows; ++i) {
      float sum = 0.0f;
      for (int j = 0; j < k; ++j) {
        const int64_t assignment = token * k + j;
        sum = __builtin_fmaf(choices[assignment].weight, at_.outputs[assignment * rows + i], sum);
      }
      out[i] += sum;
    }
  }

  base::ThreadPool& pool_;
  const std::unique_ptr<TileKernels> tiles_;
  const std::string_view name_;
  float powers_[256];

  // Working memory for the largest step: see reserve.
  StepWorkspace room_;
  StepWorkspace::ForExperts at_{};
  ExpertGroups groups_;
  LowRankWorkspace low_rank_;
};
