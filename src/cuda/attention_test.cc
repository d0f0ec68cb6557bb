// A device's attention against the reference kernels, of each type of keys and values: decode,
// prefill, windows, heads that share keys in every number, blocks in any order; and the same bits
// whether one warp sees all of a row's keys or many share them. fp8 keys and values are coded by
// the host (kernels/kv_quantization.h), and the reference sees what their codes mean.
#include <algorithm>

#include "base/thread_pool.h"
#include "cuda/step_arrays.h"
#include "cuda/test_device.h"
#include "kernels/kv_quantization.h"
#include "kernels/reference/reference_kernels.h"

namespace pelton::cuda {
namespace {

using kernels::dequantize_kv;
using kernels::Kernels;
using kernels::kv_scale;
using kernels::KvLayer;
using kernels::make_reference_kernels;
using kernels::SequenceRows;

struct Model {
  int heads;
  int kv_heads;
  int head_size;
  int window;  // 0: none
  KvType type = KvType::kF16;
};

Model with(KvType type, Model model) {
  model.type = type;
  return model;
}

struct Rows {
  int start;
  int count;
};

// Sequences with their keys and values, on the device and as the reference keeps them.
class AttentionCase {
 public:
  AttentionCase(Random& random, const Model& model, const std::vector<Rows>& sequences)
      : model_(model), sequences_(sequences) {
    for (const Rows& rows : sequences) row_count_ += rows.count;
    scatter_blocks(random);
    fill_cache(random);
    q_ = random.floats(int64_t{row_count_} * model.heads * model.head_size, 1.0f);
    for (float& x : q_) x = number_of(bits_of(x));
    sinks_ = random.floats(model.heads, 1.0f);
  }

  // What queries, keys and values (but of fp8) are kept in.
  uint16_t bits_of(float x) const {
    return model_.type == KvType::kF16 ? tensor::float_to_f16(x) : tensor::float_to_bf16(x);
  }
  float number_of(uint16_t bits) const {
    return model_.type == KvType::kF16 ? tensor::f16_to_float(bits) : tensor::bf16_to_float(bits);
  }

  // The key or value of a token, of an fp8 cache, becomes one that could not be coded.
  void break_vector(int position, bool is_value) {
    for (int h = 0; h < model_.kv_heads; ++h) {
      uint8_t* const head = head_at(tables_[0][static_cast<size_t>(position / kBlockTokens)], h);
      const uint16_t scale = 0x7FC0;
      const int slot = position % kBlockTokens + (is_value ? kBlockTokens : 0);
      std::memcpy(head + 2 * model_.head_size * kBlockTokens + 2 * slot, &scale, 2);
      for (int i = 0; i < model_.head_size; ++i) *code_at(head, position, i, is_value) = 0;
    }
  }

  // divided: rows that are alone share their spans among warps.
  std::vector<float> run(bool divided) { return run(sequences_, 0, divided); }

  // Rows [first, first + count) of the first sequence as a step of their own.
  std::vector<float> run_rows(int first, int count, bool divided) {
    return run({{sequences_[0].start + first, count}}, first, divided);
  }

  std::vector<float> exact(Kernels& reference) const {
    std::vector<SequenceRows> rows;
    int begin = 0;
    for (size_t s = 0; s < sequences_.size(); ++s) {
      rows.push_back({begin, sequences_[s].count, sequences_[s].start, tables_[s].data()});
      begin += sequences_[s].count;
    }
    std::vector<float> copy(host_cache_);
    const KvLayer layer{.data = copy.data(),
                        .dtype = tensor::DType::kF32,
                        .block_tokens = kBlockTokens,
                        .kv_heads = model_.kv_heads,
                        .head_size = model_.head_size};
    std::vector<float> out(q_.size());
    reference.attention(out.data(), q_.data(), int64_t{model_.heads} * model_.head_size, layer,
                        {.heads = model_.heads,
                         .kv_heads = model_.kv_heads,
                         .head_size = model_.head_size,
                         .window = model_.window,
                         .sinks = sinks_.data(),
                         .scale = scale()},
                        rows.data(), static_cast<int>(rows.size()));
    return out;
  }

 private:
  // q's rows begin at first_row.
  std::vector<float> run(const std::vector<Rows>& step_rows, int first_row, bool divided) {
    int32_t row_count = 0;
    for (const Rows& rows : step_rows) row_count += rows.count;
    const ModelShape shape{.heads = model_.heads,
                           .kv_heads = model_.kv_heads,
                           .head_size = model_.head_size,
                           .vocab = 1,
                           .windows = {model_.window}};
    const Limits limits{.rows_max = row_count,
                        .sequences_max = static_cast<int32_t>(step_rows.size()),
                        .logit_rows_max = 0,
                        .positions_max = 1 << 20,
                        .kv_blocks = {block_count_},
                        .partial_bytes_max = divided ? 64 << 20 : 0};
    StepArrays arrays(shape, limits);
    std::vector<StepSequence> sequences;
    for (size_t s = 0; s < step_rows.size(); ++s) {
      sequences.push_back({step_rows[s].start, step_rows[s].count, {tables_[s].data()}});
    }
    const std::vector<int32_t> tokens(static_cast<size_t>(row_count), 0);
    const Step step{tokens.data(), row_count, sequences.data(), limits.sequences_max, nullptr, 0};
    const char* const wrong = arrays.set(step);
    CHECK(wrong == nullptr, wrong == nullptr ? "" : wrong);
    const StepLayout layout = arrays.layout();
    const DeviceBuffer<uint8_t> plan(
        std::vector<uint8_t>(arrays.bytes().begin(), arrays.bytes().end()));
    const DeviceBuffer<uint8_t> cache(cache_);
    std::vector<uint16_t> q_bits;
    const int columns = model_.heads * model_.head_size;
    for (int i = 0; i < row_count * columns; ++i) {
      q_bits.push_back(bits_of(q_[static_cast<size_t>(first_row * columns + i)]));
    }
    const DeviceBuffer<uint16_t> q(q_bits);
    const DeviceBuffer<float> sinks(sinks_);
    const int64_t stride = padded_columns(model_.heads * model_.head_size);
    const DeviceBuffer<Bf16Bits> out(row_count * stride);
    const int32_t spans = arrays.sizes().spans;
    const DeviceBuffer<float> partials(
        std::max<int64_t>(1, int64_t{row_count} * model_.heads * spans * (model_.head_size + 2)));
    const Attention args{.out = out.data(),
                         .q = q.data(),
                         .cache = {cache.data(), model_.kv_heads, model_.head_size, model_.type},
                         .tables = at<int32_t>(plan, layout.tables),
                         .items = at<AttentionItem>(plan, layout.items[0]),
                         .sinks = sinks.data(),
                         .partials = partials.data(),
                         .positions = at<int32_t>(plan, layout.positions),
                         .live = at<int32_t>(plan, layout.live),
                         .partial_rows = at<int32_t>(plan, layout.partial_rows),
                         .rows_max = arrays.sizes().rows,
                         .items_max = arrays.sizes().items[0],
                         .spans_max = model_.window > 0 ? 0 : spans,
                         .heads = model_.heads,
                         .window = model_.window,
                         .scale = scale()};
    device().attention(&args);
    std::vector<float> values;
    const std::vector<Bf16Bits> bits = out.get();
    for (int row = 0; row < row_count; ++row) {
      for (int i = 0; i < columns; ++i) {
        values.push_back(tensor::bf16_to_float(bits[static_cast<size_t>(row * stride + i)]));
      }
    }
    return values;
  }

  float scale() const { return 1.0f / std::sqrt(static_cast<float>(model_.head_size)); }

  template <typename T>
  static const T* at(const DeviceBuffer<uint8_t>& plan, int64_t offset) {
    return reinterpret_cast<const T*>(plan.data() + offset);
  }

  // Each sequence's blocks anywhere. What a window no longer sees has none.
  void scatter_blocks(Random& random) {
    for (const Rows& rows : sequences_) {
      const int blocks = (rows.start + rows.count - 1) / kBlockTokens + 1;
      tables_.emplace_back(static_cast<size_t>(blocks), -1);
      block_count_ += blocks;
    }
    std::vector<int32_t> numbers(static_cast<size_t>(block_count_));
    for (int i = 0; i < block_count_; ++i) numbers[static_cast<size_t>(i)] = i;
    for (size_t i = numbers.size(); i > 1; --i) {
      std::swap(numbers[i - 1], numbers[static_cast<size_t>(random.below(static_cast<int>(i)))]);
    }
    size_t next = 0;
    for (size_t s = 0; s < tables_.size(); ++s) {
      const int seen = model_.window == 0
                           ? 0
                           : std::max(0, sequences_[s].start - model_.window + 1) / kBlockTokens;
      for (size_t b = 0; b < tables_[s].size(); ++b) {
        const int32_t number = numbers[next++];
        if (static_cast<int>(b) >= seen) tables_[s][b] = number;
      }
    }
  }

  // Places that no sequence has written hold NaN, or codes and scales of NaN.
  void fill_cache(Random& random) {
    const int64_t heads = int64_t{block_count_} * model_.kv_heads;
    const int64_t vectors = heads * 2 * kBlockTokens;
    cache_.assign(static_cast<size_t>(heads * kv_head_bytes(model_.type, model_.head_size)), 0xFF);
    host_cache_.assign(static_cast<size_t>(vectors * model_.head_size), 0.0f);
    for (size_t s = 0; s < tables_.size(); ++s) {
      for (int p = 0; p < sequences_[s].start + sequences_[s].count; ++p) {
        const int32_t block = tables_[s][static_cast<size_t>(p / kBlockTokens)];
        if (block < 0) continue;
        for (int h = 0; h < model_.kv_heads; ++h) {
          std::vector<float> key = random.floats(model_.head_size, 1.0f);
          key[3] *= 8;
          put(block, h, p, key, false);
          // Scales that differ a lot from token to token.
          put(block, h, p, random.floats(model_.head_size, p % 3 == 0 ? 1.0f : 0.2f), true);
        }
      }
    }
  }

  void put(int32_t block, int head, int position, const std::vector<float>& x, bool is_value) {
    uint8_t* const to = head_at(block, head);
    const int slot = position % kBlockTokens;
    const int size = model_.head_size;
    const uint16_t scale_bits = kv_scale(x.data(), size, tensor::DType::kF8E4m3);
    const float scale = tensor::bf16_to_float(scale_bits);
    if (model_.type == KvType::kFp8) {
      const int index = slot + (is_value ? kBlockTokens : 0);
      std::memcpy(to + 2 * size * kBlockTokens + 2 * index, &scale_bits, 2);
    }
    for (int i = 0; i < size; ++i) {
      const float wanted = x[static_cast<size_t>(i)];
      float held = 0;
      if (model_.type == KvType::kFp8) {
        const uint8_t code = kernels::quantize_kv(wanted, scale, tensor::DType::kF8E4m3);
        *code_at(to, position, i, is_value) = code;
        held = dequantize_kv(code, scale, tensor::DType::kF8E4m3);
      } else {
        const uint16_t bits = bits_of(wanted);
        // The device: keys by token, values by dimension; the reference the other way round.
        const int at = is_value ? (size + i) * kBlockTokens + slot : slot * size + i;
        std::memcpy(to + 2 * at, &bits, 2);
        held = number_of(bits);
      }
      const int64_t base = (int64_t{block} * model_.kv_heads + head) * 2 * size * kBlockTokens;
      const int at = is_value ? (kBlockTokens + slot) * size + i : i * kBlockTokens + slot;
      host_cache_[static_cast<size_t>(base + at)] = held;
    }
  }

  uint8_t* head_at(int32_t block, int head) {
    const int64_t bytes = kv_head_bytes(model_.type, model_.head_size);
    return cache_.data() + (int64_t{block} * model_.kv_heads + head) * bytes;
  }

  uint8_t* code_at(uint8_t* head, int position, int element, bool is_value) const {
    const int slot = position % kBlockTokens;
    const int size = model_.head_size;
    return head + (is_value ? size * kBlockTokens + value_code_place(element, slot)
                            : slot * size + element);
  }

  const Model model_;
  const std::vector<Rows> sequences_;
  int row_count_ = 0;
  int32_t block_count_ = 0;
  std::vector<std::vector<int32_t>> tables_;
  std::vector<uint8_t> cache_;
  std::vector<float> host_cache_;
  std::vector<float> q_;
  std::vector<float> sinks_;
};

class DeviceAttentionTest : public ::testing::Test {
 protected:
  Random random_;
  base::ThreadPool pool_{{.threads = 1, .pin = false}};
  std::unique_ptr<Kernels> reference_ = make_reference_kernels(pool_);
};

// A bf16 result, and but for float16 bf16 weights of the values: some 2^-9 each.
constexpr double tolerance_of(KvType type) {
  return type == KvType::kF16 ? 2.5e-3 : 6e-3;
}

TEST_F(DeviceAttentionTest, IsTheReferences) {
  const Model models[] = {{8, 1, 64, 0}, {8, 1, 64, 128}, {4, 2, 32, 0}, {4, 2, 32, 16},
                          {4, 4, 32, 0}, {16, 1, 64, 24}, {6, 2, 32, 0}};
  const std::vector<Rows> steps[] = {{{0, 1}},                        // nothing before
                                     {{0, 19}},                       // a prompt
                                     {{127, 1}, {128, 1}, {300, 1}},  // decodes around a span's end
                                     {{130, 5}, {15, 1}, {250, 17}}};  // mixed
  for (const KvType type : {KvType::kF16, KvType::kBf16, KvType::kFp8}) {
    for (const Model& model : models) {
      for (const std::vector<Rows>& step : steps) {
        AttentionCase one(random_, with(type, model), step);
        const std::vector<float> exact = one.exact(*reference_);
        const std::vector<float> whole = one.run(false);
        EXPECT_LE(relative_error(whole, exact), tolerance_of(type))
            << kv_type_name(type) << ", " << model.heads << "/" << model.kv_heads << " heads of "
            << model.head_size << ", window " << model.window << ", start " << step[0].start
            << " + " << step[0].count;
        EXPECT_TRUE(same_bits(one.run(true), whole));
      }
    }
  }
}

// Alone, in a chunk, first or last of it: a row's bits are the same.
TEST_F(DeviceAttentionTest, ARowsBitsDoNotDependOnItsChunk) {
  for (const Model& model : {Model{8, 1, 64, 0}, Model{8, 1, 64, 128}, Model{4, 2, 32, 16},
                             Model{8, 1, 64, 0, KvType::kBf16}, Model{8, 1, 64, 0, KvType::kFp8},
                             Model{4, 2, 32, 16, KvType::kFp8}}) {
    const int count = 23;
    AttentionCase one(random_, model, {{random_.below(200) + 120, count}});
    const std::vector<float> whole = one.run(false);
    const int columns = model.heads * model.head_size;
    for (const int each : {1, 3, 8}) {
      for (int first = 0; first + each <= count; first += each) {
        const std::vector<float> part(whole.begin() + first * columns,
                                      whole.begin() + (first + each) * columns);
        EXPECT_TRUE(same_bits(one.run_rows(first, each, true), part)) << first << " + " << each;
      }
    }
  }
}

// What could not be coded is NaN to the rows that see it, and nothing to those before it.
TEST_F(DeviceAttentionTest, ABrokenFp8VectorIsSeenByThoseBehindItAlone) {
  const Model model{8, 1, 64, 0, KvType::kFp8};
  const int start = 120;
  const int count = 23;
  const int columns = model.heads * model.head_size;
  for (const bool is_value : {false, true}) {
    AttentionCase one(random_, model, {{start, count}});
    const std::vector<float> whole = one.run(false);
    const int broken = random_.below(count);
    one.break_vector(start + broken, is_value);
    const std::vector<float> after = one.run(false);
    const auto at = static_cast<size_t>(broken * columns);
    EXPECT_EQ(std::memcmp(after.data(), whole.data(), at * sizeof(float)), 0);
    EXPECT_TRUE(std::all_of(after.begin() + static_cast<ptrdiff_t>(at), after.end(),
                            [](float x) { return std::isnan(x); }))
        << (is_value ? "value " : "key ") << broken;
  }
}

// Each code but NaN's, as a value that alone is seen: exactly what the host reads in it.
TEST_F(DeviceAttentionTest, EveryCodeIsWhatTheHostReads) {
  const int size = 64;
  for (int first = 0; first < 256; first += size) {
    std::vector<uint8_t> block(static_cast<size_t>(kv_head_bytes(KvType::kFp8, size)), 0xFF);
    std::fill_n(block.begin(), size, uint8_t{0x38});  // the key: ones
    const uint16_t scales[2] = {0x3F80, 0x4180};      // 1, 16
    std::memcpy(block.data() + 2 * size * kBlockTokens, &scales[0], 2);
    std::memcpy(block.data() + 2 * size * kBlockTokens + 2 * kBlockTokens, &scales[1], 2);
    for (int i = 0; i < size; ++i) {
      block[static_cast<size_t>(size * kBlockTokens + value_code_place(i, 0))] =
          static_cast<uint8_t>(first + i);
    }
    const DeviceBuffer<uint8_t> cache(block);
    const DeviceBuffer<Bf16Bits> q(std::vector<Bf16Bits>(size, 0x3F80));
    const DeviceBuffer<float> sinks(std::vector<float>{-INFINITY});
    const DeviceBuffer<int32_t> zero(std::vector<int32_t>{0});
    const DeviceBuffer<int32_t> live(std::vector<int32_t>{1});
    const DeviceBuffer<AttentionItem> items(std::vector<AttentionItem>{{0, 1, 0, 0, 0, 1, -1}});
    const DeviceBuffer<Bf16Bits> out(size);
    const Attention args{.out = out.data(),
                         .q = q.data(),
                         .cache = {cache.data(), 1, size, KvType::kFp8},
                         .tables = zero.data(),
                         .items = items.data(),
                         .sinks = sinks.data(),
                         .partials = nullptr,
                         .positions = zero.data(),
                         .live = live.data(),
                         .partial_rows = zero.data(),
                         .rows_max = 1,
                         .items_max = 1,
                         .spans_max = 0,
                         .heads = 1,
                         .window = 0,
                         .scale = 0.125f};
    device().attention(&args);
    const std::vector<Bf16Bits> got = out.get();
    for (int i = 0; i < size; ++i) {
      const auto code = static_cast<uint8_t>(first + i);
      if ((code & 0x7F) == 0x7F) continue;
      EXPECT_EQ(tensor::bf16_to_float(got[static_cast<size_t>(i)]),
                dequantize_kv(code, 16, tensor::DType::kF8E4m3))
          << "code " << int{code};
    }
  }
}

}  // namespace
}  // namespace pelton::cuda
