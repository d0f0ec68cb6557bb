// POST /v1/completions beyond one prompt and its answer: "truncate_prompt_tokens" and
// "truncation_side" (vLLM), hundreds of prompts, "best_of".
#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "base/random.h"
#include "server/server_fixture.h"

namespace pelton::server {
namespace {

constexpr std::string_view kScript = R"({"context": 64, "rules": [
  {"when": "", "then": "<|channel|>final<|message|>ok<|return|>"}]})";

// The prompt as the answer shows it.
Json answer(ServerFixture& fixture, const std::string& members, const std::string& prompt) {
  const net::HttpResponse response = fixture.post(
      "/v1/completions",
      fmt::format(R"({{"prompt":"{}","max_tokens":2,"echo":true,{}}})", prompt, members));
  EXPECT_EQ(response.status, 200) << response.body;
  return parsed(response.body);
}

std::string shown(ServerFixture& fixture, const std::string& members, const std::string& prompt) {
  const Json body = answer(fixture, members, prompt);
  return body.find("choices")->as_array().at(0).string("text").value_or("");
}

TEST(PromptTruncation, KeepsTheLastTokensOrTheFirst) {
  ServerFixture fixture(kScript, {});
  using testing::StartsWith;
  EXPECT_THAT(shown(fixture, R"("truncate_prompt_tokens":3)", "abcdefg"), StartsWith("efg"));
  EXPECT_THAT(shown(fixture, R"("truncate_prompt_tokens":3,"truncation_side":"right")", "abcdefg"),
              testing::AllOf(StartsWith("abc"), testing::Not(StartsWith("abcd"))));
  EXPECT_THAT(shown(fixture, R"("truncate_prompt_tokens":30)", "abcdefg"), StartsWith("abcdefg"));
  const Json body = answer(fixture, R"("truncate_prompt_tokens":3)", "abcdefg");
  EXPECT_EQ(body.find("usage")->integer("prompt_tokens"), 3);
}

TEST(PromptTruncation, MinusOneLeavesTheAnswerItsRoom) {
  ServerFixture fixture(kScript, {});
  std::string prompt;
  for (int i = 0; i < 100; ++i) prompt += static_cast<char>('a' + i % 7);
  const Json body = answer(fixture, R"("truncate_prompt_tokens":-1)", prompt);
  const int64_t limit = fixture.get("/v1/models").status == 200
                            ? parsed(fixture.get("/v1/models").body)
                                  .find("data")
                                  ->as_array()
                                  .at(0)
                                  .integer("max_model_len")
                                  .value_or(0)
                            : 0;
  EXPECT_EQ(body.find("usage")->integer("prompt_tokens"), limit - 2);
  const net::HttpResponse too_long =
      fixture.post("/v1/completions", fmt::format(R"({{"prompt":"{}","max_tokens":2}})", prompt));
  EXPECT_EQ(too_long.status, 400);
}

TEST(NamedLogprobs, StandBesideTheAlternatives) {
  ServerFixture fixture(
      R"({"rules":[{"when":"","then":"<|channel|>final<|message|>ok<|return|>"}]})", {});
  const net::HttpResponse chat = fixture.post(
      "/v1/chat/completions",
      R"({"messages":[{"role":"user","content":"hi"}],"logprobs":true,"top_logprobs":1,)"
      R"("logprob_token_ids":[65,66,65],"max_tokens":9})");
  ASSERT_EQ(chat.status, 200) << chat.body;
  const Json body = parsed(chat.body);
  const Json& logprobs = *body.find("choices")->as_array().at(0).find("logprobs");
  for (const Json& token : logprobs.find("content")->as_array()) {
    const Json::Array& top = token.find("top_logprobs")->as_array();
    ASSERT_EQ(top.size(), 3U) << token.dump();
    EXPECT_EQ(top[1].string("token"), "A");
    EXPECT_EQ(top[2].string("token"), "B");
  }
  for (const char* path : {"/v1/chat/completions", "/v1/completions"}) {
    const net::HttpResponse alone =
        fixture.post(path, R"({"messages":[{"role":"user","content":"hi"}],"prompt":"a",)"
                           R"("logprob_token_ids":[65]})");
    EXPECT_EQ(alone.status, 400);
    EXPECT_THAT(alone.body, testing::HasSubstr("logprob_token_ids"));
  }
}

TEST(PromptTruncation, BadSidesAndCountsAreRefused) {
  ServerFixture fixture(kScript, {});
  for (const char* member : {R"("truncate_prompt_tokens":0)", R"("truncate_prompt_tokens":-2)",
                             R"("truncate_prompt_tokens":"8")", R"("truncation_side":"middle")"}) {
    EXPECT_EQ(fixture.post("/v1/completions", fmt::format(R"({{"prompt":"a",{}}})", member)).status,
              400)
        << member;
  }
}

// Evaluation harnesses send hundreds of prompts at once, and ask for many alternatives.
TEST(ManyPrompts, Ap16EachHasItsChoiceWithTwentyAlternatives) {
  ServerFixture fixture(kScript, {});
  constexpr int kPrompts = 300;
  std::string prompts;
  for (int i = 0; i < kPrompts; ++i) prompts += fmt::format("{}\"p{}\"", i == 0 ? "" : ",", i);
  const net::HttpResponse response = fixture.post(
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

// Two of four, by the mean of their tokens' log-probabilities; all that was sampled is counted.
TEST(BestOf, TheLikeliestAreShown) {
  ServerFixture::Options options;
  options.executor = [](engine::ModelledExecutor::Options& executor) {
    executor.next_token = [](const engine::ModelledExecutor::Seen& seen) {
      return static_cast<TokenId>('a' +
                                  base::random_bits(seen.sampling.seed, seen.tokens.size()) % 20);
    };
  };
  ServerFixture fixture(kScript, options);
  const std::string body = R"({"prompt":["a","b"],"max_tokens":5,"seed":3,"logprobs":0,)";
  const auto ask = [&](const std::string& members) {
    const net::HttpResponse response = fixture.post("/v1/completions", body + members);
    EXPECT_EQ(response.status, 200) << response.body;
    return parsed(response.body);
  };
  const auto means_of = [](const Json& answer, int prompt, int per_prompt) {
    std::vector<double> means;
    const auto& choices = answer.find("choices")->as_array();
    for (int i = prompt * per_prompt; i < (prompt + 1) * per_prompt; ++i) {
      const Json& choice = choices.at(static_cast<size_t>(i));
      EXPECT_EQ(choice.integer("index"), i);
      double sum = 0;
      const auto& values = choice.find("logprobs")->find("token_logprobs")->as_array();
      for (const Json& value : values) sum += value.as_number();
      means.push_back(sum / static_cast<double>(std::max<size_t>(values.size(), 1)));
    }
    return means;
  };
  const Json all = ask(R"("n":4})");
  const Json best = ask(R"("n":2,"best_of":4})");
  ASSERT_EQ(best.find("choices")->as_array().size(), 4U);
  for (int prompt = 0; prompt < 2; ++prompt) {
    std::vector<double> means = means_of(all, prompt, 4);
    EXPECT_FALSE(std::ranges::is_sorted(means, std::greater<>()) && means.front() == means.back());
    std::ranges::sort(means, std::greater<>());
    means.resize(2);
    EXPECT_EQ(means_of(best, prompt, 2), means);
  }
  EXPECT_EQ(best.find("usage")->integer("completion_tokens"),
            all.find("usage")->integer("completion_tokens"));
}

// Penalties that the model itself brings (generation_config.json) count as the request's do.
TEST(CompletionSampling, SparingLineEndsIsRefusedBesideTheModelsOwnPenalties) {
  ServerFixture fixture(
      kScript, {.model = [](ServedModel& model) { model.sampling = {.repetition_penalty = 1.1}; }});
  const auto status = [&](const std::string& members) {
    const net::HttpResponse response =
        fixture.post("/v1/completions", R"({"prompt":"a","max_tokens":2,)" + members + "}");
    if (response.status == 400) {
      EXPECT_EQ(parsed(response.body).find("error")->string("param"), "penalize_nl");
    }
    return response.status;
  };
  EXPECT_EQ(status(R"("penalize_nl":false)"), 400);
  EXPECT_EQ(status(R"("penalize_nl":true)"), 200);
  EXPECT_EQ(status(R"("penalize_nl":false,"repetition_penalty":1)"), 200);
  EXPECT_EQ(status(R"("penalize_nl":false,"repeat_last_n":0)"), 200);
}

}  // namespace
}  // namespace pelton::server
