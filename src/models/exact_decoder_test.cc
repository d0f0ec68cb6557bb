// gpt-oss far beyond its window and its original context, against a second evaluation in float64
// (exact_decoder.h).
// PELTON_FULL=1 asks gpt-oss up to the last position that it has.
#include "models/exact_decoder.h"

#include <cstdlib>
#include <filesystem>

#include <gtest/gtest.h>

#include "base/file.h"
#include "checkpoint/family_golden.h"
#include "models/sequence_runner.h"
#include "tensor/npy.h"

namespace pelton::models {
namespace {

std::string golden_folder(const std::string& name) {
  return std::string(PELTON_SOURCE_DIR) + "/testdata/golden/" + name;
}

Json read_json(const std::string& file) {
  return Json::parse(*base::read_file(file)).value();
}

double relative_error(const float* got, const ExactDecoder::Vector& exact) {
  double difference = 0;
  double size = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    difference += (got[i] - exact[i]) * (got[i] - exact[i]);
    size += exact[i] * exact[i];
  }
  return std::sqrt(difference / size);
}

std::vector<TokenId> some_tokens(int64_t count, int vocab) {
  std::vector<TokenId> tokens;
  uint64_t state = 20261123;
  for (int64_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005 + 1442695040888963407;
    tokens.push_back(static_cast<TokenId>((state >> 33) % static_cast<uint64_t>(vocab)));
  }
  return tokens;
}

struct Arithmetic {
  kernels::KernelChoice kernels;
  int chunk;
  double error_max;
};
// testdata/golden/README.md
constexpr Arithmetic kReference{kernels::KernelChoice::kReference, 7, 1e-4};
constexpr Arithmetic kFast{kernels::KernelChoice::kAuto, 1024, 2.5e-2};

// The largest relative error of a row of logits at `positions`; keys and values in float32.
double error_of(const checkpoint::Checkpoint& checkpoint, const Arithmetic& how,
                const std::vector<TokenId>& tokens, const std::vector<int64_t>& positions,
                const std::vector<ExactDecoder::Vector>& exact) {
  base::ThreadPool pool({.threads = 2, .pin = false});
  auto kernels = kernels::make_kernels(how.kernels, pool).value();
  auto model = load_model(checkpoint, *kernels,
                          {.batch_tokens_max = how.chunk, .logit_rows_max = how.chunk});
  CHECK(model.ok(), model.ok() ? "" : model.error().message);
  const auto count = static_cast<int64_t>(tokens.size());
  auto runner = SequenceRunner::make(**model, tensor::DType::kF32, static_cast<int>(count));
  CHECK(runner.ok());
  double most = 0;
  for (int64_t begin = 0; begin < count; begin += how.chunk) {
    const int64_t end = std::min(count, begin + how.chunk);
    std::vector<int> rows;
    std::vector<size_t> of;
    for (size_t i = 0; i < positions.size(); ++i) {
      if (positions[i] < begin || positions[i] >= end) continue;
      rows.push_back(static_cast<int>(positions[i] - begin));
      of.push_back(i);
    }
    const float* got = runner->step(
        std::span(tokens).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)),
        rows, nullptr);
    for (size_t i = 0; i < of.size(); ++i) {
      const auto vocab = static_cast<int64_t>(exact[of[i]].size());
      most = std::max(most, relative_error(got + static_cast<int64_t>(i) * vocab, exact[of[i]]));
    }
  }
  return most;
}

// What is compared with is right where somebody else's evaluation says what is right.
TEST(ExactDecoder, GivesTheGoldenLogits) {
  for (const char* name : {"tiny"}) {
    const std::string golden = golden_folder(name);
    std::string folder = golden;
    if (!std::filesystem::exists(golden + "/model.safetensors")) {
      folder = testing::TempDir() + "exact_decoder_test_golden";
      std::filesystem::remove_all(folder);
      ASSERT_TRUE(checkpoint::write_family_golden(golden, folder).ok());
    }
    const auto checkpoint = checkpoint::Checkpoint::open(folder);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    const Json kept = read_json(golden + "/tokens.json");
    std::vector<TokenId> tokens;
    for (const char* part : {"prompt", "continuation"}) {
      for (const Json& id : kept.find(part)->as_array()) {
        tokens.push_back(static_cast<TokenId>(id.as_integer()));
      }
    }
    std::vector<int64_t> positions;
    for (const Json& position : kept.find("logit_positions")->as_array()) {
      positions.push_back(position.as_integer());
    }
    const auto logits = tensor::read_npy(golden + "/logits_exact.npy");
    ASSERT_TRUE(logits.ok());
    const auto* wanted = reinterpret_cast<const float*>(logits->bytes.data());
    ExactDecoder decoder(read_json(folder + "/config.json"), *checkpoint);
    for (const ExactDecoder::Vector& row : decoder.logits(tokens, positions)) {
      EXPECT_LT(relative_error(wanted, row), 1e-6) << name;
      wanted += row.size();
    }
  }
}

// Behind 4 096 positions lies what YaRN is for; 131 072 is as many as the model has.
TEST(GptOssFarOut, LogitsAreExact) {
  const bool is_full = std::getenv("PELTON_FULL") != nullptr;
  const auto checkpoint = checkpoint::Checkpoint::open(golden_folder("tiny"));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  ASSERT_EQ(checkpoint->config().context_max, 131072);
  std::vector<int64_t> positions = {4095, 4096};
  if (is_full) positions.insert(positions.end(), {32767, 131071});
  const std::vector<TokenId> tokens =
      some_tokens(positions.back() + 1, checkpoint->config().vocab_size);
  const Json config = read_json(golden_folder("tiny") + "/config.json");
  const auto exact = ExactDecoder(config, *checkpoint).logits(tokens, positions);
  EXPECT_LE(error_of(*checkpoint, kFast, tokens, positions, exact), kFast.error_max);
  if (!is_full) return;
  const std::vector<TokenId> front(tokens.begin(), tokens.begin() + 32768);
  Arithmetic reference = kReference;
  reference.chunk = 1024;
  EXPECT_LE(error_of(*checkpoint, reference, front, {4095, 4096, 32767}, exact),
            reference.error_max);
}

}  // namespace
}  // namespace pelton::models
