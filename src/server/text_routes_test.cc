// llama.cpp's, TGI's and SGLang's routes over HTTP.
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/server_fixture.h"
#include "server/text_writers.h"

namespace pelton::server {
namespace {

using testing::HasSubstr;

constexpr std::string_view kScript = R"({"rules": [
  {"when": "", "then": "<|channel|>final<|message|>Hi.<|return|>"},
  {"when": "Once", "then": " upon a time. THE END<|return|>"}]})";
constexpr std::string_view kText = " upon a time. THE END";

class TextRoutes : public testing::Test {
 protected:
  Json ask(const std::string& path, const std::string& body, int status = 200) {
    const net::HttpResponse response = fixture_.post(path, body);
    EXPECT_EQ(response.status, status) << response.body;
    return parsed(response.body);
  }
  std::vector<Json> stream(const std::string& path, const std::string& body) {
    std::vector<Json> events;
    for (const std::string& event : events_of(fixture_.post(path, body).body)) {
      if (event != "[DONE]") events.push_back(parsed(event));
    }
    return events;
  }
  static std::string field(const Json& answer) {
    return answer.find("error")->string("param").value_or("none");
  }

  ServerFixture fixture_{kScript, {}};
};

TEST_F(TextRoutes, LlamasCompletion) {
  const Json whole = ask("/completion", R"({"prompt":"Once"})");
  EXPECT_EQ(whole.string("content"), kText);
  EXPECT_EQ(whole.string("stop_type"), "eos");
  EXPECT_EQ(whole.boolean("stop"), true);
  EXPECT_EQ(whole.string("prompt"), "Once");
  EXPECT_GT(whole.integer("tokens_evaluated"), 0);
  EXPECT_TRUE(whole.find("tokens")->as_array().empty());
  EXPECT_FALSE(ask("/completion", R"({"prompt":"Once","return_tokens":true})")
                   .find("tokens")
                   ->as_array()
                   .empty());
  const Json cut = ask("/completion", R"({"prompt":"Once","n_predict":2})");
  EXPECT_EQ(cut.string("stop_type"), "limit");
  EXPECT_EQ(cut.integer("tokens_predicted"), 2);
  const Json stopped = ask("/completion", R"({"prompt":"Once","stop":["THE"]})");
  EXPECT_EQ(stopped.string("content"), " upon a time. ");
  EXPECT_EQ(stopped.string("stop_type"), "word");
  EXPECT_EQ(stopped.string("stopping_word"), "THE");
  std::string text;
  const std::vector<Json> events = stream("/completion", R"({"prompt":"Once","stream":true})");
  ASSERT_GT(events.size(), 1u);
  for (size_t i = 0; i < events.size(); ++i) {
    text += *events[i].string("content");
    EXPECT_EQ(events[i].boolean("stop"), i + 1 == events.size());
  }
  EXPECT_EQ(text, kText);
  EXPECT_EQ(field(ask("/completion", R"({"prompt":["a","b"]})", 400)), "prompt");
  EXPECT_EQ(field(ask("/completion", R"({"prompt":"a","temperature":9})", 400)), "temperature");
  EXPECT_EQ(field(ask("/completion", R"({"prompt":"a","n_predict":0})", 400)), "n_predict");
  EXPECT_EQ(field(ask("/completion", R"({"prompt":"a","best_of":3})", 400)), "best_of");
  // What only a completion's own answer has.
  for (const char* const name : {"logprobs", "return_token_ids", "return_tokens_as_token_ids"}) {
    const bool counts = std::string_view(name) == "logprobs";
    const std::string body =
        fmt::format(R"({{"prompt":"a","{}":{}}})", name, counts ? "3" : "true");
    EXPECT_EQ(field(ask("/completion", body, 400)), name);
  }
  EXPECT_EQ(ask("/completion", R"({"prompt":"Once","logprobs":false})").string("content"), kText);
}

// The engine hears of the stop string when it has sampled on.
TEST_F(TextRoutes, WhatComesBehindAStopStringIsNotCounted) {
  const auto model = fixture_.server().services().catalogue.only();
  TextAnswer answer(*model, {.stop = {.strings = {"b"}}}, llama_writer({}));
  const std::vector<TokenId> tokens = model->tokenizer.encode("ab");
  for (const TokenId token : tokens) answer.push(0, {.token = token});
  const int sampled = static_cast<int>(tokens.size());
  answer.end(0, {.output_tokens = sampled + 1});
  const Json body = parsed(answer.whole_body());
  EXPECT_EQ(body.string("stop_type"), "word");
  EXPECT_EQ(body.integer("tokens_predicted"), sampled);
  EXPECT_EQ(body.find("timings")->integer("predicted_n"), sampled);
}

TEST_F(TextRoutes, TgisGenerate) {
  const Json whole = ask("/generate", R"({"inputs":"Once","parameters":{"details":true}})");
  EXPECT_EQ(whole.string("generated_text"), kText);
  const Json* const details = whole.find("details");
  EXPECT_EQ(details->string("finish_reason"), "eos_token");
  EXPECT_EQ(details->find("tokens")->as_array().size(),
            static_cast<size_t>(*details->integer("generated_tokens")));
  EXPECT_EQ(ask("/generate", R"({"inputs":"Once","parameters":{"return_full_text":true}})")
                .string("generated_text"),
            "Once" + std::string(kText));
  for (const char* const path : {"/generate_stream", "/generate"}) {
    std::string text;
    const std::vector<Json> events = stream(path, R"({"inputs":"Once","stream":true})");
    for (const Json& event : events) text += *event.find("token")->string("text");
    EXPECT_EQ(text, kText);
    EXPECT_EQ(events.back().string("generated_text"), kText);
    EXPECT_EQ(events.back().find("details")->string("finish_reason"), "eos_token");
    EXPECT_EQ(events.back().integer("index"), static_cast<int64_t>(events.size()));
  }
  EXPECT_EQ(field(ask("/generate", R"({"inputs":"a","parameters":{"temperature":9}})", 400)),
            "parameters.temperature");
  EXPECT_EQ(field(ask("/generate", R"({"inputs":"a","parameters":{"max_new_tokens":0}})", 400)),
            "parameters.max_new_tokens");
}

// With the seed that an answer names, be it given or drawn, the same answer comes again.
TEST(TgisSeed, IsTheOneThatTheAnswerWasSampledWith) {
  ServerFixture fixture(R"({"rules": [{"when": "", "then": "Hi.<|return|>"},
      {"when": "check ", "then": [{"checked": 1}, "<|return|>"]}]})",
                        {});
  const auto answer = [&](const std::string& seed) {
    const std::string body =
        R"({"inputs":"check 7 30","parameters":{"details":true,"do_sample":true,"max_new_tokens":80)" +
        seed + "}}";
    return parsed(fixture.post("/generate", body).body);
  };
  const auto seed_of = [](const Json& one) { return one.find("details")->integer("seed"); };
  for (const int64_t seed : {int64_t{1}, int64_t{12'345}, int64_t{9'007'199'254'740'991}}) {
    EXPECT_EQ(seed_of(answer(fmt::format(R"(,"seed":{})", seed))), seed);
  }
  const Json drawn = answer("");
  ASSERT_EQ(drawn.string("generated_text")->size(), 30u);
  const int64_t seed = seed_of(drawn).value();
  EXPECT_LT(seed, int64_t{1} << 53) << "a double holds it";
  const Json again = answer(fmt::format(R"(,"seed":{})", seed));
  EXPECT_EQ(again.string("generated_text"), drawn.string("generated_text"));
  EXPECT_EQ(seed_of(again), seed);
  EXPECT_NE(answer(fmt::format(R"(,"seed":{})", seed + 1)).string("generated_text"),
            drawn.string("generated_text"));
}

// As many events as tokens, and the end with the last of them, whatever ends it.
TEST_F(TextRoutes, TgisLastTokenHasTheEnd) {
  for (const char* const parameters :
       {R"({"max_new_tokens":3,"details":true})", R"({"stop":["THE"],"details":true})",
        R"({"stop":["E"],"details":true})", R"({"details":true})"}) {
    const std::string body = fmt::format(R"({{"inputs":"Once","parameters":{}}})", parameters);
    const Json whole = ask("/generate", body);
    const Json& details = *whole.find("details");
    const std::vector<Json> events = stream("/generate_stream", body);
    std::vector<int64_t> ids, streamed;
    for (const Json& token : details.find("tokens")->as_array())
      ids.push_back(*token.integer("id"));
    for (size_t i = 0; i < events.size(); ++i) {
      streamed.push_back(*events[i].find("token")->integer("id"));
      EXPECT_EQ(events[i].find("details")->is_null(), i + 1 < events.size()) << parameters;
    }
    EXPECT_EQ(streamed, ids) << parameters;
    const Json& end = *events.back().find("details");
    EXPECT_EQ(end.integer("generated_tokens"), static_cast<int64_t>(ids.size())) << parameters;
    EXPECT_EQ(end.string("finish_reason"), details.string("finish_reason")) << parameters;
    EXPECT_EQ(events.back().string("generated_text"), whole.string("generated_text"));
  }
}

TEST_F(TextRoutes, SglangsGenerate) {
  const Json whole = ask("/generate", R"({"text":"Once"})");
  EXPECT_EQ(whole.string("text"), kText);
  EXPECT_EQ(whole.find("meta_info")->find("finish_reason")->string("type"), "stop");
  const Json cut = ask("/generate", R"({"text":"Once","sampling_params":{"max_new_tokens":2}})");
  EXPECT_EQ(cut.find("meta_info")->find("finish_reason")->integer("length"), 2);
  EXPECT_EQ(cut.find("output_ids")->as_array().size(), 2u);
  const std::vector<Json> events = stream("/generate", R"({"text":"Once","stream":true})");
  size_t before = 0;
  for (const Json& event : events) {
    EXPECT_TRUE(kText.starts_with(*event.string("text")));
    EXPECT_GE(event.string("text")->size(), before);
    before = event.string("text")->size();
  }
  EXPECT_EQ(events.back().string("text"), kText);
  EXPECT_EQ(field(ask("/generate", R"({"input_ids":["Once","Twice"]})", 400)), "input_ids[0]");
  EXPECT_EQ(field(ask("/generate", R"({"input_ids":[7,999999]})", 400)), "input_ids[1]");
  EXPECT_EQ(field(ask("/generate", R"({"input_ids":[]})", 400)), "input_ids");
}

TEST_F(TextRoutes, WhatLlamasClientsAskBeside) {
  const Json props = parsed(fixture_.get("/props").body);
  EXPECT_EQ(props.find("default_generation_settings")->integer("n_ctx"), 4096);
  EXPECT_EQ(parsed(fixture_.get("/slots").body).as_array().size(),
            static_cast<size_t>(*props.integer("total_slots")));
  EXPECT_EQ(fixture_.get("/slots?fail_on_no_slot=1").status, 200);
  const Json prompt = ask("/apply-template", R"({"messages":[{"role":"user","content":"Hello"}]})");
  EXPECT_THAT(*prompt.string("prompt"), HasSubstr("Hello"));
  const Json tokens = ask("/tokenize", R"({"content":"Once upon"})");
  EXPECT_EQ(tokens.dump().substr(0, 11), R"({"tokens":[)");
  EXPECT_EQ(tokens.find("count"), nullptr);
  const Json pieces = ask("/tokenize", R"({"content":"Once upon","with_pieces":true})");
  std::string text;
  for (const Json& piece : pieces.find("tokens")->as_array()) text += *piece.string("piece");
  EXPECT_EQ(text, "Once upon");
  // What is no text by itself comes as its bytes, so that nothing of it is lost.
  const Json parts = ask("/tokenize", R"({"content":"é","with_pieces":true})");
  std::string bytes;
  for (const Json& part : parts.find("tokens")->as_array()) {
    const Json& piece = *part.find("piece");
    ASSERT_TRUE(piece.is_array()) << "the tiny tokenizer has no é";
    for (const Json& byte : piece.as_array()) bytes += static_cast<char>(byte.as_integer());
  }
  EXPECT_EQ(bytes, "é");
  for (const char* const two :
       {R"({"content":"a","prompt":"b"})", R"({"content":"a","messages":[]})"}) {
    const Json refused = ask("/tokenize", two, 400);
    EXPECT_EQ(refused.find("error")->string("param"), "content") << two;
  }
}

TEST_F(TextRoutes, AModalityThatIsMissingIsNoUnknownAddress) {
  for (const char* const path :
       {"/v1/images/generations", "/v1/audio/speech", "/v1/videos", "/v1/moderations"}) {
    const Json answer = ask(path, "{}", 501);
    EXPECT_EQ(answer.find("error")->string("code"), "modality_not_supported") << path;
  }
  for (const char* const path :
       {"/v1/images/edits", "/v1/videos/video_1/remix", "/v1/realtime/client_secrets",
        "/v1/realtime/sessions", "/v1/realtime/calls"}) {
    const Json answer = ask(path, "{}", 501);
    EXPECT_EQ(answer.find("error")->string("code"), "modality_not_supported") << path;
  }
  for (const char* const path :
       {"/v1/realtime", "/v1/videos", "/v1/videos/video_1", "/v1/videos/video_1/content"}) {
    const net::HttpResponse answer = fixture_.get(path);
    EXPECT_EQ(answer.status, 501) << path;
    EXPECT_THAT(answer.body, HasSubstr("modality_not_supported")) << path;
  }
}

TEST_F(TextRoutes, PoolingIsEmbeddingsByOtherNames) {
  const net::HttpResponse embedded = fixture_.post("/v1/embeddings", R"({"input":"a"})");
  const net::HttpResponse pooled = fixture_.post("/pooling", R"({"input":"a"})");
  ASSERT_EQ(pooled.status, embedded.status) << pooled.body;
  for (const char* const task : {"\"classify\"", "\"score\"", "\"token_embed\"", "7"}) {
    const Json refused = ask("/pooling", fmt::format(R"({{"input":"a","task":{}}})", task), 400);
    EXPECT_EQ(refused.find("error")->string("param"), "task") << task;
  }
  const net::HttpResponse named = fixture_.post("/pooling", R"({"input":"a","task":"embed"})");
  EXPECT_EQ(named.status, pooled.status) << named.body;
  EXPECT_FALSE(named.headers.has("x-pelton-warning"));
  if (pooled.status != 200) return;  // this model makes no vectors
  const Json one = parsed(pooled.body).find("data")->as_array().front();
  EXPECT_EQ(one.string("object"), "pooling");
  EXPECT_EQ(one.find("data")->dump(),
            parsed(embedded.body).find("data")->as_array().front().find("embedding")->dump());
}

}  // namespace
}  // namespace pelton::server
