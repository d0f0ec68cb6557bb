// A device's products against the reference kernels: dense ones, queries with keys and values,
// experts; and the same bits for a row whatever rows are beside it.
#include <algorithm>
#include <span>

#include "base/thread_pool.h"
#include "cuda/kernel_configs.h"
#include "cuda/test_device.h"
#include "kernels/reference/reference_kernels.h"
#include "kernels/tiles.h"

namespace pelton::cuda {
namespace {

using kernels::Format;

struct Shape {
  int rows;
  int columns;
};

class ProductsTest : public ::testing::Test {
 protected:
  Random random_;
  base::ThreadPool pool_{{.threads = 1, .pin = false}};
  std::unique_ptr<kernels::Kernels> reference_ = kernels::make_reference_kernels(pool_);
};

// A random matrix with bias, in device order and as the reference reads it.
struct DenseWeights {
  DenseWeights(Random& random, const TiledShape& shape)
      : shape_(shape),
        values(rounded(random.floats(int64_t{shape.rows} * shape.columns, 0.1f))),
        bias(random.floats(shape.rows, 0.5f)),
        tiles(bf16_tiles(shape, values)),
        device_bias(bias) {}

  Weights weights() const {
    return {.data = tiles.data(),
            .bias = device_bias.data(),
            .rows = shape_.rows,
            .columns = shape_.columns};
  }
  kernels::Linear linear() const {
    return {{values.data(), shape_.rows, shape_.columns, Format::kF32}, bias.data()};
  }

  TiledShape shape_;
  std::vector<float> values;
  std::vector<float> bias;
  DeviceBuffer<uint8_t> tiles;
  DeviceBuffer<float> device_bias;
};

std::vector<float> run_linear(const DenseWeights& weights, const std::vector<float>& x,
                              int rows_max, const KernelConfig& config = {}) {
  const int columns = weights.shape_.columns;
  const auto rows = static_cast<int>(x.size()) / columns;
  const DeviceBuffer<Bf16Bits> input(padded_rows(x, columns));
  const DeviceBuffer<int32_t> live(std::vector<int32_t>{rows});
  const int64_t count = int64_t{rows} * weights.shape_.rows;
  const DeviceBuffer<float> out(count);
  const Linear args{.weights = weights.weights(),
                    .input = {input.data(), nullptr, live.data(), rows_max},
                    .out = out.data(),
                    .stride = weights.shape_.rows,
                    .accumulate = 0,
                    .config = config};
  device().linear(&args);
  return out.get();
}

TEST_F(ProductsTest, LinearIsTheReferences) {
  for (const Shape shape : {Shape{40, 64}, Shape{16, 96}, Shape{100, 320}, Shape{33, 640}}) {
    const DenseWeights weights(random_, {.rows = shape.rows, .columns = shape.columns});
    for (const int rows : {1, 7, 9, 17, 33, 65, 131}) {
      const std::vector<float> x = rounded(random_.activations(rows, shape.columns));
      std::vector<float> exact(static_cast<size_t>(rows * shape.rows));
      reference_->linear(exact.data(), x.data(), weights.linear(), rows,
                         kernels::Kernels::Output::kOverwrite);
      EXPECT_LE(relative_error(run_linear(weights, x, rows), exact), 2e-6)
          << shape.rows << " x " << shape.columns << ", " << rows << " rows";
    }
  }
}

TEST_F(ProductsTest, ARowsBitsDoNotDependOnItsBatch) {
  const TiledShape shape{.rows = 50, .columns = 832};  // 13 chunks: slices of 1 and 2
  const DenseWeights weights(random_, shape);
  const std::vector<float> x = random_.activations(140, shape.columns);
  const std::vector<float> together = run_linear(weights, x, 140);
  for (const int rows : {1, 8, 16, 32, 64}) {
    const int first = random_.below(140 - rows + 1);
    const std::vector<float> some(x.begin() + int64_t{first} * shape.columns,
                                  x.begin() + int64_t{first + rows} * shape.columns);
    // For as many rows as there are, and for more.
    for (const int rows_max : {rows, rows + 3, 100}) {
      const std::vector<float> alone = run_linear(weights, some, rows_max);
      const std::vector<float> same(together.begin() + int64_t{first} * shape.rows,
                                    together.begin() + int64_t{first + rows} * shape.rows);
      EXPECT_TRUE(same_bits(alone, same)) << rows << " of " << rows_max;
    }
  }
}

// Those that this device has.
std::vector<KernelConfig> configs_here(std::span<const KernelConfig> configs) {
  DeviceInfo info;
  device().device_info(0, &info);
  std::vector<KernelConfig> here;
  for (const KernelConfig& config : configs) {
    if (config.kind != KernelKind::kWide || info.has_wide_configs != 0) here.push_back(config);
  }
  return here;
}

// Every config that a choice can name, for more rows than it has columns and for fewer.
TEST_F(ProductsTest, AllConfigsGiveTheSameBits) {
  const TiledShape shape{.rows = 84, .columns = 832};
  const DenseWeights weights(random_, shape);
  for (const int rows : {5, 70}) {
    const std::vector<float> x = random_.activations(rows, shape.columns);
    const std::vector<float> first = run_linear(weights, x, rows, kDenseConfigs[0]);
    for (const KernelConfig& config : configs_here(kDenseConfigs)) {
      EXPECT_TRUE(same_bits(run_linear(weights, x, rows + 1, config), first))
          << config_name(config) << ", " << rows << " rows";
    }
  }
}

// More tiles of weights than a block of wgmma's takes; chunks that fill few slices, one each, and
// more than its stages hold.
TEST_F(ProductsTest, WideConfigsGiveTheSameBitsForAnyNumberOfChunks) {
  for (const int columns : {64, 192, 512, 1000}) {
    const TiledShape shape{.rows = columns == 192 ? 150 : 35, .columns = columns};
    const DenseWeights weights(random_, shape);
    for (const int rows : {1, 67}) {
      const std::vector<float> x = random_.activations(rows, columns);
      const std::vector<float> wanted = run_linear(weights, x, rows, {8, 1});
      for (const KernelConfig& config : configs_here(kDenseConfigs)) {
        if (config.kind != KernelKind::kWide) continue;
        EXPECT_TRUE(same_bits(run_linear(weights, x, rows, config), wanted))
            << config_name(config) << ", " << rows << " rows of " << columns;
      }
    }
  }
}

TEST_F(ProductsTest, AllConfigsWithLowPartsGiveTheSameBits) {
  const TiledShape shape{.rows = 40, .columns = 448};
  const DenseWeights weights(random_, shape);
  const int rows = 19;
  const std::vector<float> x = random_.activations(rows, shape.columns);
  const DeviceBuffer<Bf16Bits> input(padded_rows(rounded(x), shape.columns));
  const DeviceBuffer<Bf16Bits> low(
      padded_rows(random_.floats(rows * shape.columns, 1e-3f), shape.columns));
  const DeviceBuffer<int32_t> live(std::vector<int32_t>{rows});
  std::vector<float> first;
  for (const KernelConfig& config : kLowConfigs) {
    const DeviceBuffer<float> out(int64_t{rows} * shape.rows);
    const Linear args{.weights = weights.weights(),
                      .input = {input.data(), low.data(), live.data(), rows},
                      .out = out.data(),
                      .stride = shape.rows,
                      .accumulate = 0,
                      .config = config};
    device().linear(&args);
    const std::vector<float> got = out.get();
    if (first.empty()) first = got;
    EXPECT_TRUE(same_bits(got, first)) << config_name(config);
  }
}

TEST_F(ProductsTest, AllConfigsOfQkvGiveTheSameBits) {
  const int heads = 2;
  const int head_size = 32;
  const int hidden = 192;
  const TiledShape shape{.rows = (heads + 2) * head_size,
                         .columns = hidden,
                         .order = RowOrder::kHeads,
                         .head_size = head_size};
  const DenseWeights weights(random_, shape);
  const int rows = 21;
  std::vector<int32_t> positions;
  std::vector<int64_t> slots;
  for (int row = 0; row < rows; ++row) {
    positions.push_back(random_.below(40));
    slots.push_back(row + 3);
  }
  const DeviceBuffer<Bf16Bits> input(padded_rows(random_.activations(rows, hidden), hidden));
  const DeviceBuffer<int32_t> live(std::vector<int32_t>{rows});
  const DeviceBuffer<int32_t> device_positions(positions);
  const DeviceBuffer<int64_t> device_slots(slots);
  const DeviceBuffer<float> turns(random_.floats(40 * head_size, 1.0f));
  std::vector<Bf16Bits> first_q;
  std::vector<Bf16Bits> first_cache;
  for (const KernelConfig& config : configs_here(kDenseConfigs)) {
    const DeviceBuffer<Bf16Bits> q(int64_t{rows} * heads * head_size);
    const DeviceBuffer<Bf16Bits> cache(int64_t{2} * 2 * 16 * head_size);
    const Qkv args{.weights = weights.weights(),
                   .input = {input.data(), nullptr, live.data(), rows},
                   .q = q.data(),
                   .cache = {cache.data(), 1, head_size},
                   .positions = device_positions.data(),
                   .slots = device_slots.data(),
                   .turns = turns.data(),
                   .heads = heads,
                   .config = config};
    device().qkv(&args);
    if (first_q.empty()) {
      first_q = q.get();
      first_cache = cache.get();
    }
    EXPECT_TRUE(same_bits(q.get(), first_q)) << config_name(config);
    EXPECT_TRUE(same_bits(cache.get(), first_cache)) << config_name(config);
  }
}

TEST_F(ProductsTest, AConfigThatThereIsNotIsRefused) {
  const TiledShape shape{.rows = 16, .columns = 64};
  const DenseWeights weights(random_, shape);
  const DeviceBuffer<Bf16Bits> input(padded_rows(random_.floats(64, 1.0f), 64));
  const DeviceBuffer<int32_t> live(std::vector<int32_t>{1});
  const DeviceBuffer<float> out(16);
  const Linear args{.weights = weights.weights(),
                    .input = {input.data(), nullptr, live.data(), 1},
                    .out = out.data(),
                    .stride = 16,
                    .accumulate = 0,
                    .config = {.columns = 8, .row_tiles = 3}};
  device().linear(&args);
  const char* const failure = device().failure();
  ASSERT_NE(failure, nullptr);
  EXPECT_NE(std::string(failure).find("a config"), std::string::npos) << failure;
}

TEST_F(ProductsTest, LowPartsMakeItNearlyFloat32AndAccumulateAdds) {
  const TiledShape shape{.rows = 32, .columns = 448};
  const DenseWeights weights(random_, shape);
  for (const int rows : {3, 21}) {
    const std::vector<float> x = random_.activations(rows, shape.columns);
    const std::vector<float> high = rounded(x);
    std::vector<float> rest(x);
    for (size_t i = 0; i < x.size(); ++i) rest[i] -= high[i];
    const DeviceBuffer<Bf16Bits> input(padded_rows(high, shape.columns));
    const DeviceBuffer<Bf16Bits> low(padded_rows(rest, shape.columns));
    const DeviceBuffer<int32_t> live(std::vector<int32_t>{rows});
    std::vector<float> exact = random_.floats(int64_t{rows} * shape.rows, 30.0f);
    const DeviceBuffer<float> out(exact);
    const Linear args{.weights = weights.weights(),
                      .input = {input.data(), low.data(), live.data(), rows},
                      .out = out.data(),
                      .stride = shape.rows,
                      .accumulate = 1};
    device().linear(&args);
    reference_->linear(exact.data(), x.data(), weights.linear(), rows,
                       kernels::Kernels::Output::kAccumulate);
    EXPECT_LE(relative_error(out.get(), exact), 1e-5);
  }
}

// Queries, keys and values: turned as the reference turns them, each at its place in the cache.
TEST_F(ProductsTest, QkvTurnsAndStores) {
  for (const int head_size : {32, 64}) {
    const int heads = 4;
    const int kv_heads = 2;
    const int hidden = 160;
    const int positions_max = 50;
    const TiledShape shape{.rows = (heads + 2 * kv_heads) * head_size,
                           .columns = hidden,
                           .order = RowOrder::kHeads,
                           .head_size = head_size};
    const DenseWeights weights(random_, shape);
    const std::vector<float> turns = random_.floats(int64_t{positions_max} * head_size, 1.0f);
    for (const auto& [rows, type] :
         {std::pair(3, KvType::kF16), {3, KvType::kBf16}, {40, KvType::kF16}}) {
      const auto number_of = [type = type](uint16_t bits) {
        return type == KvType::kF16 ? tensor::f16_to_float(bits) : tensor::bf16_to_float(bits);
      };
      const std::vector<float> x = rounded(random_.activations(rows, hidden));
      const int blocks = rows;  // more than needed
      std::vector<int32_t> positions;
      std::vector<int64_t> slots;
      for (int row = 0; row < rows; ++row) {
        positions.push_back(random_.below(positions_max));
        slots.push_back(row == 1 ? -1 : int64_t{rows - 1 - row} * 16 + (row * 5) % 16);
      }
      const DeviceBuffer<Bf16Bits> input(padded_rows(x, hidden));
      const DeviceBuffer<int32_t> live(std::vector<int32_t>{rows});
      const DeviceBuffer<Bf16Bits> q(int64_t{rows} * heads * head_size);
      const int64_t head_block = int64_t{2} * 16 * head_size;
      const DeviceBuffer<Bf16Bits> cache(blocks * kv_heads * head_block);
      const DeviceBuffer<int32_t> device_positions(positions);
      const DeviceBuffer<int64_t> device_slots(slots);
      const DeviceBuffer<float> device_turns(turns);
      const Qkv args{.weights = weights.weights(),
                     .input = {input.data(), nullptr, live.data(), rows + 2},
                     .q = q.data(),
                     .cache = {cache.data(), kv_heads, head_size, type},
                     .positions = device_positions.data(),
                     .slots = device_slots.data(),
                     .turns = device_turns.data(),
                     .heads = heads};
      device().qkv(&args);

      std::vector<float> exact(static_cast<size_t>(rows * shape.rows));
      reference_->linear(exact.data(), x.data(), weights.linear(), rows,
                         kernels::Kernels::Output::kOverwrite);
      std::vector<float> cos_sin;
      for (const int32_t position : positions) {
        cos_sin.insert(cos_sin.end(), turns.begin() + position * head_size,
                       turns.begin() + (position + 1) * head_size);
      }
      reference_->rotate(exact.data(), shape.rows, cos_sin.data(), rows,
                         {.heads = heads + kv_heads, .head_stride = head_size, .size = head_size});

      const std::vector<Bf16Bits> got_q = q.get();
      const std::vector<Bf16Bits> got_cache = cache.get();
      std::vector<float> got;
      std::vector<float> wanted;
      for (int row = 0; row < rows; ++row) {
        const float* from = exact.data() + row * shape.rows;
        for (int i = 0; i < heads * head_size; ++i) {
          got.push_back(number_of(got_q[static_cast<size_t>(row * heads * head_size + i)]));
          wanted.push_back(from[i]);
        }
        const int64_t slot = slots[static_cast<size_t>(row)];
        if (slot < 0) continue;
        for (int h = 0; h < kv_heads; ++h) {
          const int64_t block = (slot / 16 * kv_heads + h) * head_block;
          for (int i = 0; i < head_size; ++i) {
            const int64_t key = block + slot % 16 * head_size + i;
            const int64_t value = block + 16 * head_size + i * 16 + slot % 16;
            got.push_back(number_of(got_cache[static_cast<size_t>(key)]));
            wanted.push_back(from[(heads + h) * head_size + i]);
            got.push_back(number_of(got_cache[static_cast<size_t>(value)]));
            wanted.push_back(from[(heads + kv_heads + h) * head_size + i]);
          }
        }
      }
      EXPECT_LE(relative_error(got, wanted), type == KvType::kF16 ? 4e-4 : 3e-3)
          << "head size " << head_size;
      // For fp8 the same numbers, not yet rounded, go to where StoreKv takes them.
      const DeviceBuffer<Bf16Bits> same_q(int64_t{rows} * heads * head_size);
      const DeviceBuffer<float> staged(int64_t{rows} * 2 * kv_heads * head_size);
      Qkv fp8 = args;
      fp8.q = same_q.data();
      fp8.cache = {nullptr, kv_heads, head_size, KvType::kFp8};
      fp8.staged = staged.data();
      device().qkv(&fp8);
      if (type == KvType::kBf16) {
        EXPECT_TRUE(same_bits(same_q.get(), got_q));
      }
      const std::vector<float> got_staged = staged.get();
      for (int row = 0; row < rows; ++row) {
        const int64_t slot = slots[static_cast<size_t>(row)];
        for (int vector = 0; vector < 2 * kv_heads && slot >= 0; ++vector) {
          const int64_t block = (slot / 16 * kv_heads + vector % kv_heads) * head_block;
          for (int i = 0; i < head_size; ++i) {
            const int64_t at =
                vector < kv_heads ? slot % 16 * head_size + i : 16 * head_size + i * 16 + slot % 16;
            const int from = (row * 2 * kv_heads + vector) * head_size + i;
            const float unrounded = got_staged[static_cast<size_t>(from)];
            ASSERT_EQ(type == KvType::kF16 ? tensor::float_to_f16(unrounded)
                                           : tensor::float_to_bf16(unrounded),
                      got_cache[static_cast<size_t>(block + at)]);
          }
        }
      }
      // Nothing but those places was written.
      size_t poisoned = 0;
      for (const Bf16Bits bits : got_cache) poisoned += bits == 0xFFFF ? 1 : 0;
      EXPECT_EQ(poisoned,
                got_cache.size() - static_cast<size_t>((rows - 1) * kv_heads * 2 * head_size));
    }
  }
}

// Random MXFP4 experts in the published layout.
struct MoeWeights {
  MoeWeights(Random& random, int experts, int hidden, int inner, int scale_high)
      : gate_data(random.bytes(int64_t{experts} * 2 * inner * hidden / 2, 0, 255)),
        gate_scales(random.bytes(int64_t{experts} * 2 * inner * hidden / 32, 118, scale_high)),
        gate_bias(random.floats(int64_t{experts} * 2 * inner, 0.3f)),
        down_data(random.bytes(int64_t{experts} * hidden * inner / 2, 0, 255)),
        down_scales(random.bytes(int64_t{experts} * hidden * inner / 32, 118, scale_high)),
        down_bias(random.floats(int64_t{experts} * hidden, 0.3f)) {
    view.gate = {gate_data.data(), gate_scales.data(),  gate_bias.data(), experts, 2 * inner,
                 hidden,           Format::kMxfp4Pairs, 2 * inner};
    view.down = {down_data.data(),
                 down_scales.data(),
                 down_bias.data(),
                 experts,
                 hidden,
                 inner,
                 Format::kMxfp4Pairs,
                 hidden};
  }

  std::vector<uint8_t> gate_data;
  std::vector<uint8_t> gate_scales;
  std::vector<float> gate_bias;
  std::vector<uint8_t> down_data;
  std::vector<uint8_t> down_scales;
  std::vector<float> down_bias;
  kernels::ExpertWeights view;
};

// One part of the experts in device memory.
struct DevicePart {
  DevicePart(const kernels::ExpertWeights& view, ExpertPart part)
      : shape(expert_shape(view, part)), experts(view.down.experts) {
    const int64_t data_bytes = tiles_bytes(WeightType::kMxfp4, shape);
    const int64_t scale_bytes = scales_bytes(shape);
    std::vector<uint8_t> packed(static_cast<size_t>(experts * data_bytes));
    std::vector<uint8_t> packed_scales(static_cast<size_t>(experts * scale_bytes));
    base::ThreadPool pool({.threads = 1, .pin = false});
    const int shift = *scale_shift(view, part, pool);
    factor = std::ldexp(1.0f, shift);
    for (int e = 0; e < experts; ++e) {
      pack_expert(view, part, e, {0, tile_count(shape.rows)}, shift, packed.data() + e * data_bytes,
                  packed_scales.data() + e * scale_bytes);
    }
    std::vector<float> packed_bias(static_cast<size_t>(experts * shape.rows));
    for (int e = 0; e < experts; ++e) {
      pack_expert_bias(view, part, e, packed_bias.data() + e * shape.rows);
    }
    data = std::make_unique<DeviceBuffer<uint8_t>>(packed);
    scales = std::make_unique<DeviceBuffer<uint8_t>>(packed_scales);
    bias = std::make_unique<DeviceBuffer<float>>(packed_bias);
  }

  Weights weights() const {
    return {.data = data->data(),
            .scales = reinterpret_cast<const uint32_t*>(scales->data()),
            .bias = bias->data(),
            .type = WeightType::kMxfp4,
            .rows = shape.rows,
            .columns = shape.columns,
            .experts = experts,
            .factor = factor};
  }

  TiledShape shape;
  int experts;
  float factor = 1;
  std::unique_ptr<DeviceBuffer<uint8_t>> data;
  std::unique_ptr<DeviceBuffer<uint8_t>> scales;
  std::unique_ptr<DeviceBuffer<float>> bias;
};

struct MoeSizes {
  int experts;
  int choices;
  int hidden;
  int inner;
};

// What the experts add to each row, by every operation from the router's logits on. x: float (rows,
// hidden), bf16 numbers. The norm's output is dropped; its sum is what counts.
std::vector<float> run_experts(const MoeSizes& sizes, const DevicePart& gate_part,
                               const DevicePart& down_part, const std::vector<float>& x,
                               const std::vector<float>& logits, const KernelConfig& config) {
  const int columns = config.columns;
  const int rows = static_cast<int>(x.size()) / sizes.hidden;
  const int entries = rows * sizes.choices;
  const int tiles_max = expert_tiles_max(entries, sizes.experts, columns);
  const DeviceBuffer<int32_t> live(std::vector<int32_t>{rows});
  const DeviceBuffer<float> device_logits(logits);
  const DeviceBuffer<int32_t> choices(entries);
  const DeviceBuffer<float> choice_weights(entries);
  const Choose choose{.logits = device_logits.data(),
                      .choices = choices.data(),
                      .weights = choice_weights.data(),
                      .live = live.data(),
                      .rows_max = rows + 1,
                      .experts = sizes.experts,
                      .k = sizes.choices};
  device().choose(&choose);
  const DeviceBuffer<int32_t> device_entries(entries);
  const DeviceBuffer<ExpertTile> tiles(tiles_max);
  const DeviceBuffer<int32_t> tile_count(1);
  const Group group{.choices = choices.data(),
                    .entries = device_entries.data(),
                    .tiles = tiles.data(),
                    .tile_count = tile_count.data(),
                    .live = live.data(),
                    .rows_max = rows,
                    .experts = sizes.experts,
                    .k = sizes.choices,
                    .columns = columns};
  device().group(&group);
  EXPECT_LE(tile_count.get()[0], tiles_max);
  const Grouping grouping{.tile_count = tile_count.data(),
                          .tiles = tiles.data(),
                          .entries = device_entries.data(),
                          .tiles_max = tiles_max,
                          .columns = columns,
                          .choices = sizes.choices};
  const DeviceBuffer<Bf16Bits> input(padded_rows(x, sizes.hidden));
  DeviceBuffer<Bf16Bits> h(int64_t{entries} * padded_columns(sizes.inner));
  h.fill(0);
  const GateUp gate_up{.weights = gate_part.weights(),
                       .x = input.data(),
                       .h = h.data(),
                       .grouping = grouping,
                       .alpha = 1.702f,
                       .limit = 7.0f,
                       .config = config};
  device().gate_up(&gate_up);
  const DeviceBuffer<float> y(int64_t{entries} * sizes.hidden);
  const Down down{.weights = down_part.weights(),
                  .h = h.data(),
                  .y = y.data(),
                  .grouping = grouping,
                  .config = config};
  device().down(&down);
  const DeviceBuffer<float> sum(std::vector<float>(x.size(), 0.0f));
  const DeviceBuffer<float> gain(std::vector<float>(static_cast<size_t>(sizes.hidden), 1.0f));
  const DeviceBuffer<Bf16Bits> normed(int64_t{rows} * padded_columns(sizes.hidden));
  const Norm norm{.x = sum.data(),
                  .weight = gain.data(),
                  .out = normed.data(),
                  .low = nullptr,
                  .rows = nullptr,
                  .y = y.data(),
                  .choice_weights = choice_weights.data(),
                  .live = live.data(),
                  .rows_max = rows,
                  .hidden = sizes.hidden,
                  .choices = sizes.choices,
                  .epsilon = 1e-5f};
  device().norm(&norm);
  return sum.get();
}

TEST_F(ProductsTest, ExpertsAreTheReferences) {
  struct Case {
    MoeSizes sizes;
    int rows;
    int scale_high;
  };
  const Case cases[] = {{{8, 2, 128, 96}, 5, 123},
                        {{8, 2, 96, 128}, 70, 123},
                        {{32, 4, 160, 96}, 9, 123},
                        {{2, 1, 1056, 32}, 9, 123},  // slices of several chunks
                        {{3, 3, 64, 64}, 33, 131}};  // 131: scales that packing must shift
  for (const Case& c : cases) {
    const MoeSizes& sizes = c.sizes;
    const MoeWeights weights(random_, sizes.experts, sizes.hidden, sizes.inner, c.scale_high);
    const DevicePart gate(weights.view, ExpertPart::kGateUp);
    const DevicePart down(weights.view, ExpertPart::kDown);
    const std::vector<float> x = rounded(random_.activations(c.rows, sizes.hidden));
    const std::vector<float> logits = random_.floats(int64_t{c.rows} * sizes.experts, 1.0f);
    std::vector<kernels::ExpertChoice> choices(static_cast<size_t>(c.rows * sizes.choices));
    reference_->route(choices.data(), logits.data(), c.rows,
                      {.experts = sizes.experts, .k = sizes.choices});
    std::vector<float> exact(x.size(), 0.0f);
    reference_->experts(exact.data(), x.data(), choices.data(), weights.view,
                        {.experts_per_token = sizes.choices}, c.rows);
    std::vector<float> first;
    for (const KernelConfig& config : configs_here(kExpertConfigs)) {
      const std::vector<float> got = run_experts(sizes, gate, down, x, logits, config);
      EXPECT_LE(relative_error(got, exact), 4e-3)
          << config_name(config) << ", " << c.rows << " rows";
      if (first.empty()) first = got;
      EXPECT_TRUE(same_bits(got, first)) << config_name(config) << ", " << c.rows << " rows";
    }
  }
}

// Rows one by one and together: the same bits.
TEST_F(ProductsTest, ExpertsDoNotDependOnTheBatch) {
  const MoeSizes sizes{8, 2, 128, 128};
  const MoeWeights weights(random_, sizes.experts, sizes.hidden, sizes.inner, 123);
  const DevicePart gate(weights.view, ExpertPart::kGateUp);
  const DevicePart down(weights.view, ExpertPart::kDown);
  const int rows = 11;
  const std::vector<float> x = rounded(random_.activations(rows, sizes.hidden));
  const std::vector<float> logits = random_.floats(int64_t{rows} * sizes.experts, 1.0f);
  const std::vector<float> together =
      run_experts(sizes, gate, down, x, logits, expert_config_of_width(64));
  for (int row = 0; row < rows; ++row) {
    const auto part = [&](const std::vector<float>& from, int width) {
      return std::vector<float>(from.begin() + row * width, from.begin() + (row + 1) * width);
    };
    EXPECT_TRUE(same_bits(run_experts(sizes, gate, down, part(x, sizes.hidden),
                                      part(logits, sizes.experts), expert_config_of_width(8)),
                          part(together, sizes.hidden)))
        << row;
  }
}

// All of the layouts that MXFP4 comes in become the same bytes.
TEST(PackDeviceWeightsTest, LayoutsAgree) {
  Random random;
  const int inner = 64;
  const int hidden = 96;
  const MoeWeights pairs(random, 2, hidden, inner, 123);
  // As GGUF has them: gate and up apart, scale in front, elements j and j + 16 in a byte.
  const auto blocks = [&](const kernels::Experts& from, int first, int step) {
    std::vector<uint8_t> out;
    const int groups = from.cols / 32;
    for (int e = 0; e < from.experts; ++e) {
      for (int row = first; row < from.rows; row += step) {
        for (int b = 0; b < groups; ++b) {
          const int64_t at = (int64_t{e} * from.rows + row) * groups + b;
          const uint8_t* code = static_cast<const uint8_t*>(from.data) + at * 16;
          out.push_back(from.scales[at]);
          const auto element = [&](int i) { return code[i / 2] >> (4 * (i % 2)) & 15; };
          for (int j = 0; j < 16; ++j) {
            out.push_back(static_cast<uint8_t>(element(j) | element(j + 16) << 4));
          }
        }
      }
    }
    return out;
  };
  const std::vector<uint8_t> gate = blocks(pairs.view.gate, 0, 2);
  const std::vector<uint8_t> up = blocks(pairs.view.gate, 1, 2);
  const std::vector<uint8_t> down = blocks(pairs.view.down, 0, 1);
  const std::vector<float> bias(static_cast<size_t>(2 * hidden), 0.0f);
  kernels::ExpertWeights apart;
  apart.gate = {gate.data(), nullptr, bias.data(), 2, inner, hidden, Format::kMxfp4Blocks, inner};
  apart.up = {up.data(), nullptr, bias.data(), 2, inner, hidden, Format::kMxfp4Blocks, inner};
  apart.down = {down.data(), nullptr, bias.data(), 2, hidden, inner, Format::kMxfp4Blocks, hidden};
  for (const ExpertPart part : {ExpertPart::kGateUp, ExpertPart::kDown}) {
    const TiledShape shape = expert_shape(apart, part);
    for (int e = 0; e < 2; ++e) {
      const auto size = static_cast<size_t>(tiles_bytes(WeightType::kMxfp4, shape));
      const auto scale_size = static_cast<size_t>(scales_bytes(shape));
      std::vector<uint8_t> a(size), b(size), a_scales(scale_size), b_scales(scale_size);
      const TileRange all{0, tile_count(shape.rows)};
      pack_expert(pairs.view, part, e, all, 0, a.data(), a_scales.data());
      pack_expert(apart, part, e, all, 0, b.data(), b_scales.data());
      EXPECT_TRUE(same_bits(a, b));
      EXPECT_TRUE(same_bits(a_scales, b_scales));
    }
  }
}

// From tiles, as a packed model has them: the same numbers, at another scale where a group has no
// large codes. One tile at a time is as good as all at once.
TEST(PackDeviceWeightsTest, TiledExpertsAreTheSameNumbers) {
  Random random;
  const int inner = 64;
  const int hidden = 96;
  const int experts = 2;
  const MoeWeights pairs(random, experts, hidden, inner, 123);
  std::vector<uint8_t> gate;
  std::vector<uint8_t> down;
  const auto add = [](const kernels::Experts& from, int e, int first, int step,
                      std::vector<uint8_t>& to) {
    int64_t rows[kernels::kTileRows];
    for (int r = 0; r < kernels::kTileRows; ++r) rows[r] = first + step * r;
    const auto bytes = static_cast<size_t>(tile_bytes(Format::kMxfp4Tiles, from.cols));
    to.resize(to.size() + bytes);
    pack_tile(Format::kMxfp4Tiles, expert_matrix(from, e), rows, to.data() + to.size() - bytes);
  };
  for (int e = 0; e < experts; ++e) {
    for (int row = 0; row < inner; row += 16) {  // gate and up take turns
      add(pairs.view.gate, e, 2 * row, 2, gate);
      add(pairs.view.gate, e, 2 * row + 1, 2, gate);
    }
    for (int row = 0; row < hidden; row += 16) add(pairs.view.down, e, row, 1, down);
  }
  const std::vector<float> bias(static_cast<size_t>(experts * 2 * inner), 0.0f);
  kernels::ExpertWeights tiled;
  tiled.gate = {gate.data(), nullptr, bias.data(),         experts,
                2 * inner,   hidden,  Format::kMxfp4Tiles, 2 * inner};
  tiled.down = {down.data(), nullptr, bias.data(),         experts,
                hidden,      inner,   Format::kMxfp4Tiles, hidden};
  for (const ExpertPart part : {ExpertPart::kGateUp, ExpertPart::kDown}) {
    const TiledShape shape = expert_shape(tiled, part);
    const int64_t tiles = tile_count(shape.rows);
    const auto size = static_cast<size_t>(tiles_bytes(WeightType::kMxfp4, shape));
    const auto scale_size = static_cast<size_t>(scales_bytes(shape));
    for (int e = 0; e < experts; ++e) {
      std::vector<uint8_t> a(size), b(size), a_scales(scale_size), b_scales(scale_size);
      pack_expert(pairs.view, part, e, {0, tiles}, 0, a.data(), a_scales.data());
      for (int64_t tile = 0; tile < tiles; ++tile) {
        pack_expert(
            tiled, part, e, {tile, tile + 1}, 0,
            b.data() + static_cast<size_t>(tile) * size / static_cast<size_t>(tiles),
            b_scales.data() + static_cast<size_t>(tile) * scale_size / static_cast<size_t>(tiles));
      }
      const auto number = [](const std::vector<uint8_t>& data, const std::vector<uint8_t>& scale,
                             size_t i, int nibble) {  // i: a byte
        const size_t word = i / 4 % 4;
        const size_t g = i % kMxfp4ChunkBytes / 64;
        const size_t at = i / kMxfp4ChunkBytes * kScaleChunkBytes + g * 4 + word;
        return tensor::kFp4Values[data[i] >> (4 * nibble) & 15] * tensor::e8m0_to_float(scale[at]);
      };
      for (size_t i = 0; i < size; ++i) {
        ASSERT_EQ(number(a, a_scales, i, 0), number(b, b_scales, i, 0)) << i;
        ASSERT_EQ(number(a, a_scales, i, 1), number(b, b_scales, i, 1)) << i;
      }
    }
  }
}

// Each number at the place that weight_tiles.h says, whatever the rows' type; columns that fill no
// chunk, rows that fill no tile.
// The same of codes: half a chunk at the end, and rows that fill no tile.
TEST(PackDeviceWeightsTest, Mxfp4TilesHoldEveryCodeAtItsPlace) {
  Random random;
  const int inner = 24;
  const int hidden = 160;
  const MoeWeights weights(random, 2, hidden, 32, 123);
  kernels::ExpertWeights view = weights.view;
  view.gate.rows = 2 * inner;  // an expert's rows are not all used
  view.down.cols = inner;
  const TiledShape shape = expert_shape(view, ExpertPart::kGateUp);
  const int64_t chunks = chunk_count(hidden);
  const TileRange all{0, tile_count(shape.rows)};
  for (int e = 0; e < 2; ++e) {
    std::vector<uint8_t> packed(static_cast<size_t>(tiles_bytes(WeightType::kMxfp4, shape)), 0xFF);
    std::vector<uint8_t> scales(static_cast<size_t>(scales_bytes(shape)), 0xFF);
    pack_expert(view, ExpertPart::kGateUp, e, all, 0, packed.data(), scales.data());
    std::vector<uint8_t> wanted(packed.size(), 0);
    std::vector<uint8_t> wanted_scales(scales.size(), 0);
    const kernels::StoredMatrix matrix = expert_matrix(view.gate, e);
    for (int64_t tile = 0; tile < all.end; ++tile) {
      for (int r = 0; r < 16; ++r) {
        const int64_t i = row_of_tile(shape, tile, r);
        if (i < 0) continue;
        const int64_t from = i < inner ? 2 * i : 2 * (i - inner) + 1;  // gate and up take turns
        for (int column = 0; column < hidden; ++column) {
          const auto* codes = static_cast<const uint8_t*>(matrix.data) + from * (hidden / 2);
          const int code = codes[column / 2] >> (4 * (column % 2)) & 15;
          const int c = column % 64;
          const int64_t chunk = tile * chunks + column / 64;
          const int word = r / 8 * 2 + c / 32;
          const int nibble = c % 2 * 4 + c % 32 / 8;
          const int lane = r % 8 * 4 + c % 8 / 2;
          wanted[static_cast<size_t>(chunk * kMxfp4ChunkBytes + lane * 16 + word * 4 +
                                     nibble / 2)] |= static_cast<uint8_t>(code << (nibble % 2 * 4));
          wanted_scales[static_cast<size_t>(chunk * kScaleChunkBytes + r % 8 * 4 + word)] =
              matrix.scales[from * (hidden / 32) + column / 32];
        }
      }
    }
    EXPECT_TRUE(same_bits(packed, wanted)) << e;
    EXPECT_TRUE(same_bits(scales, wanted_scales)) << e;
  }
}

TEST(PackDeviceWeightsTest, AScaleOfNanIsFound) {
  Random random;
  base::ThreadPool pool({.threads = 2, .pin = false});
  MoeWeights weights(random, 5, 64, 96, 135);
  weights.down_scales[0] = 135;
  EXPECT_EQ(*scale_shift(weights.view, ExpertPart::kDown, pool), 135 - 128);
  weights.down_scales[static_cast<size_t>(
      random.below(static_cast<int>(weights.down_scales.size())))] = 255;
  const Result<int> broken = scale_shift(weights.view, ExpertPart::kDown, pool);
  ASSERT_FALSE(broken.ok());
  EXPECT_EQ(broken.error().code, ErrorCode::kBadCheckpoint);
  EXPECT_TRUE(scale_shift(weights.view, ExpertPart::kGateUp, pool).ok());
}

}  // namespace
}  // namespace pelton::cuda
