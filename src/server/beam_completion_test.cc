// POST /v1/completions with "use_beam_search": the likeliest continuations of a model of a few
// letters, and what does not go with it. That the real arithmetic finds what trying everything by
// hand finds is in tests/box_model_test.py.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "server/server_fixture.h"

namespace pelton::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::string_view kScript = R"({"context": 64, "rules": [
  {"when": "", "then": "<|channel|>final<|message|>ok<|return|>"}]})";

// beam_search.h's example, and a stop token behind an "x": bytes are tokens.
ServerFixture::Options few_letters() {
  static const tokenizer::Tokenizer tokenizer = chat::tiny_tokenizer();
  static const TokenId end = tokenizer.special_id("<|return|>").value();
  ServerFixture::Options options;
  options.executor = [](engine::ModelledExecutor::Options& executor) {
    executor.score = [](std::span<const TokenId> before, TokenId token, int top) {
      const auto next = [&]() -> std::vector<std::pair<TokenId, float>> {
        switch (before.back()) {
          case 'a':
            return {{'x', .5F}, {'y', .499F}};
          case 'b':
            return {{'x', .9F}, {'y', .1F}};
          case 'x':
            return {{end, .8F}, {'z', .2F}};
          default:
            return {{'a', .6F}, {'b', .4F}};
        }
      };
      engine::PromptToken scored;
      scored.scored.token = token;
      for (const auto& [id, share] : next()) {
        if (std::ssize(scored.scored.top) < top)
          scored.scored.top.emplace_back(id, std::log(share));
      }
      return scored;
    };
  };
  return options;
}

net::HttpResponse ask(ServerFixture& fixture, const std::string& members) {
  return fixture.post("/v1/completions",
                      fmt::format(R"({{"prompt":"hi","use_beam_search":true,{}}})", members));
}

std::vector<std::string> texts_of(const net::HttpResponse& response) {
  EXPECT_EQ(response.status, 200) << response.body;
  std::vector<std::string> texts;
  const Json body = parsed(response.body);
  for (const Json& choice : body.find("choices")->as_array()) {
    EXPECT_EQ(choice.integer("index"), std::ssize(texts));
    texts.push_back(choice.string("text").value_or("") + "/" +
                    choice.string("finish_reason").value_or(""));
  }
  return texts;
}

TEST(BeamCompletion, FindsTheLikeliestAnswers) {
  ServerFixture fixture(kScript, few_letters());
  const net::HttpResponse two = ask(fixture, R"("n":2,"max_tokens":2,"logprobs":1)");
  EXPECT_THAT(texts_of(two), ElementsAre("bx/length", "ax/length"));
  const Json body = parsed(two.body);
  EXPECT_EQ(body.find("usage")->integer("prompt_tokens"), 2);
  EXPECT_EQ(body.find("usage")->integer("completion_tokens"), 4);
  const Json& reported = *body.find("choices")->as_array()[0].find("logprobs");
  const auto& logprobs = reported.find("token_logprobs")->as_array();
  ASSERT_EQ(logprobs.size(), 2U);
  EXPECT_NEAR(logprobs[0].as_number() + logprobs[1].as_number(), std::log(.36), 1e-5);
  EXPECT_EQ(reported.find("top_logprobs")->as_array()[0].as_object().size(), 2U) << "and its own";
  // As wide as "best_of" or "beam_width", of which one is shown; one beam alone is greedy.
  EXPECT_THAT(texts_of(ask(fixture, R"("best_of":2,"max_tokens":2)")), ElementsAre("bx/length"));
  EXPECT_THAT(texts_of(ask(fixture, R"("beam_width":2,"max_tokens":2)")), ElementsAre("bx/length"));
  EXPECT_THAT(texts_of(ask(fixture, R"("n":1,"max_tokens":2)")), ElementsAre("ax/length"));
}

TEST(BeamCompletion, AStopTokenEndsABeam) {
  ServerFixture fixture(kScript, few_letters());
  EXPECT_THAT(texts_of(ask(fixture, R"("n":2,"max_tokens":3)")), ElementsAre("bx/stop", "ax/stop"));
  EXPECT_THAT(
      texts_of(ask(fixture, R"("n":1,"beam_width":2,"max_tokens":9,"early_stopping":true)")),
      ElementsAre("bx/stop"));
  // The end is a token as any other: behind it comes what the model says behind it.
  EXPECT_THAT(texts_of(ask(fixture, R"("n":1,"max_tokens":3,"ignore_eos":true)"))[0],
              HasSubstr("/length"));
}

TEST(BeamCompletion, EveryPromptHasItsOwn) {
  ServerFixture fixture(kScript, few_letters());
  const net::HttpResponse response = fixture.post(
      "/v1/completions",
      R"({"prompt":["hi","a"],"use_beam_search":true,"n":2,"max_tokens":2,"echo":true})");
  // Of "a" the longer one is better, as log(.499 * .6) / 3 > log(.5 * .8) / 2: the prompt counts.
  EXPECT_THAT(texts_of(response),
              ElementsAre("hibx/length", "hiax/length", "aya/length", "ax/stop"));
  EXPECT_EQ(parsed(response.body).find("usage")->integer("prompt_tokens"), 3);
}

TEST(BeamCompletion, WhatDoesNotGoWithItIsNamed) {
  ServerFixture fixture(kScript, few_letters());
  for (const auto& [member, field] : std::vector<std::pair<std::string, std::string>>{
           {R"("stream":true)", "stream"},
           {R"("temperature":0.5)", "temperature"},
           {R"("top_p":0.5)", "top_p"},
           {R"("repeat_penalty":1.5)", "repetition_penalty"},
           {R"("logit_bias":{"5":1})", "logit_bias"},
           {R"("stop":"x")", "stop"},
           {R"("regex":"a+")", "regex"},
           {R"("max_tokens":0)", "max_tokens"},
           {R"("n":17)", "n"},
           {R"("n":3,"beam_width":2)", "beam_width"},
           {R"("beam_width":17)", "beam_width"},
           {R"("best_of":3,"beam_width":2)", "beam_width"},
           {R"("length_penalty":"long")", "length_penalty"},
           {R"("early_stopping":"soon")", "early_stopping"},
           {R"("early_stopping":7)", "early_stopping"}}) {
    const net::HttpResponse response = ask(fixture, member);
    EXPECT_EQ(response.status, 400) << member << response.body;
    EXPECT_EQ(parsed(response.body).find("error")->string("param"), field) << response.body;
  }
  const net::HttpResponse alone =
      fixture.post("/v1/completions", R"({"prompt":"hi","beam_width":2,"max_tokens":2})");
  EXPECT_EQ(alone.status, 400) << alone.body;
  for (const char* const neutral : {R"("temperature":0)", R"("temperature":1)", R"("top_p":1)",
                                    R"("seed":7)", R"("early_stopping":"never")"}) {
    EXPECT_EQ(ask(fixture, std::string(neutral) + R"(,"max_tokens":2)").status, 200) << neutral;
  }
}

}  // namespace
}  // namespace pelton::server
