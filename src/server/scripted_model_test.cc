#include "server/scripted_model.h"

#include <string>

#include <gtest/gtest.h>

#include "chat/tiny_tokenizer.h"

namespace pelton::server {
namespace {

TEST(ScriptedModel, RefusesBadScriptsByField) {
  struct Bad {
    const char* script;
    const char* field;
  };
  constexpr Bad kBad[] = {
      {"{", ""},
      {"{}", "rules"},
      {R"({"rules":[]})", "rules"},
      {R"({"rules":[{"then":"x"}]})", "rules[0].when"},
      {R"({"rules":[{"when":""}]})", "rules[0].then"},
      {R"({"rules":[{"when":"","then":7}]})", "rules[0].then"},
      {R"({"rules":[{"when":"","then":["x",{"text":"y","times":-1}]}]})", "rules[0].then[1]"},
      {R"({"rules":[{"when":"","then":{"text":"y","times":1000000}}]})", "rules[0].then"},
      {R"({"rules":[{"when":"x","then":"y"}]})", "rules"},
      {R"({"rules":[{"when":"","then":"y"}],"step_ms":-1})", "step_ms"},
      {R"({"rules":[{"when":"","then":"y"}],"context":"big"})", "context"},
      {R"({"rules":[{"when":"","then":[{"counted":5}]}]})", "rules[0].then[0]"},
      {R"({"rules":[{"when":"","then":"y"}],"blocks":-1})", "blocks"},
      {R"({"rules":[{"when":"","then":"y"}],"fail_every":-1})", "fail_every"},
      {R"({"rules":[{"when":"","then":"y"}],"host_blocks":"x"})", "host_blocks"},
  };
  const tokenizer::Tokenizer tokenizer = chat::tiny_tokenizer();
  const base::SystemClock clock;
  for (const Bad& bad : kBad) {
    const auto options = scripted_executor(bad.script, "s.json", tokenizer, clock);
    ASSERT_FALSE(options.ok()) << bad.script;
    EXPECT_EQ(options.error().code, ErrorCode::kBadConfig);
    EXPECT_EQ(options.error().field, bad.field) << bad.script;
    EXPECT_TRUE(options.error().message.starts_with("s.json"));
  }
}

class Answers : public ::testing::Test {
 protected:
  void read(std::string_view script) {
    Result<engine::ModelledExecutor::Options> made =
        scripted_executor(script, "s.json", tokenizer_, clock_);
    ASSERT_TRUE(made.ok()) << made.error().message;
    options_ = *std::move(made);
  }
  TokenId next(const std::vector<TokenId>& tokens, int prompt_count) {
    const request::SamplingParams sampling;
    return options_.next_token({.tokens = tokens,
                                .by_group = {tokens},
                                .prompt_count = prompt_count,
                                .sampling = sampling,
                                .banned = {},
                                .slot = 3,
                                .arrival = arrival_});
  }
  std::string answer(std::string_view prompt, int count) {
    ++arrival_;
    std::vector<TokenId> tokens = tokenizer_.encode(prompt);
    const auto prompt_count = static_cast<int>(tokens.size());
    for (int i = 0; i < count; ++i) tokens.push_back(next(tokens, prompt_count));
    return tokenizer_.decode(std::span(tokens).subspan(static_cast<size_t>(prompt_count)));
  }

  const tokenizer::Tokenizer tokenizer_ = chat::tiny_tokenizer();
  const base::SystemClock clock_{};
  engine::ModelledExecutor::Options options_;
  int64_t arrival_ = 0;
};
using ScriptedModelAnswers = Answers;

TEST_F(ScriptedModelAnswers, ByTheWordsThatStandLast) {
  read(R"({"rules":[{"when":"one","then":"1"},{"when":"two","then":["2",{"text":"x","times":2}]},
                    {"when":"","then":"0<|call|>"}]})");
  EXPECT_EQ(answer("one two", 5), "2xx<|return|><|return|>");
  EXPECT_EQ(answer("two one", 5), "1<|return|><|return|><|return|><|return|>");
  EXPECT_EQ(answer("three", 5), "0<|call|><|call|><|call|><|call|>");
}

TEST_F(ScriptedModelAnswers, CountForWhoAsks) {
  read(R"({"rules":[{"when":"for ","then":["x",{"counted":2},"y",{"counted":1}]},
                    {"when":"","then":"0"}]})");
  const auto begins = [&](std::string_view prompt, const std::string& text) {
    const std::string said = answer(prompt, 60);
    EXPECT_EQ(said.substr(0, text.size()), text) << prompt;
  };
  begins("for 471 3 2 and so on", "x471b0 471b1 y471a0 471a1 471a2 <|return|>");
  begins("for 1 9 for 2 1 0.", "xy2a0 <|return|>");
  begins("for 12", "xy<|return|>");
  begins("for ", "xy<|return|>");
  begins("for 1 99999999999999999999", "xy<|return|>");
}

TEST(ScriptedModel, StepsFailWhereAsked) {
  const tokenizer::Tokenizer tokenizer = chat::tiny_tokenizer();
  const base::SystemClock clock;
  const auto options = scripted_executor(R"({"rules":[{"when":"","then":"y"}],"fail_every":3})",
                                         "s.json", tokenizer, clock);
  ASSERT_TRUE(options.ok());
  for (int64_t step = 0; step < 9; ++step) {
    engine::StepPlan plan;
    plan.step = step;
    EXPECT_EQ(options->fail_step(plan).has_value(), step % 3 == 2);
  }
}

TEST_F(ScriptedModelAnswers, TellWhenWhatWasWrittenIsNotWhatIsRead) {
  read(R"({"rules":[{"when":"for ","then":[{"counted":1}]},{"when":"","then":"0"}]})");
  ++arrival_;
  std::vector<TokenId> tokens = tokenizer_.encode("for 7 90");
  const auto prompt_count = static_cast<int>(tokens.size());
  for (int i = 0; i < 6; ++i) tokens.push_back(next(tokens, prompt_count));
  const std::string before = tokenizer_.decode(tokens);
  EXPECT_EQ(before.find('!'), std::string::npos) << before;
  std::swap(tokens[static_cast<size_t>(prompt_count)], tokens.back());
  EXPECT_EQ(tokenizer_.decode(std::vector{next(tokens, prompt_count)}), "!") << before;
}

}  // namespace
}  // namespace pelton::server
