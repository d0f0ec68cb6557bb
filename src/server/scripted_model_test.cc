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

TEST(ScriptedModel, TheWordsThatStandLastAnswer) {
  const tokenizer::Tokenizer tokenizer = chat::tiny_tokenizer();
  const base::SystemClock clock;
  const auto options = scripted_executor(
      R"({"rules":[{"when":"one","then":"1"},{"when":"two","then":["2",{"text":"x","times":2}]},
                   {"when":"","then":"0<|call|>"}]})",
      "s.json", tokenizer, clock);
  ASSERT_TRUE(options.ok());
  int64_t arrival = 0;
  const auto answer = [&](std::string_view prompt) {
    ++arrival;
    std::vector<TokenId> tokens = tokenizer.encode(prompt);
    const auto prompt_count = static_cast<int>(tokens.size());
    const request::SamplingParams sampling;
    for (int i = 0; i < 5; ++i) {
      tokens.push_back(options->next_token({.full = tokens,
                                            .window = tokens,
                                            .prompt_count = prompt_count,
                                            .sampling = sampling,
                                            .banned = {},
                                            .seat = 3,
                                            .arrival = arrival}));
    }
    return tokenizer.decode(std::span(tokens).subspan(static_cast<size_t>(prompt_count)));
  };
  EXPECT_EQ(answer("one two"), "2xx<|return|><|return|>");
  EXPECT_EQ(answer("two one"), "1<|return|><|return|><|return|><|return|>");
  EXPECT_EQ(answer("three"), "0<|call|><|call|><|call|><|call|>");
}

}  // namespace
}  // namespace pelton::server
