// The choice of configs on a real session: from constants, measured, kept and read again; and that
// a step's logits are the same bits in any of them, recorded or not.
#include "cuda/device_tuning.h"

#include <filesystem>
#include <fstream>

#include "cuda/test_device.h"

namespace pelton::cuda {
namespace {

ModelShape small_shape() {
  ModelShape shape{.layers = 2,
                   .hidden = 192,
                   .inner = 128,
                   .heads = 4,
                   .kv_heads = 2,
                   .head_size = 32,
                   .experts = 4,
                   .choices = 2,
                   .vocab = 200,
                   .kv_groups = 2,
                   .windows = {0, 128},
                   .epsilon = 1e-5f,
                   .attention_scale = 0.17f,
                   .swiglu_alpha = 1.702f,
                   .swiglu_limit = 7.0f};
  shape.group_of_layer[0] = 1;
  return shape;
}

class DeviceTuningTest : public ::testing::Test {
 protected:
  DeviceTuningTest() {
    session_ = device().open(0, &shape_, &limits_);
    CHECK(session_ != nullptr);
    device().randomize_session(session_, 3);
    folder_ = (std::filesystem::temp_directory_path() /
               ("pelton_device_configs_" + std::to_string(std::random_device{}())))
                  .string();
  }
  ~DeviceTuningTest() override {
    device().close(session_);
    std::filesystem::remove_all(folder_);
  }

  DeviceTuning choose(TuningMode mode) {
    const auto chosen =
        choose_configs(test_library(), info_, session_, shape_, limits_,
                       {.mode = mode, .folder = folder_, .budget = {.seconds = 600, .rounds = 1}});
    CHECK(chosen.ok(), chosen.ok() ? "" : chosen.error().message);
    return *chosen;
  }

  // Of a prompt of five tokens.
  std::vector<float> logits() {
    const int32_t tokens[] = {7, 11, 150, 0, 3};
    const int32_t blocks[] = {1};
    const StepSequence sequence{0, 5, {blocks, blocks}};
    const int32_t rows[] = {0, 1, 2, 3, 4};
    const Step step{tokens, 5, &sequence, 1, rows, 5};
    const float* const got = device().step(session_, &step);
    const char* const failure = device().failure();
    CHECK(got != nullptr && failure == nullptr, failure != nullptr ? failure : "");
    return {got, got + 5 * shape_.vocab};
  }

  struct Counts {
    int64_t steps = 0;
    int64_t replayed = 0;
    int64_t graphs = 0;
  };
  Counts counts() {
    Counts out;
    device().step_counts(session_, &out.steps, &out.replayed, &out.graphs);
    return out;
  }

  const ModelShape shape_ = small_shape();
  const Limits limits_ = {.rows_max = 8,
                          .sequences_max = 2,
                          .logit_rows_max = 5,
                          .positions_max = 64,
                          .kv_blocks = {4, 4},
                          .partial_bytes_max = 1 << 16};
  const DeviceInfo info_ = *test_library().device(0);
  const KernelDevice config_device_ = {info_.shared_bytes_max, info_.has_wide_configs != 0};
  const bool is_gpu_ = std::string_view(device().kind()) == "cuda";
  Session* session_ = nullptr;
  std::string folder_;
};

TEST_F(DeviceTuningTest, ConstantsWhereNothingIsMeasured) {
  const KernelConfigs constants = default_configs(shape_, config_device_);
  EXPECT_EQ(choose(TuningMode::kDefault).configs, constants);
  EXPECT_EQ(choose(TuningMode::kDefault).how, "by constants");
  if (is_gpu_) return;
  const DeviceTuning chosen = choose(TuningMode::kAuto);  // an emulation's times mean nothing
  EXPECT_EQ(chosen.configs, constants);
  EXPECT_TRUE(chosen.how.starts_with("by constants"));
  EXPECT_FALSE(std::filesystem::exists(folder_));
}

TEST_F(DeviceTuningTest, MeasuredKeptAndReadAgain) {
  const std::vector<float> before = logits();
  const DeviceTuning measured = choose(TuningMode::kMeasure);
  EXPECT_TRUE(measured.how.starts_with("measured in")) << measured.how;
  EXPECT_NE(measured.how.find(", kept in " + folder_), std::string::npos) << measured.how;
  EXPECT_TRUE(measured.problems.empty());
  // Measuring left nothing behind that a step would see.
  EXPECT_TRUE(same_bits(logits(), before));

  const DeviceTuning read = choose(TuningMode::kAuto);
  EXPECT_TRUE(read.how.starts_with("from " + folder_)) << read.how;
  EXPECT_EQ(read.configs, measured.configs);
  EXPECT_TRUE(same_bits(logits(), before));

  // A damaged file is one line, and as if there were none.
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    std::ofstream(entry.path()) << "{\"format\":1}";
  }
  const DeviceTuning again = choose(TuningMode::kAuto);
  ASSERT_EQ(again.problems.size(), 1u);
  EXPECT_NE(again.problems[0].find(folder_), std::string::npos);
  EXPECT_TRUE(again.how.starts_with(is_gpu_ ? "measured" : "by constants")) << again.how;
}

TEST_F(DeviceTuningTest, AFolderThatCannotBeIsALine) {
  folder_ = "/proc/nowhere";
  const DeviceTuning measured = choose(TuningMode::kMeasure);
  EXPECT_TRUE(measured.how.ends_with("not kept")) << measured.how;
  EXPECT_EQ(measured.problems.size(), 1u);
}

TEST_F(DeviceTuningTest, MeasuringThatHasNoTimeKeepsNothing) {
  const auto chosen =
      choose_configs(test_library(), info_, session_, shape_, limits_,
                     {.mode = TuningMode::kMeasure, .folder = folder_, .budget = {.seconds = 0}});
  ASSERT_TRUE(chosen.ok());
  EXPECT_EQ(chosen->configs, default_configs(shape_, config_device_));
  EXPECT_FALSE(std::filesystem::exists(folder_));
}

// Where wgmma gives other bits than mma.sync, what is chosen, measured or kept has none of it.
TEST_F(DeviceTuningTest, WideConfigsThatDoNotAgreeAreNoChoice) {
  if (info_.has_wide_configs == 0) GTEST_SKIP() << "no wgmma here";
  device().begin_trials(session_, 7);
  EXPECT_EQ(device().wide_configs_agree(session_), 1);
  device().end_trials(session_);
  EXPECT_EQ(device().failure(), nullptr);
  EXPECT_TRUE(choose(TuningMode::kDefault).problems.empty());

  DeviceTable other = device();
  other.wide_configs_agree = [](Session*) { return int32_t{0}; };
  const auto chosen = [&](TuningMode mode) {
    return *choose_configs(DeviceLibrary::with_table(other), info_, session_, shape_, limits_,
                           {.mode = mode, .budget = {.seconds = 600, .rounds = 1}});
  };
  const KernelDevice without{info_.shared_bytes_max, false};
  for (const TuningMode mode : {TuningMode::kDefault, TuningMode::kMeasure}) {
    const DeviceTuning configs = chosen(mode);
    EXPECT_TRUE(are_usable(shape_, configs.configs, without)) << describe(configs.configs);
    ASSERT_EQ(configs.problems.size(), 1u);
    EXPECT_NE(configs.problems[0].find("other bits"), std::string::npos) << configs.problems[0];
  }
  EXPECT_EQ(chosen(TuningMode::kDefault).configs, default_configs(shape_, without));

  // Nor where nobody wants to know.
  other.wide_configs_agree = nullptr;
  EXPECT_EQ(chosen(TuningMode::kPlain).configs, default_configs(shape_, without));
  EXPECT_TRUE(chosen(TuningMode::kPlain).problems.empty());
}

// A recorded graph holds the configs that it was recorded with: it must not outlive them.
TEST_F(DeviceTuningTest, NewConfigsMeetNoOldGraphAndGiveTheSameBits) {
  const std::vector<float> first = logits();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(same_bits(logits(), first));
  ASSERT_EQ(counts().graphs, 1);
  const int64_t replayed = counts().replayed;
  ASSERT_GT(replayed, 0);

  KernelConfigs others = default_configs(shape_, config_device_);
  for (const ProductKind kind : kAllProducts) {
    for (KernelConfig& config : others.config[static_cast<int>(kind)])
      config = configs_of(kind).back();
  }
  device().set_configs(session_, &others);
  ASSERT_EQ(device().failure(), nullptr);
  EXPECT_EQ(counts().graphs, 0);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(same_bits(logits(), first));
  EXPECT_EQ(counts().replayed, replayed + 1);  // seen, recorded, replayed

  // What the device cannot take changes nothing.
  others.config[0][0] = {8, 3};
  device().set_configs(session_, &others);
  EXPECT_NE(device().failure(), nullptr);
  EXPECT_EQ(counts().graphs, 1);
  EXPECT_TRUE(same_bits(logits(), first));
}

TEST_F(DeviceTuningTest, ATrialOfWhatIsNotThereIsAFailure) {
  const ProductTrial good{ProductKind::kQkv, {8, 1}, 1, 1};
  EXPECT_LT(device().seconds_of(session_, &good), 0);  // not begun
  EXPECT_NE(device().failure(), nullptr);
  EXPECT_EQ(device().wide_configs_agree(session_), 0);
  EXPECT_NE(device().failure(), nullptr);
  device().begin_trials(session_, 1);
  EXPECT_GT(device().seconds_of(session_, &good), 0);
  EXPECT_EQ(device().failure(), nullptr);
  for (const ProductTrial& bad : {ProductTrial{ProductKind::kQkv, {8, 3}, 1, 1},
                                  ProductTrial{ProductKind::kQkv, {8, 1}, 9, 1},
                                  ProductTrial{ProductKind::kHead, {8, 1}, 6, 1},
                                  ProductTrial{ProductKind::kQkv, {8, 1}, 1, 0}}) {
    EXPECT_LT(device().seconds_of(session_, &bad), 0);
    EXPECT_NE(device().failure(), nullptr);
  }
  device().end_trials(session_);
  EXPECT_EQ(device().failure(), nullptr);
}

TEST_F(DeviceTuningTest, StepsAreTimedAndLeaveNothingBehind) {
  const std::vector<float> before = logits();
  const StepTrial good{2, 1, 1};
  EXPECT_LT(device().seconds_of_steps(session_, &good), 0);  // not begun
  EXPECT_NE(device().failure(), nullptr);
  device().begin_trials(session_, 1);
  for (const StepTrial& trial : {good, StepTrial{1, 0, 3}, StepTrial{1, 1, 3}}) {
    EXPECT_GT(device().seconds_of_steps(session_, &trial), 0);
    EXPECT_EQ(device().failure(), nullptr);
  }
  // Of nine rows, of more sequences than the session has, none.
  for (const StepTrial& bad : {StepTrial{9, 1, 1}, StepTrial{3, 0, 1}, StepTrial{1, 1, 0}}) {
    EXPECT_LT(device().seconds_of_steps(session_, &bad), 0);
    EXPECT_NE(device().failure(), nullptr);
  }
  device().end_trials(session_);
  EXPECT_EQ(device().failure(), nullptr);
  EXPECT_TRUE(same_bits(logits(), before));
}

TEST_F(DeviceTuningTest, PersistentStepsByWishMeetNoOldGraph) {
  const std::vector<float> before = logits();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(same_bits(logits(), before));
  const DeviceTuning chosen = choose(TuningMode::kPersistent);
  EXPECT_TRUE(has_persistent(chosen.configs));
  EXPECT_EQ(counts().graphs, 0);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(same_bits(logits(), before));
  EXPECT_FALSE(std::filesystem::exists(folder_));
}

TEST_F(DeviceTuningTest, DescribedInOneLine) {
  KernelConfigs configs;
  for (auto& row : configs.config) {
    for (KernelConfig& config : row) config = {8, 1};
  }
  configs.config[0][0] = {8, 2};
  configs.config[0][9] = large_config(128);
  EXPECT_EQ(describe(configs),
            "qkv 8x2 to 1 rows, 8x1 to 1024 rows, large128; o 8x1; router 8x1; head 8x1; gate_up "
            "8x1; down 8x1");
  configs.persistent[1] = 1;
  EXPECT_TRUE(describe(configs).ends_with("down 8x1; steps of 2 to 8 rows persistent"));
}

}  // namespace
}  // namespace pelton::cuda
