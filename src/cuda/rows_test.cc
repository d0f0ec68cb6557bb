// A device's row kernels against the reference: embedding, norm with what experts add, the router's
// choice, grouping, and the coding of keys and values.
#include <algorithm>
#include <limits>

#include "base/thread_pool.h"
#include "cuda/test_device.h"
#include "kernels/kv_quantization.h"
#include "kernels/reference/reference_kernels.h"

namespace pelton::cuda {
namespace {

using kernels::ExpertChoice;
using kernels::Kernels;
using kernels::kv_scale;
using kernels::make_reference_kernels;

class DeviceRowsTest : public ::testing::Test {
 protected:
  Random random_;
  base::ThreadPool pool_{{.threads = 1, .pin = false}};
  std::unique_ptr<Kernels> reference_ = make_reference_kernels(pool_);
};

TEST_F(DeviceRowsTest, EmbedIsTheTablesRow) {
  const int hidden = 96;
  const int vocab = 50;
  const std::vector<float> values = rounded(random_.floats(vocab * hidden, 1.0f));
  std::vector<Bf16Bits> bits;
  for (const float value : values) bits.push_back(tensor::float_to_bf16(value));
  const std::vector<int32_t> tokens{49, 0, 7, 7};
  const DeviceBuffer<Bf16Bits> table(bits);
  const DeviceBuffer<int32_t> ids(tokens);
  const DeviceBuffer<int32_t> live(std::vector<int32_t>{4});
  const DeviceBuffer<float> x(4 * hidden);
  const Embed args{x.data(), ids.data(), table.data(), live.data(), 6, hidden};
  device().embed(&args);
  const std::vector<float> got = x.get();
  for (size_t t = 0; t < tokens.size(); ++t) {
    for (int i = 0; i < hidden; ++i) {
      ASSERT_EQ(got[t * hidden + static_cast<size_t>(i)],
                values[static_cast<size_t>(tokens[t] * hidden + i)]);
    }
  }
}

// Numbers of every size: outliers, almost nothing, nothing at all, what is no number.
std::vector<float> vector_to_code(Random& random, int head_size) {
  const float scales[] = {1.0f, 1e-3f, 1e4f, 1e-30f, 1e-42f, 1e30f};
  std::vector<float> x = random.floats(head_size, scales[random.below(6)]);
  x[static_cast<size_t>(random.below(head_size))] *= 60;
  const auto odd = static_cast<size_t>(random.below(head_size));
  switch (random.below(8)) {
    case 0:
      x[odd] = random.below(2) == 0 ? NAN : -INFINITY;
      break;
    case 1:
      std::fill(x.begin(), x.end(), 0.0f);
      x[odd] = -0.0f;
      break;
    case 2:  // ties between codes
      for (float& one : x) one = static_cast<float>(random.below(65) - 32) * 28 / 64;
      x[odd] = -448;
      break;
    default:
      break;
  }
  return x;
}

// The bytes that the host would write, at their places, and no others.
TEST_F(DeviceRowsTest, StoreKvWritesTheHostsCodes) {
  for (const int head_size : {32, 64}) {
    for (const int kv_heads : {1, 3}) {
      const int rows = 21;
      const int blocks = 4;
      std::vector<float> x;
      for (int i = 0; i < rows * 2 * kv_heads; ++i) {
        const std::vector<float> one = vector_to_code(random_, head_size);
        x.insert(x.end(), one.begin(), one.end());
      }
      std::vector<int64_t> slots;  // each place once; two rows keep nothing
      for (int row = 0; row < rows; ++row) {
        slots.push_back(row % 9 == 4 ? -1 : (row * 11 + 5) % (blocks * kBlockTokens));
      }
      const int live_rows = rows - 1;  // the last row is none
      const int64_t head_bytes = kv_head_bytes(KvType::kFp8, head_size);
      std::vector<uint8_t> wanted(static_cast<size_t>(blocks * kv_heads * head_bytes), 0xFF);
      for (int row = 0; row < live_rows; ++row) {
        const int64_t slot = slots[static_cast<size_t>(row)];
        if (slot < 0) continue;
        const auto place = static_cast<int>(slot % kBlockTokens);
        for (int vector = 0; vector < 2 * kv_heads; ++vector) {
          const bool is_value = vector >= kv_heads;
          const float* const from = x.data() + (row * 2 * kv_heads + vector) * head_size;
          const uint16_t scale = kv_scale(from, head_size, tensor::DType::kF8E4m3);
          uint8_t* const head =
              wanted.data() + (slot / kBlockTokens * kv_heads + vector % kv_heads) * head_bytes;
          for (int i = 0; i < head_size; ++i) {
            const int at = is_value ? head_size * kBlockTokens + value_code_place(i, place)
                                    : place * head_size + i;
            head[at] =
                kernels::quantize_kv(from[i], tensor::bf16_to_float(scale), tensor::DType::kF8E4m3);
          }
          std::memcpy(
              head + 2 * head_size * kBlockTokens + 2 * (place + (is_value ? kBlockTokens : 0)),
              &scale, 2);
        }
      }
      const DeviceBuffer<float> staged(x);
      const DeviceBuffer<uint8_t> cache(static_cast<int64_t>(wanted.size()));
      const DeviceBuffer<int64_t> device_slots(slots);
      const DeviceBuffer<int32_t> live(std::vector<int32_t>{live_rows});
      const StoreKv args{.staged = staged.data(),
                         .cache = {cache.data(), kv_heads, head_size, KvType::kFp8},
                         .slots = device_slots.data(),
                         .live = live.data(),
                         .rows_max = rows};
      device().store_kv(&args);
      EXPECT_TRUE(same_bits(cache.get(), wanted)) << kv_heads << " heads of " << head_size;
    }
  }
}

// Every element of a block has a place of its own.
TEST(ValueCodePlaceTest, EveryPlaceIsTakenOnce) {
  for (const int head_size : {32, 64}) {
    std::vector<int> taken(static_cast<size_t>(head_size * kBlockTokens), 0);
    for (int i = 0; i < head_size; ++i) {
      for (int token = 0; token < kBlockTokens; ++token) {
        ++taken.at(static_cast<size_t>(value_code_place(i, token)));
      }
    }
    EXPECT_EQ(std::count(taken.begin(), taken.end(), 1), head_size * kBlockTokens);
  }
}

// A token below 0 is what a row of the step before was given.
TEST_F(DeviceRowsTest, EmbedTakesTokensThatTheStepBeforeDrew) {
  const int hidden = 32;
  const int vocab = 9;
  const std::vector<float> values = rounded(random_.floats(vocab * hidden, 1.0f));
  std::vector<Bf16Bits> bits;
  for (const float value : values) bits.push_back(tensor::float_to_bf16(value));
  const DeviceBuffer<Bf16Bits> table(bits);
  const DeviceBuffer<int32_t> ids(std::vector<int32_t>{~2, 4, ~0, ~1});
  const DeviceBuffer<int32_t> live(std::vector<int32_t>{4});
  const DeviceBuffer<SampledRow> sampled(
      std::vector<SampledRow>{{.token = 8}, {.token = -1}, {.token = 3}});
  const std::vector<int32_t> tokens{3, 4, 8, 0};  // a row that nothing could be drawn from: 0
  const DeviceBuffer<float> x(4 * hidden);
  const Embed args{.x = x.data(),
                   .tokens = ids.data(),
                   .table = table.data(),
                   .live = live.data(),
                   .rows_max = 4,
                   .hidden = hidden,
                   .sampled = sampled.data()};
  device().embed(&args);
  const std::vector<float> got = x.get();
  for (size_t t = 0; t < tokens.size(); ++t) {
    for (int i = 0; i < hidden; ++i) {
      ASSERT_EQ(got[t * hidden + static_cast<size_t>(i)],
                values[static_cast<size_t>(tokens[t] * hidden + i)]);
    }
  }
}

TEST_F(DeviceRowsTest, NormAddsAndScales) {
  for (const int hidden : {32, 160, 608}) {
    const int rows = 5;
    const int choices = 3;
    const std::vector<float> x = random_.activations(rows, hidden);
    const std::vector<float> gain = random_.floats(hidden, 1.0f);
    const std::vector<float> y = random_.floats(int64_t{rows} * choices * hidden, 2.0f);
    const std::vector<float> shares = random_.floats(rows * choices, 0.3f);
    std::vector<float> sums(x);
    for (int row = 0; row < rows; ++row) {
      for (int i = 0; i < hidden; ++i) {
        for (int j = 0; j < choices; ++j) {
          const int entry = row * choices + j;
          sums[static_cast<size_t>(row * hidden + i)] +=
              shares[static_cast<size_t>(entry)] * y[static_cast<size_t>(entry * hidden + i)];
        }
      }
    }
    std::vector<float> exact(sums.size());
    reference_->rms_norm(exact.data(), sums.data(), gain.data(), rows, hidden, 1e-5f);

    const DeviceBuffer<float> device_x(x);
    const DeviceBuffer<float> device_gain(gain);
    const DeviceBuffer<float> device_y(y);
    const DeviceBuffer<float> device_shares(shares);
    const DeviceBuffer<int32_t> live(std::vector<int32_t>{rows});
    const auto wide = static_cast<size_t>(padded_columns(hidden));
    const DeviceBuffer<Bf16Bits> out(static_cast<int64_t>(rows * wide));
    const DeviceBuffer<Bf16Bits> low(static_cast<int64_t>(rows * wide));
    Norm args{.x = device_x.data(),
              .weight = device_gain.data(),
              .out = out.data(),
              .low = low.data(),
              .rows = nullptr,
              .y = device_y.data(),
              .choice_weights = device_shares.data(),
              .live = live.data(),
              .rows_max = rows + 3,
              .hidden = hidden,
              .choices = choices,
              .epsilon = 1e-5f};
    device().norm(&args);
    EXPECT_LE(relative_error(device_x.get(), sums), 1e-6);
    std::vector<float> high_part;
    std::vector<float> both;
    const std::vector<Bf16Bits> bits = out.get();
    const std::vector<Bf16Bits> rest = low.get();
    for (size_t row = 0; row < rows; ++row) {
      for (size_t i = 0; i < wide; ++i) {
        if (i >= static_cast<size_t>(hidden)) {  // beyond the columns nothing is written
          ASSERT_EQ(bits[row * wide + i], 0xFFFF);
          continue;
        }
        high_part.push_back(tensor::bf16_to_float(bits[row * wide + i]));
        both.push_back(high_part.back() + tensor::bf16_to_float(rest[row * wide + i]));
      }
    }
    EXPECT_LE(relative_error(high_part, exact), 4e-3);
    EXPECT_LE(relative_error(both, exact), 2e-5);

    // Chosen rows, nothing added: the same bits, closed up.
    const DeviceBuffer<int32_t> chosen(std::vector<int32_t>{4, 1});
    const DeviceBuffer<int32_t> two(std::vector<int32_t>{2});
    const DeviceBuffer<Bf16Bits> some(static_cast<int64_t>(2 * wide));
    args.out = some.data();
    args.low = nullptr;
    args.rows = chosen.data();
    args.y = nullptr;
    args.live = two.data();
    device().norm(&args);
    const std::vector<Bf16Bits> got = some.get();
    EXPECT_TRUE(std::equal(got.begin(), got.begin() + hidden, bits.begin() + 4 * wide));
    EXPECT_TRUE(std::equal(got.begin() + wide, got.begin() + wide + hidden, bits.begin() + wide));
  }
}

TEST_F(DeviceRowsTest, ChoicesAreTheReferences) {
  for (const int experts : {3, 32, 128, 200}) {
    const int rows = 9;
    const int k = std::min(experts, 4);
    std::vector<float> logits = random_.floats(int64_t{rows} * experts, 1.0f);
    for (int e = 0; e < experts; ++e) logits[static_cast<size_t>(e)] = 0.5f;  // all equal
    logits[static_cast<size_t>(experts + 1)] = logits[static_cast<size_t>(experts)] = 9;
    const DeviceBuffer<float> device_logits(logits);
    const DeviceBuffer<int32_t> choices(rows * k);
    const DeviceBuffer<float> weights(rows * k);
    const DeviceBuffer<int32_t> live(std::vector<int32_t>{rows});
    const Choose args{.logits = device_logits.data(),
                      .choices = choices.data(),
                      .weights = weights.data(),
                      .live = live.data(),
                      .rows_max = rows,
                      .experts = experts,
                      .k = k};
    device().choose(&args);
    std::vector<ExpertChoice> exact(static_cast<size_t>(rows * k));
    reference_->route(exact.data(), logits.data(), rows, {.experts = experts, .k = k});
    const std::vector<int32_t> got = choices.get();
    const std::vector<float> got_weights = weights.get();
    for (size_t i = 0; i < exact.size(); ++i) {
      EXPECT_EQ(got[i], exact[i].expert) << experts << " experts, choice " << i;
      EXPECT_NEAR(got_weights[i], exact[i].weight, 1e-6);
    }
  }
}

// Logits that are no numbers choose experts that exist, each once.
TEST_F(DeviceRowsTest, BrokenLogitsChooseSomething) {
  const int experts = 32;
  std::vector<float> logits(static_cast<size_t>(2 * experts),
                            std::numeric_limits<float>::quiet_NaN());
  logits[40] = 1;
  const DeviceBuffer<float> device_logits(logits);
  const DeviceBuffer<int32_t> choices(8);
  const DeviceBuffer<float> weights(8);
  const DeviceBuffer<int32_t> live(std::vector<int32_t>{2});
  const Choose args{
      device_logits.data(), choices.data(), weights.data(), live.data(), 2, experts, 4};
  device().choose(&args);
  const std::vector<int32_t> got = choices.get();
  for (int row = 0; row < 2; ++row) {
    std::vector<int32_t> own(got.begin() + 4 * row, got.begin() + 4 * row + 4);
    std::sort(own.begin(), own.end());
    EXPECT_GE(own.front(), 0);
    EXPECT_LT(own.back(), experts);
    EXPECT_EQ(std::unique(own.begin(), own.end()), own.end());
  }
}

TEST_F(DeviceRowsTest, GroupsHoldEveryEntryOnce) {
  for (const int rows : {1, 5, 100}) {
    for (const int columns : {8, 64}) {
      const int experts = 40;  // more than there are warps
      const int k = 3;
      std::vector<int32_t> choices;
      for (int row = 0; row < rows; ++row) {
        const int first = random_.below(experts);
        for (int j = 0; j < k; ++j) choices.push_back((first + 7 * j) % experts);
      }
      const int entries = rows * k;
      const int tiles_max = expert_tiles_max(entries, experts, columns);
      const DeviceBuffer<int32_t> device_choices(choices);
      const DeviceBuffer<int32_t> device_entries(entries);
      const DeviceBuffer<ExpertTile> tiles(tiles_max);
      const DeviceBuffer<int32_t> count(1);
      const DeviceBuffer<int32_t> live(std::vector<int32_t>{rows});
      const Group args{.choices = device_choices.data(),
                       .entries = device_entries.data(),
                       .tiles = tiles.data(),
                       .tile_count = count.data(),
                       .live = live.data(),
                       .rows_max = rows + 5,
                       .experts = experts,
                       .k = k,
                       .columns = columns};
      device().group(&args);
      const std::vector<int32_t> order = device_entries.get();
      const std::vector<ExpertTile> got = tiles.get();
      int next = 0;
      int expert = 0;
      for (int i = 0; i < count.get()[0]; ++i) {
        const ExpertTile& tile = got[static_cast<size_t>(i)];
        EXPECT_EQ(tile.first, next);
        EXPECT_GE(tile.expert, expert);
        EXPECT_GT(tile.count, 0);
        EXPECT_LE(tile.count, columns);
        for (int c = 0; c < tile.count; ++c) {
          EXPECT_EQ(choices[static_cast<size_t>(order[static_cast<size_t>(next + c)])],
                    tile.expert);
        }
        next += tile.count;
        expert = tile.expert;
      }
      EXPECT_EQ(next, entries);
      std::vector<int32_t> sorted(order);
      std::sort(sorted.begin(), sorted.end());
      for (int i = 0; i < entries; ++i) EXPECT_EQ(sorted[static_cast<size_t>(i)], i);
    }
  }
}

}  // namespace
}  // namespace pelton::cuda
