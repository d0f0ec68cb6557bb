// Persistent steps: whole steps in one launch give the bits that launched steps give, alone and in
// batches, for any shape, keys and values of both types, replayed, drawn from, and one begun before
// the other is finished.
#include <algorithm>
#include <cstdlib>
#include <vector>

#include "cuda/device_tuning.h"
#include "cuda/gpt_oss_shape.h"
#include "cuda/test_device.h"

namespace pelton::cuda {
namespace {

constexpr int kPositionsMax = 400;
constexpr int kSequencesMax = kPersistentRowsMax;

ModelShape random_shape(Random& random) {
  const int head_size = random.below(2) == 0 ? 32 : 64;
  const int kv_heads = 1 + random.below(2);
  const int heads = kv_heads * (1 + random.below(4));
  const int experts = 1 + random.below(40);
  ModelShape shape{.layers = 1 + random.below(3),
                   .hidden = 48 + 16 * random.below(9),
                   .inner = 32 + 16 * random.below(8),
                   .heads = heads,
                   .kv_heads = kv_heads,
                   .head_size = head_size,
                   .experts = experts,
                   .choices = 1 + random.below(std::min(experts, 4)),
                   .vocab = 100 + random.below(200),
                   .kv_groups = 2,
                   .windows = {0, 128},
                   .epsilon = 1e-5f,
                   .attention_scale = 0.17f,
                   .swiglu_alpha = 1.702f,
                   .swiglu_limit = 7.0f};
  for (int i = 0; i < shape.layers; ++i) {
    shape.group_of_layer[i] = static_cast<uint8_t>(random.below(2));
  }
  return shape;
}

// One model twice: its steps launched, and persistent.
class Twins {
 public:
  Twins(const ModelShape& shape, KvType kv_type, int64_t partial_bytes) : shape_(shape) {
    const int blocks = kSequencesMax * (kPositionsMax / kBlockTokens + 1);
    const Limits limits{.rows_max = 64,
                        .sequences_max = kSequencesMax,
                        .logit_rows_max = kPersistentRowsMax,
                        .positions_max = kPositionsMax,
                        .kv_blocks = {blocks, blocks},
                        .kv_type = kv_type,
                        .partial_bytes_max = partial_bytes};
    KernelConfigs configs =
        default_configs(shape, {.shared_bytes_max = test_library().device(0)->shared_bytes_max});
    for (Session*& session : sessions_) {
      session = device().open(0, &shape_, &limits);
      const char* const failure = device().failure();
      CHECK(session != nullptr, failure != nullptr ? failure : "");
      device().randomize_session(session, 5);
      for (int i = 0; i < shape.layers; ++i) device().set_factors(session, i, 0.5f, 0.25f);
      device().set_configs(session, &configs);
      std::fill(std::begin(configs.persistent), std::end(configs.persistent), 1);
    }
    for (int s = 0; s < kSequencesMax; ++s) {
      for (int b = 0; b < kPositionsMax / kBlockTokens + 1; ++b) {
        blocks_[s][0].push_back(b * kSequencesMax + s);
        blocks_[s][1].push_back((b * kSequencesMax + s + 3) % blocks);
      }
    }
  }
  ~Twins() {
    for (Session* const session : sessions_) device().close(session);
  }

  // `rows`: of each sequence. The logits of all rows, from both; and the residual stream must
  // agree.
  std::vector<float> step(const std::vector<int>& sequences, const std::vector<int>& rows,
                          const std::vector<int32_t>& tokens) {
    std::vector<StepSequence> parts;
    std::vector<int32_t> logit_rows;
    for (size_t i = 0; i < sequences.size(); ++i) {
      const auto s = static_cast<size_t>(sequences[i]);
      parts.push_back({at_[s], rows[i], {blocks_[s][0].data(), blocks_[s][1].data()}});
      at_[s] += rows[i];
    }
    const auto count = static_cast<int32_t>(tokens.size());
    for (int32_t row = 0; row < std::min(count, int32_t{kPersistentRowsMax}); ++row) {
      logit_rows.push_back(count - 1 - row);
    }
    const Step step{.tokens = tokens.data(),
                    .row_count = count,
                    .sequences = parts.data(),
                    .sequence_count = static_cast<int32_t>(parts.size()),
                    .logit_rows = logit_rows.data(),
                    .logit_row_count = static_cast<int32_t>(logit_rows.size()),
                    .sampling = nullptr,
                    .sampled = {}};
    std::vector<float> seen[2];
    for (int which = 0; which < 2; ++which) {
      const float* const logits = device().step(sessions_[which], &step);
      const char* const failure = device().failure();
      CHECK(logits != nullptr && failure == nullptr, failure != nullptr ? failure : "");
      seen[which].assign(logits, logits + logit_rows.size() * static_cast<size_t>(shape_.vocab));
    }
    EXPECT_TRUE(same_bits(seen[0], seen[1]));
    return seen[1];
  }

  void rewind(int sequence, int position) { at_[static_cast<size_t>(sequence)] = position; }
  Session* persistent() const { return sessions_[1]; }

 private:
  const ModelShape shape_;
  Session* sessions_[2] = {};
  std::vector<int32_t> blocks_[kSequencesMax][kKvGroupsMax];
  std::vector<int> at_ = std::vector<int>(kSequencesMax, 0);
};

class PersistentTest : public ::testing::TestWithParam<KvType> {
 protected:
  std::vector<int32_t> tokens(const ModelShape& shape, int count) {
    std::vector<int32_t> out;
    for (int i = 0; i < count; ++i) out.push_back(random_.below(shape.vocab));
    return out;
  }

  Random random_;
};

// Prompts of several lengths, some longer than a span, then steps of one to eight sequences, and
// pieces of prompts beside them. Sizes come again, so that graphs are replayed.
TEST_P(PersistentTest, AnyShapeAndBatchGivesTheBitsOfLaunchedSteps) {
  for (int round = 0; round < 2; ++round) {
    const ModelShape shape = random_shape(random_);
    SCOPED_TRACE(::testing::Message()
                 << shape.layers << " layers, hidden " << shape.hidden << ", inner " << shape.inner
                 << ", heads " << shape.heads << "/" << shape.kv_heads << " of " << shape.head_size
                 << ", " << shape.choices << " of " << shape.experts << " experts");
    Twins twins(shape, GetParam(), 1 << 20);
    for (int s = 0; s < kSequencesMax; ++s) {
      int left = 3 + random_.below(s < 2 ? 200 : 12);
      while (left > 0) {
        const int count = std::min(left, 64);
        twins.step({s}, {count}, tokens(shape, count));
        left -= count;
      }
    }
    for (int i = 0; i < 8; ++i) {
      const int count = i < 4 ? 1 << i : 1 + random_.below(kPersistentRowsMax);
      std::vector<int> sequences;
      std::vector<int> rows;
      int total = 0;
      for (int s = random_.below(3); s < kSequencesMax && total < count; ++s) {
        const int own = std::min(count - total, random_.below(4) == 0 ? 3 : 1);
        sequences.push_back(s);
        rows.push_back(own);
        total += own;
      }
      twins.step(sequences, rows, tokens(shape, total));
    }
  }
}

TEST_P(PersistentTest, ARowIsTheSameAloneAndBatched) {
  const ModelShape shape = random_shape(random_);
  Twins twins(shape, GetParam(), 1 << 20);
  const std::vector<int32_t> prompt = tokens(shape, 64);
  for (int s = 0; s < kSequencesMax; ++s) twins.step({s}, {20 + 5 * s}, tokens(shape, 20 + 5 * s));
  const std::vector<int32_t> next = tokens(shape, kSequencesMax);
  std::vector<int> all;
  for (int s = 0; s < kSequencesMax; ++s) all.push_back(s);
  const std::vector<float> together = twins.step(all, std::vector<int>(kSequencesMax, 1), next);
  const auto vocab = static_cast<size_t>(shape.vocab);
  for (int s = 0; s < kSequencesMax; ++s) {
    twins.rewind(s, 20 + 5 * s);
    const std::vector<float> alone = twins.step({s}, {1}, {next[static_cast<size_t>(s)]});
    // Rows of logits were asked for backwards.
    const auto* const own = together.data() + static_cast<size_t>(kSequencesMax - 1 - s) * vocab;
    EXPECT_EQ(std::memcmp(alone.data(), own, vocab * sizeof(float)), 0) << "sequence " << s;
  }
}

// Without room for partials nothing is divided; with more experts than fit into one shuffle's
// lanes, and all of them chosen by some row.
TEST_P(PersistentTest, UndividedRowsAndManyExperts) {
  ModelShape shape = random_shape(random_);
  shape.experts = 70;
  shape.choices = kChoicesMax;
  Twins twins(shape, GetParam(), 0);
  for (int s = 0; s < kSequencesMax; ++s) {
    for (int i = 0; i < (s < 2 ? 3 : 1); ++i) twins.step({s}, {50}, tokens(shape, 50));
  }
  std::vector<int> all;
  for (int s = 0; s < kSequencesMax; ++s) all.push_back(s);
  for (int i = 0; i < 3; ++i) {
    twins.step(all, std::vector<int>(kSequencesMax, 1), tokens(shape, kSequencesMax));
  }
}

// Half a minute each in the emulation; bf16 differs from float16 in how an element is widened.
std::vector<KvType> kv_types() {
  if (std::getenv("PELTON_FULL") == nullptr) return {KvType::kF16, KvType::kFp8};
  return {KvType::kF16, KvType::kBf16, KvType::kFp8};
}

INSTANTIATE_TEST_SUITE_P(Kv, PersistentTest, ::testing::ValuesIn(kv_types()),
                         [](const auto& info) { return kv_type_name(info.param); });

TEST(PersistentConfigsTest, ConstantsSayLaunched) {
  EXPECT_FALSE(has_persistent(
      default_configs(gpt_oss_shape(), {.shared_bytes_max = 227 << 10, .has_wide = true})));
}

}  // namespace
}  // namespace pelton::cuda
