// Weights that are no numbers (rows ST-24 and ST-26 of docs/formats/hostile_files.md): the request
// that meets them fails by name; its neighbours in the same batch, and the process, do not notice.
#include <cstring>
#include <filesystem>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/json.h"
#include "checkpoint/safetensors.h"
#include "engine/engine.h"
#include "executor/local_executor.h"
#include "grammar/ebnf.h"
#include "grammar/grammar_state.h"

namespace pelton::executor {
namespace {

const std::string kTiny = std::string(PELTON_SOURCE_DIR) + "/testdata/golden/tiny";

std::vector<TokenId> golden(const char* name) {
  const Json json = *Json::parse(*base::read_file(kTiny + "/tokens.json"));
  std::vector<TokenId> tokens;
  for (const Json& token : json.find(name)->as_array()) {
    tokens.push_back(static_cast<TokenId>(token.as_integer()));
  }
  return tokens;
}

struct Outcome {
  std::vector<TokenId> tokens;
  std::optional<Error> error;
};

Outcome outcome_of(engine::TokenStream& stream) {
  Outcome outcome;
  while (true) {
    engine::TokenStream::Batch batch = stream.wait();
    for (const engine::SampledToken& token : batch.tokens) outcome.tokens.push_back(token.token);
    if (!batch.end) continue;
    outcome.error = batch.end->error;
    return outcome;
  }
}

class Hostile : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "executor_hostile_" +
              testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
    std::filesystem::copy(kTiny, folder_);
    weights_ = *base::read_file(kTiny + "/model.safetensors");
  }
  void TearDown() override {
    engine_.reset();
    executor_.reset();
    std::filesystem::remove_all(folder_);
  }

  // The bytes of one tensor, to be damaged.
  std::span<char> tensor(const std::string& name) {
    const auto tensors = checkpoint::parse_safetensors(
        {reinterpret_cast<const uint8_t*>(weights_.data()), weights_.size()}, "model.safetensors");
    for (const checkpoint::StoredTensor& stored : *tensors) {
      if (stored.name == name) return {weights_.data() + stored.begin, stored.end - stored.begin};
    }
    ADD_FAILURE() << name;
    return {};
  }

  void start() {
    const std::string file = folder_ + "/model.safetensors";
    std::filesystem::remove(file);
    ASSERT_TRUE(base::write_file(file, weights_).ok());
    checkpoint_.emplace(std::move(checkpoint::Checkpoint::open(folder_).value()));
    executor_ = std::move(
        LocalExecutor::create(*checkpoint_, {.threads = 2, .context_tokens = 512}).value());
    engine_ = std::make_unique<engine::Engine>(engine::Engine::Options{}, *executor_, clock_, log_);
  }

  engine::TokenStream submit(std::vector<TokenId> prompt, int max_new) {
    return std::move(engine_
                         ->submit({.id = "test",
                                   .prompt = std::move(prompt),
                                   .sampling = {.temperature = 0},
                                   .stop = {.max_new_tokens = max_new}})
                         .value());
  }

  std::string folder_;
  std::string weights_;
  base::SystemClock clock_;
  base::Log log_{clock_, {.level = base::LogLevel::kNone}};
  std::optional<checkpoint::Checkpoint> checkpoint_;
  std::unique_ptr<LocalExecutor> executor_;
  std::unique_ptr<engine::Engine> engine_;
};

// One token's embedding is NaN, another's infinite, a third's denormal.
TEST_F(Hostile, ST_24_WeightsThatAreNoNumbers) {
  const std::vector<TokenId> prompt = golden("prompt");
  const std::vector<TokenId> continuation = golden("continuation");
  std::vector<TokenId> unused;
  for (TokenId token = 0; unused.size() < 3; ++token) {
    const auto in = [&](const std::vector<TokenId>& tokens) {
      return std::find(tokens.begin(), tokens.end(), token) != tokens.end();
    };
    if (!in(prompt) && !in(continuation)) unused.push_back(token);
  }
  const std::span<char> embedding = tensor("model.embed_tokens.weight");
  const size_t row_bytes = embedding.size() / 512;
  constexpr uint16_t kNan = 0x7FC0;
  constexpr uint16_t kInfinity = 0x7F80;
  constexpr uint16_t kDenormal = 0x0001;
  const auto fill = [&](TokenId token, uint16_t value) {
    for (size_t i = 0; i < row_bytes; i += 2) {
      std::memcpy(embedding.data() + static_cast<size_t>(token) * row_bytes + i, &value, 2);
    }
  };
  fill(unused[0], kNan);
  fill(unused[1], kInfinity);
  fill(unused[2], kDenormal);
  start();

  auto witness = submit(prompt, 64);
  auto with_nan = submit({prompt[0], unused[0], prompt[1]}, 64);
  auto with_infinity = submit({prompt[0], unused[1], prompt[1]}, 64);
  auto with_denormal = submit({prompt[0], unused[2], prompt[1]}, 8);
  for (engine::TokenStream* stream : {&with_nan, &with_infinity}) {
    const Outcome outcome = outcome_of(*stream);
    ASSERT_TRUE(outcome.error.has_value());
    EXPECT_EQ(outcome.error->code, ErrorCode::kBadCheckpoint);
    EXPECT_TRUE(outcome.tokens.empty());
  }
  EXPECT_EQ(outcome_of(with_denormal).tokens.size(), 8u);
  EXPECT_EQ(engine_->stats().scheduler.numerical_errors, 2);
  const Outcome undisturbed = outcome_of(witness);
  EXPECT_FALSE(undisturbed.error.has_value());
  EXPECT_EQ(undisturbed.tokens,
            std::vector<TokenId>(continuation.begin(), continuation.begin() + 64));
  EXPECT_EQ(engine_->stats().blocks_used, (kv::PerGroup<int>{0, 0}));
}

// Row TN-09: one tenant leaves every block of keys and values full of NaN, and the next one's
// answers are what they were: no cell is read before its owner has written it, not even to be
// weighed with nothing. Beside the poison, and after it.
TEST_F(Hostile, TN_09_BlocksOfAnotherAreNotReadBeforeTheyAreWritten) {
  const std::vector<TokenId> prompt = golden("prompt");
  const std::vector<TokenId> continuation = golden("continuation");
  TokenId poison = 0;
  while (std::find(prompt.begin(), prompt.end(), poison) != prompt.end() ||
         std::find(continuation.begin(), continuation.end(), poison) != continuation.end()) {
    ++poison;
  }
  const std::span<char> embedding = tensor("model.embed_tokens.weight");
  const size_t row_bytes = embedding.size() / 512;
  constexpr uint16_t kNan = 0x7FC0;
  for (size_t i = 0; i < row_bytes; i += 2) {
    std::memcpy(embedding.data() + static_cast<size_t>(poison) * row_bytes + i, &kNan, 2);
  }
  start();
  const engine::ExecutorCapacity& capacity = executor_->capacity();
  const auto spread = [&] {
    std::vector<engine::TokenStream> streams;
    const int most = std::max(capacity.blocks(0, kv::kDevice), capacity.blocks(1, kv::kDevice));
    const int count = most * capacity.block_tokens / 400 + 2;
    for (int i = 0; i < count; ++i) {
      // Different from its first token on: what is in the cache is not computed again.
      std::vector<TokenId> tokens(400, poison);
      for (int at = 0; at < 4; ++at)
        tokens[static_cast<size_t>(at)] = prompt[0] + (i >> at * 2) % 4;
      streams.push_back(submit(std::move(tokens), 1));
    }
    for (engine::TokenStream& stream : streams) {
      const Outcome outcome = outcome_of(stream);
      ASSERT_TRUE(outcome.error.has_value());
      EXPECT_EQ(outcome.error->code, ErrorCode::kBadCheckpoint);
    }
  };
  const auto expected = std::vector<TokenId>(continuation.begin(), continuation.begin() + 48);
  for (int round = 0; round < 2; ++round) {
    spread();
    auto beside = submit(prompt, 48);
    spread();
    const Outcome undisturbed = outcome_of(beside);
    ASSERT_FALSE(undisturbed.error.has_value()) << undisturbed.error->message;
    EXPECT_EQ(undisturbed.tokens, expected) << "round " << round;
    // A prompt whose end fills no block, and one of a single token.
    auto brief = submit({prompt[0]}, 20);
    EXPECT_FALSE(outcome_of(brief).error.has_value());
  }
}

// Rows JS-25 and JS-28 of the hardening list: after "ab" nothing may follow, not even an end. Never
// any token instead; and the neighbours do not notice.
TEST_F(Hostile, JS_28_AGrammarThatLeavesNoToken) {
  start();
  std::vector<std::string> texts;
  for (int byte = 0; byte < 256; ++byte) texts.push_back(std::string(1, static_cast<char>(byte)));
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  grammar::GrammarFsm::Parts parts;
  parts.trie = std::make_shared<const grammar::TokenTrie>(views);
  const std::vector<std::string> choice = {"ab"};
  auto text = grammar::TokenGrammar::make(grammar::compile_choice(choice).value(), parts.trie);
  parts.segments.push_back(
      {grammar::GrammarFsm::Segment::Text::kGrammar, std::move(text).value(), {}});
  parts.starts = {0};
  const grammar::GrammarState guide(std::make_shared<const grammar::GrammarFsm>(std::move(parts)));

  const std::vector<TokenId> prompt = golden("prompt");
  const std::vector<TokenId> continuation = golden("continuation");
  auto witness = submit(prompt, 64);
  request::GenerationRequest request{.id = "guided", .prompt = prompt};
  request.stop.max_new_tokens = 64;
  request.guide = guide;
  auto guided = std::move(engine_->submit(std::move(request)).value());
  const Outcome outcome = outcome_of(guided);
  ASSERT_TRUE(outcome.error.has_value());
  EXPECT_EQ(outcome.error->code, ErrorCode::kUnsupported);  // a 400: the format's own fault
  EXPECT_EQ(outcome.tokens, (std::vector<TokenId>{'a', 'b'}));
  EXPECT_EQ(outcome_of(witness).tokens,
            std::vector<TokenId>(continuation.begin(), continuation.begin() + 64));
}

// Scale byte 255 is E8M0's NaN.
TEST_F(Hostile, ST_26_ScalesThatAreNoNumbers) {
  for (const char* name : {"gate_up_proj_scales", "down_proj_scales"}) {
    const std::span<char> scales = tensor(std::string("model.layers.0.mlp.experts.") + name);
    std::memset(scales.data(), 0xFF, scales.size());
  }
  start();
  auto stream = submit(golden("prompt"), 4);
  const Outcome outcome = outcome_of(stream);
  ASSERT_TRUE(outcome.error.has_value());
  EXPECT_EQ(outcome.error->code, ErrorCode::kBadCheckpoint);
}

}  // namespace
}  // namespace pelton::executor
