// "truncate_prompt_tokens" and "truncation_side" (vLLM): what is left of a prompt.
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "server/server_house.h"

namespace pelton::server {
namespace {

constexpr std::string_view kScript = R"({"context": 64, "rules": [
  {"when": "", "then": "<|channel|>final<|message|>ok<|return|>"}]})";

// The prompt as the answer shows it.
Json answer(ServerHouse& house, const std::string& members, const std::string& prompt) {
  const net::HttpResponse response = house.post(
      "/v1/completions",
      fmt::format(R"({{"prompt":"{}","max_tokens":2,"echo":true,{}}})", prompt, members));
  EXPECT_EQ(response.status, 200) << response.body;
  return parsed(response.body);
}

std::string shown(ServerHouse& house, const std::string& members, const std::string& prompt) {
  const Json body = answer(house, members, prompt);
  return body.find("choices")->as_array().at(0).string("text").value_or("");
}

TEST(PromptTruncation, KeepsTheLastTokensOrTheFirst) {
  ServerHouse house(kScript, {});
  using testing::StartsWith;
  EXPECT_THAT(shown(house, R"("truncate_prompt_tokens":3)", "abcdefg"), StartsWith("efg"));
  EXPECT_THAT(shown(house, R"("truncate_prompt_tokens":3,"truncation_side":"right")", "abcdefg"),
              testing::AllOf(StartsWith("abc"), testing::Not(StartsWith("abcd"))));
  EXPECT_THAT(shown(house, R"("truncate_prompt_tokens":30)", "abcdefg"), StartsWith("abcdefg"));
  const Json body = answer(house, R"("truncate_prompt_tokens":3)", "abcdefg");
  EXPECT_EQ(body.find("usage")->integer("prompt_tokens"), 3);
}

TEST(PromptTruncation, MinusOneLeavesTheAnswerItsRoom) {
  ServerHouse house(kScript, {});
  std::string prompt;
  for (int i = 0; i < 100; ++i) prompt += static_cast<char>('a' + i % 7);
  const Json body = answer(house, R"("truncate_prompt_tokens":-1)", prompt);
  const int64_t limit = house.get("/v1/models").status == 200 ? parsed(house.get("/v1/models").body)
                                                                    .find("data")
                                                                    ->as_array()
                                                                    .at(0)
                                                                    .integer("max_model_len")
                                                                    .value_or(0)
                                                              : 0;
  EXPECT_EQ(body.find("usage")->integer("prompt_tokens"), limit - 2);
  const net::HttpResponse too_long =
      house.post("/v1/completions", fmt::format(R"({{"prompt":"{}","max_tokens":2}})", prompt));
  EXPECT_EQ(too_long.status, 400);
}

TEST(PromptTruncation, BadSidesAndCountsAreRefused) {
  ServerHouse house(kScript, {});
  for (const char* member : {R"("truncate_prompt_tokens":0)", R"("truncate_prompt_tokens":-2)",
                             R"("truncate_prompt_tokens":"8")", R"("truncation_side":"middle")"}) {
    EXPECT_EQ(house.post("/v1/completions", fmt::format(R"({{"prompt":"a",{}}})", member)).status,
              400)
        << member;
  }
}

// Evaluation harnesses send hundreds of prompts at once, and ask for many alternatives.
TEST(ManyPrompts, Ap16EachHasItsChoiceWithTwentyAlternatives) {
  ServerHouse house(kScript, {});
  constexpr int kPrompts = 300;
  std::string prompts;
  for (int i = 0; i < kPrompts; ++i) prompts += fmt::format("{}\"p{}\"", i == 0 ? "" : ",", i);
  const net::HttpResponse response = house.post(
      "/v1/completions",
      fmt::format(R"({{"prompt":[{}],"max_tokens":1,"logprobs":20,"echo":false}})", prompts));
  ASSERT_EQ(response.status, 200) << response.body.substr(0, 500);
  const Json body = parsed(response.body);
  const auto& choices = body.find("choices")->as_array();
  ASSERT_EQ(choices.size(), static_cast<size_t>(kPrompts));
  for (int i = 0; i < kPrompts; ++i) {
    EXPECT_EQ(choices[static_cast<size_t>(i)].integer("index"), i);
  }
}

}  // namespace
}  // namespace pelton::server
