// How likely the model found the prompt: "prompt_logprobs" as vLLM tells it, and "echo" with
// "logprobs" as OpenAI does; the same numbers either way, whole and streamed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/server_fixture.h"

namespace pelton::server {
namespace {

constexpr const char* kChat = "/v1/chat/completions";
constexpr const char* kText = "/v1/completions";
constexpr const char* kTokens = "/inference/v1/generate";

ServerFixture make_fixture() {
  return ServerFixture(R"({"rules": [{"when": "", "then": [{"text": " fish", "times": 9}]}]})", {});
}

Json ask(ServerFixture& fixture, const char* path, const std::string& body) {
  const net::HttpResponse response = fixture.post(path, body);
  EXPECT_EQ(response.status, 200) << response.body;
  return parsed(response.body);
}

const Json& choice_of(const Json& answer, size_t index = 0) {
  return answer.find("choices")->as_array().at(index);
}

std::vector<TokenId> tokens_of(ServerFixture& fixture, std::string_view text) {
  std::vector<TokenId> tokens;
  fixture.model().tokenizer.encode(text, tokens);
  return tokens;
}

// [null, {"id": {"logprob", "rank", "decoded_token"}, …}, …] of these tokens.
void expect_vllm_shape(ServerFixture& fixture, const Json& told, const std::vector<TokenId>& tokens,
                       size_t alternatives) {
  ASSERT_EQ(told.as_array().size(), tokens.size());
  EXPECT_TRUE(told.as_array().front().is_null());
  for (size_t i = 1; i < tokens.size(); ++i) {
    const Json::Object& one = told.as_array()[i].as_object();
    EXPECT_GE(one.size(), std::max<size_t>(alternatives, 1)) << i;
    EXPECT_LE(one.size(), alternatives + 1) << i;
    const Json* own = told.as_array()[i].find(std::to_string(tokens[i]));
    ASSERT_NE(own, nullptr) << i;
    EXPECT_EQ(own->string("decoded_token"),
              std::string(fixture.model().tokenizer.bytes(tokens[i])));
    EXPECT_LT(own->find("logprob")->as_number(), 0.0);
    EXPECT_GE(own->integer("rank").value_or(0), 1);
    for (const Json::Member& other : one) {
      if (other.value.integer("rank") < own->integer("rank")) {
        EXPECT_GT(other.value.find("logprob")->as_number(), own->find("logprob")->as_number());
      }
    }
  }
}

TEST(PromptLogprobs, completions_tell_them_of_each_choice) {
  ServerFixture fixture = make_fixture();
  const Json answer = ask(fixture, kText,
                          R"({"prompt":["one two three","four"],"prompt_logprobs":3,"n":2,
                              "max_tokens":2})");
  for (size_t i = 0; i < 4; ++i) {
    const Json* told = choice_of(answer, i).find("prompt_logprobs");
    ASSERT_NE(told, nullptr);
    expect_vllm_shape(fixture, *told, tokens_of(fixture, i < 2 ? "one two three" : "four"), 3);
  }
  const Json without = ask(fixture, kText, R"({"prompt":"one","max_tokens":2})");
  EXPECT_EQ(choice_of(without).find("prompt_logprobs"), nullptr);
}

TEST(PromptLogprobs, chats_tell_them_of_the_rendered_prompt) {
  ServerFixture fixture = make_fixture();
  const Json answer = ask(fixture, kChat,
                          R"({"messages":[{"role":"user","content":"go"}],"prompt_logprobs":0,
                              "return_token_ids":true,"max_tokens":4})");
  std::vector<TokenId> tokens;
  for (const Json& id : answer.find("prompt_token_ids")->as_array()) {
    tokens.push_back(static_cast<TokenId>(id.as_integer()));
  }
  ASSERT_GT(tokens.size(), 10u);
  expect_vllm_shape(fixture, *answer.find("prompt_logprobs"), tokens, 0);
}

TEST(PromptLogprobs, tokens_in_tokens_out) {
  ServerFixture fixture = make_fixture();
  const Json answer =
      ask(fixture, kTokens, R"({"token_ids":[5,6,7],"sampling_params":{"prompt_logprobs":2}})");
  expect_vllm_shape(fixture, *answer.find("prompt_logprobs"), {5, 6, 7}, 2);
  const Json one =
      ask(fixture, kTokens, R"({"token_ids":[5],"sampling_params":{"prompt_logprobs":2}})");
  EXPECT_EQ(one.find("prompt_logprobs")->as_array().size(), 1u) << "nothing foretells the first";
}

TEST(PromptLogprobs, an_echo_has_them_as_openai_writes_them) {
  ServerFixture fixture = make_fixture();
  const Json answer =
      ask(fixture, kText,
          R"({"prompt":"one two","echo":true,"logprobs":2,"prompt_logprobs":2,"max_tokens":2})");
  const Json& choice = choice_of(answer);
  const std::vector<TokenId> prompt = tokens_of(fixture, "one two");
  const Json& logprobs = *choice.find("logprobs");
  const Json::Array& tokens = logprobs.find("tokens")->as_array();
  const Json::Array& values = logprobs.find("token_logprobs")->as_array();
  const Json::Array& tops = logprobs.find("top_logprobs")->as_array();
  const Json::Array& offsets = logprobs.find("text_offset")->as_array();
  ASSERT_EQ(tokens.size(), prompt.size() + 2);
  ASSERT_EQ(values.size(), tokens.size());
  ASSERT_EQ(tops.size(), tokens.size());
  ASSERT_EQ(offsets.size(), tokens.size());
  EXPECT_TRUE(values[0].is_null());
  EXPECT_TRUE(tops[0].is_null());
  std::string text;
  for (size_t i = 0; i < tokens.size(); ++i) {
    EXPECT_EQ(offsets[i].as_integer(), static_cast<int64_t>(text.size()));
    text += tokens[i].as_string();
    if (i == 0) continue;
    EXPECT_GE(tops[i].as_object().size(), 2u);
    EXPECT_LE(tops[i].as_object().size(), 3u);
    ASSERT_NE(tops[i].find(tokens[i].as_string()), nullptr) << "the token itself is among them";
    if (i >= prompt.size()) continue;
    const Json& same = choice.find("prompt_logprobs")->as_array()[i];
    EXPECT_EQ(values[i].as_number(),
              same.find(std::to_string(prompt[i]))->find("logprob")->as_number());
  }
  EXPECT_EQ(choice.string("text"), text);
}

// What loglikelihood tasks ask: the prompt's numbers, and no token.
TEST(PromptLogprobs, an_echo_alone_says_nothing_of_what_would_follow) {
  ServerFixture fixture = make_fixture();
  const Json answer =
      ask(fixture, kText, R"({"prompt":"one two","echo":true,"logprobs":1,"max_tokens":0,"n":2})");
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(choice_of(answer, i).string("text"), "one two");
    EXPECT_EQ(choice_of(answer, i).string("finish_reason"), "length");
    EXPECT_EQ(choice_of(answer, i).find("logprobs")->find("tokens")->as_array().size(),
              tokens_of(fixture, "one two").size());
  }
  EXPECT_EQ(answer.find("usage")->integer("completion_tokens"), 0);
}

TEST(PromptLogprobs, a_streamed_echo_is_the_whole_one) {
  ServerFixture fixture = make_fixture();
  for (const char* more : {"", R"(,"n":3)", R"(,"max_tokens":0)", R"(,"stop":"fi")"}) {
    const std::string body =
        std::string(R"({"prompt":["one two","x","three"],"echo":true,"logprobs":2,"seed":4)") +
        more;
    const Json whole = ask(fixture, kText, body + "}");
    const net::HttpResponse streamed = fixture.post(kText, body + R"(,"stream":true})");
    ASSERT_EQ(streamed.status, 200) << streamed.body;
    struct Gathered {
      std::string text;
      std::string tokens, values, tops, offsets;
    };
    const auto add = [](const Json& choice, Gathered& into) {
      into.text += choice.string("text").value_or("");
      const Json* logprobs = choice.find("logprobs");
      if (logprobs == nullptr || logprobs->is_null()) return;
      const auto each = [&](const char* key, std::string& out) {
        for (const Json& one : logprobs->find(key)->as_array()) out += one.dump() + " ";
      };
      each("tokens", into.tokens);
      each("token_logprobs", into.values);
      each("top_logprobs", into.tops);
      each("text_offset", into.offsets);
    };
    std::vector<Gathered> of_stream(9), of_whole(9);
    for (const std::string& event : events_of(streamed.body)) {
      if (event == "[DONE]") continue;
      const Json chunk = parsed(event);
      for (const Json& choice : chunk.find("choices")->as_array()) {
        add(choice, of_stream.at(static_cast<size_t>(choice.integer("index").value())));
      }
    }
    for (const Json& choice : whole.find("choices")->as_array()) {
      add(choice, of_whole.at(static_cast<size_t>(choice.integer("index").value())));
    }
    for (size_t i = 0; i < of_whole.size(); ++i) {
      EXPECT_EQ(of_stream[i].text, of_whole[i].text) << more;
      EXPECT_EQ(of_stream[i].tokens, of_whole[i].tokens) << more;
      EXPECT_EQ(of_stream[i].values, of_whole[i].values) << more;
      EXPECT_EQ(of_stream[i].tops, of_whole[i].tops) << more;
      EXPECT_EQ(of_stream[i].offsets, of_whole[i].offsets) << more;
    }
  }
}

// A chat's in a chunk without a choice, a completion's with each choice's first text.
TEST(PromptLogprobs, a_stream_has_what_a_whole_answer_has) {
  ServerFixture fixture = make_fixture();
  const std::string asked = R"("max_tokens":6,"seed":1,"n":2,"prompt_logprobs":2)";
  const std::pair<const char*, std::string> kBodies[] = {
      {kChat, R"({"messages":[{"role":"user","content":"go"}],)" + asked},
      {kText, R"({"prompt":["ab","c"],)" + asked}};
  for (const auto& [path, body] : kBodies) {
    const Json whole = parsed(fixture.post(path, body + "}").body);
    std::vector<std::string> of_whole;
    const auto gather = [](const Json& object, std::vector<std::string>& into) {
      if (const Json* scores = object.find("prompt_logprobs")) into.push_back(scores->dump());
    };
    gather(whole, of_whole);
    for (const Json& choice : whole.find("choices")->as_array()) gather(choice, of_whole);
    EXPECT_FALSE(of_whole.empty());
    std::vector<std::string> of_stream;
    for (const std::string& event :
         events_of(fixture.post(path, body + R"(,"stream":true})").body)) {
      if (event == "[DONE]") continue;
      const Json chunk = parsed(event);
      gather(chunk, of_stream);
      for (const Json& choice : chunk.find("choices")->as_array()) gather(choice, of_stream);
    }
    EXPECT_THAT(of_stream, testing::UnorderedElementsAreArray(of_whole)) << path;
  }
}

TEST(PromptLogprobs, what_is_not_told_is_refused) {
  ServerFixture fixture = make_fixture();
  const auto refused = [&](const char* path, const std::string& body, const std::string& param) {
    const net::HttpResponse response = fixture.post(path, body);
    EXPECT_EQ(response.status, 400) << body << "\n" << response.body;
    const Json error = parsed(response.body);
    if (std::string_view(path) == "/v1/messages") {  // Anthropic's errors name no field apart
      EXPECT_THAT(error.find("error")->string("message").value_or(""), testing::HasSubstr(param));
    } else {
      EXPECT_EQ(error.find("error")->string("param"), param) << response.body;
    }
  };
  const std::string chat = R"({"messages":[{"role":"user","content":"go"}],)";
  refused(kChat, chat + R"("prompt_logprobs":21})", "prompt_logprobs");
  refused(kChat, chat + R"("prompt_logprobs":-1})", "prompt_logprobs");
  refused("/inference/v1/generate", R"({"token_ids":[72],"prompt_logprobs":1,"stream":true})",
          "prompt_logprobs");
  refused("/v1/responses", R"({"input":"a","prompt_logprobs":1})", "prompt_logprobs");
  refused("/v1/messages",
          R"({"messages":[{"role":"user","content":"a"}],"max_tokens":4,"prompt_logprobs":1})",
          "prompt_logprobs");
  // Some 3 000 tokens, 21 numbers each, for 128 answers.
  std::string words;
  for (int i = 0; i < 700; ++i) words += "abcd";
  refused(kText, R"({"prompt":")" + words + R"(","prompt_logprobs":20,"n":128})",
          "prompt_logprobs");
  refused(kText, R"({"prompt":")" + words + R"(","echo":true,"logprobs":5,"n":128})", "logprobs");
}

}  // namespace
}  // namespace pelton::server
