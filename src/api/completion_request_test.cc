#include "api/completion_request.h"

#include <string>

#include <gtest/gtest.h>

namespace pelton::api {
namespace {

constexpr RequestLimits kLimits{.vocab_size = 1000};

struct Bad {
  const char* body;
  const char* field;
};

constexpr Bad kBad[] = {
    {R"({})", "prompt"},
    {R"({"prompt":null})", "prompt"},
    {R"({"prompt":""})", "prompt"},
    {R"({"prompt":[]})", "prompt"},
    {R"({"prompt":[[]]})", "prompt[0]"},
    {R"({"prompt":7})", "prompt"},
    {R"({"prompt":["a",""]})", "prompt[1]"},
    {R"({"prompt":["a",7]})", "prompt[1]"},
    {R"({"prompt":[1,-1]})", "prompt[1]"},
    {R"({"prompt":[1,1000]})", "prompt[1]"},
    {R"({"prompt":[1,2147483648]})", "prompt[1]"},
    {R"({"prompt":[1,1.5]})", "prompt[1]"},
    {R"({"prompt":[1,"a"]})", "prompt[1]"},
    {R"({"prompt":[[1],[5000]]})", "prompt[1][0]"},
    {R"({"prompt":"a","logprobs":21})", "logprobs"},
    {R"({"prompt":"a","logprobs":true})", "logprobs"},
    {R"({"prompt":"a","echo":true,"logprobs":-1})", "logprobs"},
    {R"({"prompt":"a","prompt_logprobs":-1})", "prompt_logprobs"},
    {R"({"prompt":"a","suffix":"b","echo":true})", "suffix"},
    {R"({"prompt":"a","best_of":21})", "best_of"},
    {R"({"prompt":"a","best_of":2,"n":3})", "best_of"},
    {R"({"prompt":"a","best_of":2,"stream":true})", "best_of"},
    {R"({"prompt":"a","max_tokens":-2})", "max_tokens"},
    {R"({"prompt":["a","b","c","d","e","f","g","h","i"],"n":128})", "n"},
};

TEST(CompletionRequest, RefusesBadFieldsByName) {
  for (const Bad& bad : kBad) {
    SCOPED_TRACE(bad.body);
    const auto request = parse_completion_request(bad.body, kLimits);
    ASSERT_FALSE(request.ok());
    EXPECT_EQ(request.error().field, bad.field) << request.error().message;
  }
}

TEST(CompletionRequest, ReadsEveryShapeOfPrompt) {
  const auto prompts = [](const std::string& prompt) {
    auto request = parse_completion_request("{\"prompt\":" + prompt + "}", kLimits);
    EXPECT_TRUE(request.ok()) << prompt;
    return std::move(request).value().prompts;
  };
  const std::vector<TokenId> ids{1, 2, 3};
  EXPECT_EQ(prompts("\"a\""), (std::vector<Prompt>{std::string("a")}));
  EXPECT_EQ(prompts(R"(["a","b"])"), (std::vector<Prompt>{std::string("a"), std::string("b")}));
  EXPECT_EQ(prompts("[1,2,3]"), (std::vector<Prompt>{ids}));
  EXPECT_EQ(prompts("[[1,2,3],[1,2,3]]"), (std::vector<Prompt>{ids, ids}));
}

TEST(CompletionRequest, HasOpenAisDefaultLength) {
  const auto request = parse_completion_request(R"({"prompt":"a"})", kLimits);
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->generation.max_tokens, 16);
  EXPECT_EQ(request->logprobs, -1);
}

TEST(CompletionRequest, RefusesManyPrompts) {
  std::string many = "\"a\"";
  for (int i = 1; i < 100'000; ++i) many += ",\"a\"";
  const auto request = parse_completion_request("{\"prompt\":[" + many + "]}", kLimits);
  ASSERT_FALSE(request.ok());
  EXPECT_NE(request.error().message.find("at most 1024"), std::string::npos);
}

// llama.cpp's list leaves out what it does not name, whatever the request or the model says of it.
TEST(CompletionRequest, SamplersMayBeLeftOut) {
  const auto asked = [](const std::string& samplers) {
    return parse_completion_request(
        R"({"prompt":"x","temperature":0.5,"top_p":0.5,"min_p":0.5,"repeat_penalty":1.5,)"
        R"("dry_multiplier":0.8,"xtc_probability":0.5,"typical_p":0.5,"top_n_sigma":1,)"
        R"("samplers":)" +
            samplers + "}",
        {.vocab_size = 100});
  };
  const auto two = asked(R"(["temperature","top_p"])");
  ASSERT_TRUE(two.ok()) << two.error().message;
  const GenerationFields& fields = two->generation;
  EXPECT_EQ(fields.temperature, 0.5);
  EXPECT_EQ(fields.top_p, 0.5);
  EXPECT_EQ(fields.min_p, 0.0);
  EXPECT_EQ(fields.top_k, 0) << "not the model's own";
  EXPECT_EQ(fields.repetition_penalty, 1.0);
  EXPECT_EQ(fields.dry.multiplier, 0.0);
  EXPECT_EQ(fields.xtc_probability, 0.0);
  EXPECT_EQ(fields.typical_p, 1.0);
  EXPECT_EQ(fields.top_n_sigma, 0.0);
  const auto all = asked(
      R"(["penalties","dry","top_n_sigma","temperature","top_k","typ_p","top_p","min_p","xtc"])");
  ASSERT_TRUE(all.ok()) << all.error().message;
  EXPECT_EQ(all->generation.min_p, 0.5);
  EXPECT_EQ(all->generation.repetition_penalty, 1.5);
  EXPECT_EQ(asked("[]")->generation.min_p, 0.5);
  for (const char* const bad : {R"(["top_p","temperature"])", R"(["top_p","top_p"])",
                                R"(["infill"])", "[7]", R"("edkypmxt")", "{}"}) {
    const auto refused = asked(bad);
    ASSERT_FALSE(refused.ok()) << bad;
    EXPECT_EQ(refused.error().field, "samplers") << bad;
  }
}

}  // namespace
}  // namespace pelton::api
