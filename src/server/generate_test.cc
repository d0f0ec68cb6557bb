// POST /inference/v1/generate and the renderers: tokens in, tokens out.
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "server/random_turns.h"
#include "server/server_fixture.h"
#include "server/tokens_answer.h"

namespace pelton::server {
namespace {

constexpr std::string_view kScript = R"({"rules": [
  {"when": "", "then": "<|channel|>analysis<|message|>Think.<|end|><|start|>assistant<|channel|>final<|message|>Hello world.<|return|>"},
  {"when": "functions.first<|channel|>commentary <|constrain|>json<|message|>", "then": "{\"a\":1}<|call|>"},
  {"when": "raw", "then": " text<|return|>"}
]})";

std::vector<int64_t> ids(const Json& array) {
  std::vector<int64_t> values;
  for (const Json& id : array.as_array()) values.push_back(id.as_integer());
  return values;
}

// The tokens of each choice, and what ended it.
using Choices = std::vector<std::pair<std::vector<int64_t>, std::string>>;

Choices whole_choices(const std::string& body) {
  Choices choices;
  const Json json = parsed(body);
  for (const Json& choice : json.find("choices")->as_array()) {
    EXPECT_EQ(choice.integer("index"), static_cast<int64_t>(choices.size()));
    choices.emplace_back(ids(*choice.find("token_ids")),
                         choice.string("finish_reason").value_or("none"));
  }
  return choices;
}

Choices streamed_choices(const std::string& body, size_t count) {
  Choices choices(count);
  const std::vector<std::string> events = events_of(body);
  EXPECT_EQ(events.back(), "[DONE]");
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    const Json json = parsed(events[i]);
    for (const Json& choice : json.find("choices")->as_array()) {
      auto& [tokens, finish] = choices.at(static_cast<size_t>(*choice.integer("index")));
      EXPECT_EQ(finish, "");
      for (const int64_t id : ids(*choice.find("token_ids"))) tokens.push_back(id);
      finish = choice.string("finish_reason").value_or("");
    }
  }
  return choices;
}

TEST(Generate, ARenderedChatIsAnsweredAsTheChatIs) {
  ServerFixture fixture(kScript, {});
  const std::string chat = R"({"messages":[{"role":"user","content":"hi"}],"max_tokens":100,)"
                           R"("seed":7,"temperature":0.5,"stop_token_ids":[7],"logprobs":true})";
  const net::HttpResponse rendered = fixture.post("/v1/chat/completions/render", chat);
  ASSERT_EQ(rendered.status, 200) << rendered.body;
  const Json prompt = parsed(rendered.body);
  EXPECT_TRUE(
      prompt.string("prompt")->ends_with("<|start|>user<|message|>hi<|end|><|start|>"
                                         "assistant"));
  EXPECT_EQ(prompt.integer("count"),
            static_cast<int64_t>(prompt.find("token_ids")->as_array().size()));
  EXPECT_EQ(prompt.find("sampling_params")->integer("seed"), 7);

  const net::HttpResponse whole = fixture.post("/inference/v1/generate", rendered.body);
  ASSERT_EQ(whole.status, 200) << whole.body;
  const Choices choices = whole_choices(whole.body);
  ASSERT_EQ(choices.size(), 1u);
  EXPECT_EQ(choices[0].second, "stop");
  std::vector<TokenId> tokens(choices[0].first.begin(), choices[0].first.end());
  EXPECT_EQ(fixture.model().tokenizer.decode(tokens),
            "<|channel|>analysis<|message|>Think.<|end|><|start|>assistant<|channel|>final"
            "<|message|>Hello world.<|return|>");
  const Json usage = *parsed(whole.body).find("usage");
  const Json told = parsed(fixture.post("/v1/chat/completions", chat).body);
  EXPECT_EQ(usage.integer("prompt_tokens"), told.find("usage")->integer("prompt_tokens"));
  EXPECT_EQ(usage.integer("completion_tokens"), told.find("usage")->integer("completion_tokens"));

  const net::HttpResponse streamed =
      fixture.post("/inference/v1/generate", parsed(rendered.body).set("stream", true).dump());
  ASSERT_EQ(streamed.status, 200) << streamed.body;
  EXPECT_EQ(streamed_choices(streamed.body, 1), choices);
}

TEST(Generate, AForcedCallIsPartOfTheRenderedPrompt) {
  ServerFixture fixture(kScript, {});
  const net::HttpResponse rendered = fixture.post("/v1/chat/completions/render", R"({"messages":[
    {"role":"user","content":"hi"}],"tool_choice":"required","tools":[{"type":"function",
    "function":{"name":"first"}}]})");
  EXPECT_TRUE(parsed(rendered.body).string("prompt")->ends_with("<|message|>")) << rendered.body;
}

TEST(Generate, CutsAreNotLostInRendering) {
  ServerFixture fixture(kScript, {});
  const std::string hi = R"({"messages":[{"role":"user","content":"hi"}])";
  const char* const kCuts =
      R"(,"typical_p":0.5,"top_n_sigma":1.5,"xtc_probability":0.25,"dynatemp_range":0.5,)"
      R"("dry_multiplier":2,"dry_sequence_breakers":["x"],"bad_words":["no"],)"
      R"("allowed_token_ids":[72],"truncate_prompt_tokens":9,"truncation_side":"right"})";
  const Json cuts =
      *parsed(fixture.post("/v1/chat/completions/render", hi + kCuts).body).find("sampling_params");
  EXPECT_EQ(cuts.find("typical_p")->as_number(), 0.5);
  EXPECT_EQ(cuts.find("top_n_sigma")->as_number(), 1.5);
  EXPECT_EQ(cuts.find("xtc_probability")->as_number(), 0.25);
  EXPECT_EQ(cuts.find("dynatemp_range")->as_number(), 0.5);
  EXPECT_EQ(cuts.find("dry_multiplier")->as_number(), 2);
  EXPECT_EQ(cuts.find("dry_sequence_breakers")->dump(), R"(["x"])");
  EXPECT_EQ(cuts.find("bad_words")->dump(), R"(["no"])");
  EXPECT_EQ(cuts.find("allowed_token_ids")->dump(), "[72]");
  EXPECT_EQ(cuts.integer("truncate_prompt_tokens"), 9);
  EXPECT_EQ(cuts.string("truncation_side"), "right");
}

// Either the rendered body says it too, or there is none.
TEST(Generate, NothingIsLostInRendering) {
  ServerFixture fixture(kScript, {});
  const std::string hi = R"({"messages":[{"role":"user","content":"hi"}])";
  const net::HttpResponse rendered = fixture.post(
      "/v1/chat/completions/render",
      hi + R"(,"request_id":"mine","thinking_token_budget":2,"temperature":0,)"
           R"("repetition_detection":{"max_pattern_size":4,"min_pattern_size":2,"min_count":3}})");
  ASSERT_EQ(rendered.status, 200) << rendered.body;
  const Json body = parsed(rendered.body);
  EXPECT_EQ(body.string("request_id"), "chatcmpl-mine");
  const Json& params = *body.find("sampling_params");
  EXPECT_EQ(params.integer("thinking_token_budget"), 2);
  ASSERT_NE(params.find("repetition_detection"), nullptr);
  EXPECT_EQ(params.find("repetition_detection")->integer("max_pattern_size"), 4);
  EXPECT_EQ(params.find("repetition_detection")->integer("min_pattern_size"), 2);
  EXPECT_EQ(params.find("repetition_detection")->integer("min_count"), 3);
  EXPECT_EQ(fixture.post("/inference/v1/generate", rendered.body).status, 200);

  // The longest id that a chat may have is one for its rendered body too.
  const std::string longest = R"(,"request_id":")" + std::string(128, 'i') + "\"}";
  const std::string rendered_longest =
      fixture.post("/v1/chat/completions/render", hi + longest).body;
  EXPECT_EQ(fixture.post("/inference/v1/generate", rendered_longest).status, 200);
  const Json completions = parsed(
      fixture.post("/v1/completions/render", R"({"prompt":["raw","raw"],"request_id":"mine"})")
          .body);
  EXPECT_EQ(completions.as_array().at(1).string("request_id"), "cmpl-mine-1");

  const std::string tool = R"(,"tools":[{"type":"function","function":{"name":"f","strict":)";
  const std::string budget = R"(,"thinking_token_budget":9)";
  const std::vector<std::pair<std::string, std::string>> chats = {
      {R"(,"response_format":{"type":"json_object"})", "response_format"},
      {R"(,"structured_outputs":{"regex":"a+"})", "structured_outputs.regex"},
      {R"(,"guided_choice":["a","b"])", "guided_choice"},
      {R"(,"stop":"x")", "stop"},
      {R"(,"tool_choice":"required","tools":[{"type":"function","function":{"name":"f"}},)"
       R"({"type":"function","function":{"name":"g"}}])",
       "tool_choice"},
      {R"(,"return_token_offsets":true)", "return_token_offsets"},
      {tool + "true}}]", "tools[0].function.strict"},
      {tool + "false}}]" + budget, "thinking_token_budget"},
  };
  for (const auto& [member, param] : chats) {
    const net::HttpResponse response =
        fixture.post("/v1/chat/completions/render", hi + member + "}");
    EXPECT_EQ(response.status, 400) << member;
    EXPECT_EQ(parsed(response.body).find("error")->string("param"), param) << response.body;
  }
  for (const char* member : {"echo", "return_token_offsets"}) {
    const net::HttpResponse response = fixture.post(
        "/v1/completions/render", R"({"prompt":"raw",")" + std::string(member) + "\":true}");
    EXPECT_EQ(response.status, 400) << member;
    EXPECT_EQ(parsed(response.body).find("error")->string("param"), member) << response.body;
  }
  EXPECT_EQ(
      fixture.post("/v1/completions/render", R"({"prompt":"raw","return_token_offsets":false})")
          .status,
      200);
}

TEST(Generate, EndsWhatRepeatsItself) {
  ServerFixture fixture(
      R"({"rules":[{"when":"","then":["<|channel|>final<|message|>",{"text":"a b ","times":60}]}]})",
      {});
  const net::HttpResponse whole =
      fixture.post("/inference/v1/generate",
                   R"({"token_ids":[65,66],"sampling_params":{"temperature":0,"max_tokens":200,)"
                   R"("repetition_detection":{"max_pattern_size":8,"min_count":4}}})");
  EXPECT_EQ(whole_choices(whole.body).at(0).second, "repetition") << whole.body;
}

TEST(Generate, CompletionsAreRenderedEachForItself) {
  ServerFixture fixture(kScript, {});
  const Json prompts =
      parsed(fixture.post("/v1/completions/render", R"({"prompt":["raw","two"]})").body);
  ASSERT_EQ(prompts.as_array().size(), 2u);
  EXPECT_EQ(prompts.as_array()[0].string("prompt"), "raw");
  EXPECT_EQ(prompts.as_array()[0].find("sampling_params")->integer("max_tokens"), 16);
}

TEST(Generate, SeveralChoicesAndLogprobs) {
  ServerFixture fixture(kScript, {});
  const net::HttpResponse whole = fixture.post(
      "/inference/v1/generate",
      R"({"token_ids":[65,66],"sampling_params":{"n":2,"max_tokens":3,"logprobs":1}})");
  const Choices choices = whole_choices(whole.body);
  ASSERT_EQ(choices.size(), 2u);
  EXPECT_EQ(choices[0].second, "length");
  const Json body = parsed(whole.body);
  const Json& logprobs = *body.find("choices")->as_array()[0].find("logprobs");
  ASSERT_EQ(logprobs.find("content")->as_array().size(), 3u);
  EXPECT_EQ(logprobs.find("content")->as_array()[0].integer("token_id"), choices[0].first[0]);
}

TEST(Generate, RefusesWhatItCannotObey) {
  ServerFixture fixture(kScript, {});
  const std::vector<std::pair<std::string, std::string>> refused = {
      {R"({})", "token_ids"},
      {R"({"token_ids":[]})", "token_ids"},
      {R"({"token_ids":[-1]})", "token_ids[0]"},
      {R"({"token_ids":[1,1.5]})", "token_ids[1]"},
      {R"({"token_ids":[2147483648]})", "token_ids[0]"},
      {R"({"token_ids":"abc"})", "token_ids"},
      {R"({"token_ids":[1],"sampling_params":{"stop":["x"]}})", "sampling_params.stop"},
      {R"({"token_ids":[1],"sampling_params":{"temperature":3}})", "sampling_params.temperature"},
      {R"({"token_ids":[1],"sampling_params":{"max_tokens":0}})", "sampling_params.max_tokens"},
      {R"({"token_ids":[1],"sampling_params":[]})", "sampling_params"},
      {R"({"token_ids":[1],"kv_transfer_params":{"remote_host":"x"}})", "kv_transfer_params"},
  };
  for (const auto& [request, param] : refused) {
    const net::HttpResponse response = fixture.post("/inference/v1/generate", request);
    EXPECT_EQ(response.status, 400) << request;
    EXPECT_EQ(parsed(response.body).find("error")->string("param"), param) << response.body;
  }
}

TEST(Generate, HM15_StreamedEqualsWholeForRandomTokens) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  ServerFixture fixture(kScript, {});
  RandomTurns random(fixture.model(), seed);
  const int rounds = std::getenv("PELTON_FULL") != nullptr ? 10'000 : 500;
  for (int round = 0; round < rounds; ++round) {
    const TokensAnswer::Options options{
        .id = "gen-1", .choice_count = 1, .logprobs = random.draw() % 2 == 0};
    TokensAnswer whole(options);
    TokensAnswer streamed(options);
    std::string events;
    std::vector<int64_t> sent;
    for (const TokenId token : random.tokens()) {
      sent.push_back(token);
      whole.push(0, {.token = token, .logprob = -1.0f, .top = {}});
      streamed.push(0, {.token = token, .logprob = -1.0f, .top = {}});
      if (random.draw() % 2 == 0) streamed.take_events(events);
    }
    whole.end(0, {.reason = engine::FinishReason::kLength});
    streamed.end(0, {.reason = engine::FinishReason::kLength});
    streamed.take_last_events(events);
    ASSERT_EQ(whole_choices(whole.whole_body()), (Choices{{sent, "length"}}));
    ASSERT_EQ(streamed_choices(events, 1), whole_choices(whole.whole_body())) << events;
  }
}

}  // namespace
}  // namespace pelton::server
