// The golden cases (testdata/golden/README.md) through a device library: the emulated one here, or
// what PELTON_DEVICE_LIBRARY names. Every kernel of a forward pass, the weights' packing and
// upload, paged keys and values, and the flat step are in it. `tiny` and `mid` are held to golden's
// limits, `outlier` in part to what it loses in bf16 (docs/decisions/0018). Fed whole, in chunks
// and token by token, the logits are the same bits.
#include "models/device_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "checkpoint/golden_checkpoint.h"
#include "kernels/bf16_kernels.h"
#include "models/sequence_runner.h"
#include "tensor/npy.h"

namespace pelton::models {
namespace {

using cuda::kv_type_name;
using cuda::KvType;
using cuda::TuningMode;

// Where sources and built files are: on another machine (tools/gpu_session) somewhere else.
std::string folder_named(const char* variable, const char* otherwise) {
  const char* const given = std::getenv(variable);
  return given != nullptr ? given : otherwise;
}
std::string source_folder() {
  return folder_named("PELTON_TEST_SOURCE", PELTON_SOURCE_DIR);
}
std::string binary_folder() {
  return folder_named("PELTON_TEST_BINARY", PELTON_BINARY_DIR);
}

const cuda::DeviceLibrary& library() {
  static const cuda::DeviceLibrary* const opened = [] {
    const char* const given = std::getenv("PELTON_DEVICE_LIBRARY");
    auto found = cuda::DeviceLibrary::open(
        given != nullptr ? given : binary_folder() + "/libpelton_cuda_emulated.so");
    CHECK(found.ok(), found.ok() ? "" : found.error().message);
    return new cuda::DeviceLibrary(std::move(*found));
  }();
  return *opened;
}

struct Golden {
  std::vector<TokenId> tokens;
  std::vector<int> logit_positions;
  std::vector<float> logits;
  std::vector<float> top_gap;
};

std::vector<float> floats(const std::string& path) {
  const Result<tensor::NpyArray> array = tensor::read_npy(path);
  CHECK(array.ok(), array.ok() ? "" : array.error().message);
  const std::span<const float> values = array->f32();
  return {values.begin(), values.end()};
}

Golden read_golden(const std::string& folder) {
  const Json json = *Json::parse(*base::read_file(folder + "/tokens.json"));
  Golden golden;
  for (const char* part : {"prompt", "continuation"}) {
    for (const Json& token : json.find(part)->as_array()) {
      golden.tokens.push_back(static_cast<TokenId>(token.as_integer()));
    }
  }
  for (const Json& position : json.find("logit_positions")->as_array()) {
    golden.logit_positions.push_back(static_cast<int>(position.as_integer()));
  }
  golden.logits = floats(folder + "/logits_exact.npy");
  golden.top_gap = floats(folder + "/top_gap.npy");
  return golden;
}

// tiny's weights are kept; the others are made.
std::string weights_folder(const std::string& name) {
  if (name == "tiny") return source_folder() + "/testdata/golden/tiny";
  const std::string made = binary_folder() + "/golden/" + name;
  if (std::filesystem::exists(made + "/model.safetensors")) return made;
  const std::string own = made + "." + std::to_string(::getpid());
  std::filesystem::create_directories(own);
  const Result<void> written = checkpoint::write_golden_checkpoint(
      name == "mid" ? checkpoint::GoldenCase::kMid : checkpoint::GoldenCase::kOutlier, own);
  CHECK(written.ok(), written.ok() ? "" : written.error().message);
  std::error_code taken;
  std::filesystem::rename(own, made, taken);
  if (taken) std::filesystem::remove_all(own);
  return made;
}

// A model and one sequence, whose blocks lie in no order.
class Run {
 public:
  Run(const checkpoint::Checkpoint& checkpoint, int tokens_max, KvType kv_type,
      TuningMode mode = TuningMode::kDefault) {
    const int blocks = (tokens_max + 15) / 16;
    auto loaded = DeviceModel::load(checkpoint, library(),
                                    {.batch_tokens_max = tokens_max,
                                     .sequences_max = 4,
                                     .logit_rows_max = tokens_max,
                                     .positions_max = tokens_max,
                                     .block_counts = {blocks + 3, blocks + 5},
                                     .kv_type = kv_type,
                                     .tuning = {.mode = mode}},
                                    pool_);
    CHECK(loaded.ok(), loaded.ok() ? "" : loaded.error().message);
    model_ = std::move(*loaded);
    for (int i = 0; i < blocks; ++i) {
      tables_[0].push_back((i * 7 + 2) % blocks + 3);
      tables_[1].push_back((i * 5 + 1) % blocks + 1);
    }
    if (blocks % 5 == 0 || blocks % 7 == 0) {
      for (int i = 0; i < blocks; ++i) tables_[0][static_cast<size_t>(i)] = i + 2;
      for (int i = 0; i < blocks; ++i) tables_[1][static_cast<size_t>(i)] = blocks - i;
    }
  }

  // Logits of all positions, the sequence fed in pieces.
  std::vector<float> logits(const std::vector<TokenId>& tokens, int piece) {
    const auto vocab = static_cast<size_t>(model_->config().vocab_size);
    std::vector<float> out;
    for (size_t begin = 0; begin < tokens.size(); begin += static_cast<size_t>(piece)) {
      const size_t count = std::min(static_cast<size_t>(piece), tokens.size() - begin);
      ForwardInput input;
      input.tokens.assign(tokens.begin() + static_cast<ptrdiff_t>(begin),
                          tokens.begin() + static_cast<ptrdiff_t>(begin + count));
      input.sequences.push_back({static_cast<int>(begin),
                                 static_cast<int>(count),
                                 {tables_[0].data(), tables_[1].data()}});
      for (size_t i = 0; i < count; ++i) input.logit_rows.push_back(static_cast<int>(i));
      const Result<float*> got = model_->forward(input);
      CHECK(got.ok(), got.ok() ? "" : got.error().message);
      out.insert(out.end(), *got, *got + count * vocab);
    }
    return out;
  }

  DeviceModel& model() { return *model_; }

 private:
  base::ThreadPool pool_{{.threads = 1, .pin = false}};
  std::unique_ptr<DeviceModel> model_;
  kv::PerGroup<std::vector<int32_t>> tables_ = {{}, {}};
};

// What is asked of fast kernels (testdata/golden/README.md).
struct Limits {
  double error_mean = 1.4e-2;
  double error_max = 2.5e-2;
  double divergence = 6e-4;
  double agreement = 0.97;
  float sure_gap = 0.2f;
};

struct Differences {
  double error_mean = 0;
  double error_max = 0;
  double divergence = 0;
  double agreement = 0;
  float lost_gap = 0;
};

double log_total(const float* row, size_t vocab) {
  const double highest = *std::max_element(row, row + vocab);
  double total = 0;
  for (size_t i = 0; i < vocab; ++i) total += std::exp(row[i] - highest);
  return highest + std::log(total);
}

Differences compare(const std::vector<float>& logits, const Golden& golden, size_t vocab) {
  Differences out;
  const double count = static_cast<double>(golden.logit_positions.size());
  for (size_t i = 0; i < golden.logit_positions.size(); ++i) {
    const auto position = static_cast<size_t>(golden.logit_positions[i]);
    const float* const got = logits.data() + position * vocab;
    const float* const exact = golden.logits.data() + i * vocab;
    double difference = 0;
    double norm = 0;
    double kl = 0;
    const double log_got = log_total(got, vocab);
    const double log_exact = log_total(exact, vocab);
    for (size_t v = 0; v < vocab; ++v) {
      difference += (double{got[v]} - exact[v]) * (double{got[v]} - exact[v]);
      norm += double{exact[v]} * exact[v];
      const double log_p = exact[v] - log_exact;
      kl += std::exp(log_p) * (log_p - (got[v] - log_got));
    }
    const double error = std::sqrt(difference / norm);
    out.error_mean += error / count;
    out.error_max = std::max(out.error_max, error);
    out.divergence += kl / count;
    const bool agrees =
        std::max_element(got, got + vocab) - got == std::max_element(exact, exact + vocab) - exact;
    out.agreement += agrees ? 1 / count : 0;
    if (!agrees) out.lost_gap = std::max(out.lost_gap, golden.top_gap[position]);
  }
  return out;
}

// The same with fp8 keys and values: what the CPU's get (kFp8 in golden_test.cc).
constexpr Limits kFp8Limits{.error_mean = 1.8e-2,
                            .error_max = 3.2e-2,
                            .divergence = 9e-4,
                            .agreement = 0.96,
                            .sure_gap = 0.2f};

void print(const std::string& name, const std::string& how, const Differences& seen) {
  std::printf(
      "%s %s: relative error mean %.2e max %.2e, KL %.2e, agreement %.1f %%, lost at a gap of up "
      "to %.3f\n",
      name.c_str(), how.c_str(), seen.error_mean, seen.error_max, seen.divergence,
      100 * seen.agreement, static_cast<double>(seen.lost_gap));
}

// What the model loses in the arithmetic that it was published in (kernels/bf16_kernels.h), by the
// same tokens and exact logits.
Differences loss_in_bf16(const std::string& name) {
  const Golden golden = read_golden(source_folder() + "/testdata/golden/" + name);
  const auto checkpoint = checkpoint::Checkpoint::open(weights_folder(name));
  CHECK(checkpoint.ok(), checkpoint.ok() ? "" : checkpoint.error().message);
  const auto count = static_cast<int>(golden.tokens.size());
  const int vocab = checkpoint->config().vocab_size;
  base::ThreadPool pool({.threads = 2, .pin = false});
  const auto exact = kernels::make_kernels(kernels::KernelChoice::kAuto, pool);
  CHECK(exact.ok(), exact.ok() ? "" : exact.error().message);
  const std::unique_ptr<kernels::Kernels> kernels = kernels::make_bf16_kernels(**exact, vocab);
  const auto model =
      load_model(*checkpoint, *kernels, {.batch_tokens_max = count, .logit_rows_max = count});
  CHECK(model.ok(), model.ok() ? "" : model.error().message);
  auto runner = SequenceRunner::make(**model, kernels->kv_dtype(), count);
  CHECK(runner.ok(), runner.ok() ? "" : runner.error().message);
  std::vector<int> rows(golden.tokens.size());
  for (int i = 0; i < count; ++i) rows[static_cast<size_t>(i)] = i;
  const float* const got = runner->step(golden.tokens, rows, nullptr);
  const std::vector<float> logits(got, got + int64_t{count} * vocab);
  const Differences lost = compare(logits, golden, static_cast<size_t>(vocab));
  print(name, "in bf16 on the host", lost);
  return lost;
}

void expect_golden(const std::string& name, const Limits& limits, const std::vector<int>& pieces,
                   KvType kv_type = KvType::kF16) {
  const Golden golden = read_golden(source_folder() + "/testdata/golden/" + name);
  const Result<checkpoint::Checkpoint> checkpoint =
      checkpoint::Checkpoint::open(weights_folder(name));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  const auto count = static_cast<int>(golden.tokens.size());
  const auto vocab = static_cast<size_t>(checkpoint->config().vocab_size);
  Run run(*checkpoint, count, kv_type);
  const std::vector<float> whole = run.logits(golden.tokens, count);
  const Differences seen = compare(whole, golden, vocab);
  print(
      name,
      "on a device (" + std::string(library().table().kind()) + ", " + kv_type_name(kv_type) + ")",
      seen);
  EXPECT_LE(seen.error_mean, limits.error_mean);
  EXPECT_LE(seen.error_max, limits.error_max);
  EXPECT_LE(seen.divergence, limits.divergence);
  EXPECT_GE(seen.agreement, limits.agreement);
  EXPECT_LE(seen.lost_gap, limits.sure_gap);
  for (const int piece : pieces) {
    const std::vector<float> again = run.logits(golden.tokens, piece);
    ASSERT_EQ(again.size(), whole.size());
    EXPECT_EQ(std::memcmp(again.data(), whole.data(), whole.size() * sizeof(float)), 0)
        << name << " in pieces of " << piece << " has other bits than whole";
    if (piece == 1) {  // of some sizes the third step and all after it
      const DeviceModel::Counts counts = run.model().counts();
      EXPECT_GT(counts.replayed, count - 3 * counts.graphs - 3);
      EXPECT_LE(counts.graphs, 12);
    }
  }
}

bool is_full() {
  return std::getenv("PELTON_FULL") != nullptr ||
         std::string_view(library().table().kind()) == "cuda";
}

TEST(DeviceModelTest, TinyIsGolden) {
  expect_golden("tiny", {}, {7, 1});  // token by token through recorded graphs
}

TEST(DeviceModelTest, TinyIsGoldenWithFp8KeysAndValues) {
  expect_golden("tiny", kFp8Limits, is_full() ? std::vector<int>{7, 1} : std::vector<int>{7},
                KvType::kFp8);
}

// Pieces of a few tokens, and single ones, in one launch each: the same bits, and the prompt's keys
// and values beside those that launched steps wrote.
void expect_persistent(const std::string& name, KvType kv_type, int launched) {
  const Golden golden = read_golden(source_folder() + "/testdata/golden/" + name);
  const Result<checkpoint::Checkpoint> checkpoint =
      checkpoint::Checkpoint::open(weights_folder(name));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  const auto count = static_cast<int>(golden.tokens.size());
  const std::vector<float> whole = Run(*checkpoint, count, kv_type).logits(golden.tokens, count);
  Run run(*checkpoint, count, kv_type, TuningMode::kPersistent);
  run.logits(golden.tokens, launched);  // its keys and values stay where a piece finds them
  for (const int piece : {1, 7}) {
    const std::vector<float> again = run.logits(golden.tokens, piece);
    ASSERT_EQ(again.size(), whole.size());
    EXPECT_EQ(std::memcmp(again.data(), whole.data(), whole.size() * sizeof(float)), 0)
        << name << " in persistent steps of " << piece << " has other bits";
  }
}

TEST(DeviceModelTest, TinyIsTheSameInPersistentSteps) {
  expect_persistent("tiny", KvType::kF16, 50);
}

TEST(DeviceModelTest, TinyIsTheSameInPersistentStepsWithFp8KeysAndValues) {
  if (!is_full()) GTEST_SKIP() << "half a minute in the emulation; PELTON_FULL=1 runs it";
  expect_persistent("tiny", KvType::kFp8, 50);
}

bool is_emulated() {
  return std::string_view(library().table().kind()) == "emulated";
}

TEST(DeviceModelTest, MidIsGolden) {
  if (!is_full()) GTEST_SKIP() << "takes minutes in the emulation; PELTON_FULL=1 runs it";
  expect_golden("mid", {}, is_emulated() ? std::vector<int>{100} : std::vector<int>{100, 33, 1});
}

TEST(DeviceModelTest, MidIsTheSameInPersistentSteps) {
  if (!is_full()) GTEST_SKIP() << "takes minutes in the emulation; PELTON_FULL=1 runs it";
  expect_persistent("mid", KvType::kF16, 100);
}

TEST(DeviceModelTest, MidIsGoldenWithFp8KeysAndValues) {
  if (!is_full()) GTEST_SKIP() << "takes minutes in the emulation; PELTON_FULL=1 runs it";
  expect_golden("mid", kFp8Limits, {100}, KvType::kFp8);
}

// Massive activations, which any rounding to bf16 costs much. On average and in its best tokens
// `outlier` is inside golden's limits; at its worst position and in its divergence it is not, and
// is held to what the model itself loses in bf16. So is the gap at which a best token may be lost:
// it is a single position's, and other orders of adding have others (docs/decisions/0018).
TEST(DeviceModelTest, OutlierLosesLessThanInBf16) {
  if (!is_full()) GTEST_SKIP() << "half a minute in the emulation; PELTON_FULL=1 runs it";
  Differences limits = loss_in_bf16("outlier");
  if (is_emulated()) {  // whose order of adding is known: half as much again as was measured
    limits.error_max = std::min(limits.error_max, 8.6e-2);
    limits.divergence = std::min(limits.divergence, 2.2e-3);
  }
  expect_golden(
      "outlier",
      {.error_max = limits.error_max, .divergence = limits.divergence, .sure_gap = limits.lost_gap},
      is_emulated() ? std::vector<int>{} : std::vector<int>{100});
}

// Keys and values in bf16 are there for who asks for them.
TEST(DeviceModelTest, TinyIsGoldenWithBf16KeysAndValues) {
  expect_golden("tiny", {}, {7}, KvType::kBf16);
}

// Two sequences, one decoding and one in its prompt, in one step: each as if it were alone.
class DeviceModelKvTest : public ::testing::TestWithParam<KvType> {};

TEST_P(DeviceModelKvTest, ABatchIsItsSequences) {
  const auto checkpoint = checkpoint::Checkpoint::open(weights_folder("tiny"));
  ASSERT_TRUE(checkpoint.ok());
  const auto vocab = static_cast<size_t>(checkpoint->config().vocab_size);
  base::ThreadPool pool({.threads = 1, .pin = false});
  auto loaded = DeviceModel::load(*checkpoint, library(),
                                  {.batch_tokens_max = 64,
                                   .sequences_max = 2,
                                   .logit_rows_max = 2,
                                   .positions_max = 64,
                                   .block_counts = {8, 8},
                                   .kv_type = GetParam()},
                                  pool);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  DeviceModel& model = **loaded;
  const std::vector<int32_t> first_blocks{0, 1, 2, 3};
  const std::vector<int32_t> second_blocks{6, 4, 7, 5};
  std::vector<TokenId> tokens;
  for (int i = 0; i < 40; ++i) tokens.push_back((i * 37 + 11) % 500);
  const auto run = [&](const ForwardInput& input) {
    const Result<float*> got = model.forward(input);
    CHECK(got.ok(), got.ok() ? "" : got.error().message);
    return std::vector<float>(*got, *got + input.logit_rows.size() * vocab);
  };
  // 30 tokens, then one more, alone; 20 others alone.
  const ForwardInput prompt{{tokens.begin(), tokens.begin() + 30},
                            {{0, 30, {first_blocks.data(), first_blocks.data()}}},
                            {29}};
  const ForwardInput decode{
      {tokens[30]}, {{30, 1, {first_blocks.data(), first_blocks.data()}}}, {0}};
  const ForwardInput other{{tokens.begin() + 5, tokens.begin() + 25},
                           {{0, 20, {second_blocks.data(), second_blocks.data()}}},
                           {19}};
  run(prompt);
  std::vector<float> alone = run(decode);
  const std::vector<float> other_alone = run(other);
  alone.insert(alone.end(), other_alone.begin(), other_alone.end());
  ForwardInput both = decode;
  both.tokens.insert(both.tokens.end(), other.tokens.begin(), other.tokens.end());
  both.sequences.push_back(other.sequences[0]);
  both.logit_rows.push_back(20);
  const std::vector<float> together = run(both);
  EXPECT_EQ(std::memcmp(together.data(), alone.data(), alone.size() * sizeof(float)), 0);

  // A block copied away and a block that was outside: the same keys and values, the same logits.
  ASSERT_TRUE(model.copy_block({.group = 0, .from = 1, .to = 3}).ok());
  std::vector<uint8_t> outside(static_cast<size_t>(model.swapped_block_bytes(1)));
  ASSERT_TRUE(model.read_block(1, 1, outside.data()).ok());
  ASSERT_TRUE(model.write_block(1, 3, outside.data()).ok());
  const std::vector<int32_t> moved{0, 3};
  ForwardInput again = decode;
  again.sequences[0].tables = {moved.data(), moved.data()};
  const std::vector<float> after = run(again);
  EXPECT_EQ(std::memcmp(after.data(), alone.data(), after.size() * sizeof(float)), 0);
}

INSTANTIATE_TEST_SUITE_P(DeviceModel, DeviceModelKvTest,
                         ::testing::Values(KvType::kF16, KvType::kBf16, KvType::kFp8),
                         [](const auto& info) { return kv_type_name(info.param); });

// tiny's weights in a model whose layers are all of one kind.
std::string tiny_of_one_kind(const std::string& kind) {
  const std::string folder = binary_folder() + "/one_kind." + std::to_string(::getpid());
  std::filesystem::remove_all(folder);
  std::filesystem::copy(weights_folder("tiny"), folder);
  std::string config = *base::read_file(folder + "/config.json");
  for (const std::string other : {"full_attention", "sliding_attention"}) {
    for (size_t at = 0; (at = config.find(other, at)) != std::string::npos; at += kind.size()) {
      config.replace(at, other.size(), kind);
    }
  }
  std::filesystem::remove(folder + "/config.json");
  CHECK(base::write_file(folder + "/config.json", config).ok());
  return folder;
}

// One KV group, with a window or without: the same logits as on the host, but for rounding.
class DeviceModelOfOneKind : public testing::TestWithParam<const char*> {};

TEST_P(DeviceModelOfOneKind, ComputesAsOnTheHost) {
  const std::string folder = tiny_of_one_kind(GetParam());
  const auto checkpoint = checkpoint::Checkpoint::open(folder);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  ASSERT_EQ(families::kv_groups(checkpoint->config(), {}).specs.size(), 1);
  std::vector<TokenId> tokens;
  for (int i = 0; i < 40; ++i) tokens.push_back((i * 37 + 11) % 500);
  std::vector<int> rows(tokens.size());
  for (int i = 0; i < 40; ++i) rows[static_cast<size_t>(i)] = i;
  const auto vocab = static_cast<size_t>(checkpoint->config().vocab_size);

  base::ThreadPool pool({.threads = 2, .pin = false});
  const auto kernels = kernels::make_kernels(kernels::KernelChoice::kAuto, pool);
  ASSERT_TRUE(kernels.ok());
  const auto host =
      load_model(*checkpoint, **kernels, {.batch_tokens_max = 40, .logit_rows_max = 40});
  ASSERT_TRUE(host.ok()) << host.error().message;
  auto runner = SequenceRunner::make(**host, tensor::DType::kF16, 40);
  ASSERT_TRUE(runner.ok()) << runner.error().message;
  const float* const expected = runner->step(tokens, rows, nullptr);

  auto loaded = DeviceModel::load(*checkpoint, library(),
                                  {.batch_tokens_max = 64,
                                   .sequences_max = 2,
                                   .logit_rows_max = 40,
                                   .positions_max = 64,
                                   .block_counts = {8}},
                                  pool);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  const std::vector<int32_t> blocks{2, 5, 1};
  const ForwardInput input{tokens, {{0, 40, {blocks.data()}}}, rows};
  const Result<float*> got = (*loaded)->forward(input);
  ASSERT_TRUE(got.ok()) << got.error().message;
  double difference = 0;
  double norm = 0;
  for (size_t i = 0; i < 40 * vocab; ++i) {
    difference += (double{(*got)[i]} - expected[i]) * (double{(*got)[i]} - expected[i]);
    norm += double{expected[i]} * expected[i];
  }
  EXPECT_LT(std::sqrt(difference / norm), Limits{}.error_mean);
  std::filesystem::remove_all(folder);
}

INSTANTIATE_TEST_SUITE_P(DeviceModel, DeviceModelOfOneKind,
                         testing::Values("full_attention", "sliding_attention"),
                         [](const auto& info) { return std::string(info.param); });

// A scale of the last layer's experts is no number: most of the weights are on their way to the
// device when that is found.
TEST(DeviceModelTest, AnUploadThatFailsSaysWhereAndEnds) {
  const std::string folder = binary_folder() + "/device_upload." + std::to_string(::getpid());
  std::filesystem::remove_all(folder);
  std::filesystem::copy(weights_folder("tiny"), folder);
  std::string name;
  {
    const auto whole = checkpoint::Checkpoint::open(folder);
    ASSERT_TRUE(whole.ok());
    const families::ModelConfig& config = whole->config();
    name = "model.layers." + std::to_string(config.layer_count() - 1) + ".mlp.experts.down_proj";
    const auto scales =
        whole->tensor(name + "_scales", tensor::DType::kU8,
                      std::array<int64_t, 3>{config.expert_count, config.hidden_size,
                                             config.expert_intermediate_size / 32});
    ASSERT_TRUE(scales.ok()) << scales.error().message;
    const std::string path = folder + "/model.safetensors";
    std::string bytes = *base::read_file(path);
    const size_t at = bytes.find(std::string_view(
        reinterpret_cast<const char*>(scales->bytes.data()), scales->bytes.size()));
    ASSERT_NE(at, std::string::npos);
    bytes[at + 5] = '\xFF';
    std::filesystem::remove(path);
    ASSERT_TRUE(base::write_file(path, bytes).ok());
  }
  const auto checkpoint = checkpoint::Checkpoint::open(folder);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  base::ThreadPool pool({.threads = 2, .pin = false});
  auto loaded = DeviceModel::load(*checkpoint, library(),
                                  {.batch_tokens_max = 16,
                                   .sequences_max = 2,
                                   .logit_rows_max = 2,
                                   .positions_max = 32,
                                   .block_counts = {2, 2}},
                                  pool);
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().code, ErrorCode::kBadCheckpoint);
  EXPECT_NE(loaded.error().message.find(name), std::string::npos) << loaded.error().message;
  std::filesystem::remove_all(folder);
}

TEST(DeviceModelTest, WhatDoesNotExistIsAnErrorThatSaysSo) {
  EXPECT_EQ(cuda::DeviceLibrary::open("/nowhere/lib.so").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(cuda::DeviceLibrary::open("libm.so.6").error().code, ErrorCode::kUnsupported);
  const auto checkpoint = checkpoint::Checkpoint::open(weights_folder("tiny"));
  ASSERT_TRUE(checkpoint.ok());
  base::ThreadPool pool({.threads = 1, .pin = false});
  auto loaded = DeviceModel::load(*checkpoint, library(),
                                  {.batch_tokens_max = 16,
                                   .sequences_max = 2,
                                   .logit_rows_max = 2,
                                   .positions_max = 32,
                                   .block_counts = {2, 2}},
                                  pool);
  ASSERT_TRUE(loaded.ok());
  const std::vector<int32_t> blocks{0, 9};
  const ForwardInput beyond{{1}, {{17, 1, {blocks.data(), blocks.data()}}}, {0}};
  const Result<float*> refused = (*loaded)->forward(beyond);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("block"), std::string::npos);
  const ForwardInput fine{{1}, {{0, 1, {blocks.data(), blocks.data()}}}, {0}};
  EXPECT_TRUE((*loaded)->forward(fine).ok());
}

}  // namespace
}  // namespace pelton::models
