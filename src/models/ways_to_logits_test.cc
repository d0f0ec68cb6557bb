// A model's logits are asked for in four ways, and two of them begin at the final normed state:
// drafters' heads, and labels as tokens. So what is of the logits belongs to the head, and all four
// agree whatever a family does with them.
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/file.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/family_golden.h"
#include "models/sequence_runner.h"

namespace pelton::models {
namespace {

constexpr int kTokens = 24;

struct Seen {
  std::vector<float> state;  // of the last token, normed
  std::vector<float> forward;
  std::vector<float> again;  // logits_of
  std::vector<float> head;
  std::vector<float> some;  // token_logits_of
};

Seen look(const std::string& folder, kernels::KernelChoice choice) {
  base::ThreadPool pool({.threads = 2, .pin = false});
  auto kernels = kernels::make_kernels(choice, pool).value();
  const auto checkpoint = checkpoint::Checkpoint::open(folder);
  CHECK(checkpoint.ok(), checkpoint.ok() ? "" : checkpoint.error().message);
  const auto vocab = static_cast<size_t>(checkpoint->config().vocab_size);
  const auto hidden = static_cast<size_t>(checkpoint->config().hidden_size);
  std::vector<TokenId> tokens;
  for (int i = 0; i < kTokens; ++i) tokens.push_back(i * 37 % static_cast<int>(vocab));
  auto model =
      load_model(*checkpoint, *kernels, {.batch_tokens_max = kTokens, .logit_rows_max = kTokens});
  CHECK(model.ok(), model.ok() ? "" : model.error().message);
  auto runner = SequenceRunner::make(**model, tensor::DType::kF32, kTokens);
  CHECK(runner.ok());
  const std::vector<int> last = {kTokens - 1};
  Seen seen;
  const float* const logits = runner->step(tokens, last, nullptr);
  seen.forward.assign(logits, logits + vocab);
  (*model)->normed_rows(
      last, [&](size_t, const float* state) { seen.state.assign(state, state + hidden); });
  (*model)->logits_of(last,
                      [&](size_t, float* row, size_t) { seen.again.assign(row, row + vocab); });
  seen.head.resize(vocab);
  (*model)->head(seen.head.data(), seen.state.data(), 1);
  const std::vector<TokenId> few = {3, static_cast<TokenId>(vocab) - 1};
  seen.some.resize(few.size());
  (*model)->token_logits_of(seen.state.data(), few, seen.some.data());
  return seen;
}

class WaysToLogits : public testing::TestWithParam<kernels::KernelChoice> {
 protected:
  void SetUp() override { std::filesystem::remove_all(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // A golden case with this value of this key, its weights made.
  std::string golden(const std::string& name, const std::string& key, double value) const {
    const std::string from = std::string(PELTON_SOURCE_DIR) + "/testdata/golden/" + name;
    const std::string to = folder_ + "/" + name + std::to_string(value);
    CHECK(checkpoint::write_family_golden(from, to).ok());
    Json config = Json::parse(base::read_file(to + "/config.json").value()).value();
    config.set(key, Json(value));
    CHECK(base::write_file(to + "/config.json", config.dump()).ok());
    return to;
  }

  const std::string folder_ = testing::TempDir() + "ways_to_logits_test";
};

TEST_P(WaysToLogits, AllAgree) {
  for (const auto& [name, key, value] :
       {std::tuple("granite", "logits_scaling", 1.6), std::tuple("qwen2", "rms_norm_eps", 1e-6)}) {
    const Seen seen = look(golden(name, key, value), GetParam());
    EXPECT_EQ(seen.again, seen.forward) << name;
    EXPECT_EQ(seen.head, seen.forward) << name;
    EXPECT_EQ(seen.some, (std::vector<float>{seen.forward[3], seen.forward.back()})) << name;
  }
}

TEST_P(WaysToLogits, AScaleOfThemIsNotOfTheStateAheadOfTheHead) {
  const Seen one = look(golden("granite", "logits_scaling", 1.6), GetParam());
  const Seen half = look(golden("granite", "logits_scaling", 3.2), GetParam());
  EXPECT_EQ(half.state, one.state);
  std::vector<float> halved = one.head;
  for (float& logit : halved) logit *= 0.5f;  // a power of two: exact
  EXPECT_EQ(half.head, halved);
  EXPECT_EQ(half.forward, halved);
}

INSTANTIATE_TEST_SUITE_P(Kernels, WaysToLogits,
                         testing::Values(kernels::KernelChoice::kReference,
                                         kernels::KernelChoice::kAuto),
                         [](const auto& kernels) {
                           return kernels.param == kernels::KernelChoice::kAuto ? "fast"
                                                                                : "reference";
                         });

}  // namespace
}  // namespace pelton::models
