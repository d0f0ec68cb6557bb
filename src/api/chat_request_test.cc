#include "api/chat_request.h"

#include <string>

#include <gtest/gtest.h>

namespace pelton::api {
namespace {

constexpr RequestLimits kLimits{.vocab_size = 1000};
constexpr std::string_view kHi = R"("messages":[{"role":"user","content":"hi"}])";

std::string with(std::string_view extra) {
  return "{" + std::string(kHi) + (extra.empty() ? "" : ",") + std::string(extra) + "}";
}

ChatRequest good(const std::string& body) {
  Result<ChatRequest> request = parse_chat_request(body, kLimits);
  EXPECT_TRUE(request.ok()) << body << ": " << (request.ok() ? "" : request.error().message);
  return request.ok() ? std::move(request).value() : ChatRequest{};
}

struct Bad {
  std::string body;
  std::string field;    // the path the error names
  std::string message;  // part of it
};

const Bad kBad[] = {
    {"", "", "not valid JSON"},
    {"{", "", "not valid JSON"},
    {"[]", "", "must be a JSON object"},
    {R"({"messages":[]} trailing)", "", "not valid JSON"},
    {"{}", "messages", "missing"},
    {R"({"messages":null})", "messages", "missing"},
    {R"({"messages":[]})", "messages", "at least one"},
    {R"({"messages":{}})", "messages", "an array"},
    {R"({"messages":[7]})", "messages[0]", "an object"},
    {R"({"messages":[{"content":"x"}]})", "messages[0].role", "must be"},
    {R"({"messages":[{"role":"root","content":"x"}]})", "messages[0].role", "must be"},
    {R"({"messages":[{"role":5,"content":"x"}]})", "messages[0].role", "a string"},
    {R"({"messages":[{"role":"user<|end|>","content":"x"}]})", "messages[0].role", "must be"},
    {R"({"messages":[{"role":"user"}]})", "messages[0].content", "missing"},
    {R"({"messages":[{"role":"user","content":null}]})", "messages[0].content", "missing"},
    {R"({"messages":[{"role":"user","content":5}]})", "messages[0].content", "a string or an"},
    {R"({"messages":[{"role":"user","content":["x"]}]})", "messages[0].content[0]", "an object"},
    {R"({"messages":[{"role":"user","content":[{"type":"text"}]}]})", "messages[0].content[0].text",
     "missing"},
    {R"({"messages":[{"role":"user","content":[{"type":"text","text":"a"},)"
     R"({"type":"image_url","image_url":{"url":"http://169.254.169.254/"}}]}]})",
     "messages[0].content[1].type", "text parts only"},
    {R"({"messages":[{"role":"user","content":[{"type":"input_audio"}]}]})",
     "messages[0].content[0].type", "text parts only"},
    {R"({"messages":[{"role":"user","content":"x","name":"a b"}]})", "messages[0].name", "letters"},
    {R"({"messages":[{"role":"user","content":"x","name":"<|end|>"}]})", "messages[0].name",
     "letters"},
    {R"({"messages":[{"role":"assistant"}]})", "messages[0].content", "no tool_calls"},
    {R"({"messages":[{"role":"assistant","tool_calls":[{"id":"a"}]}]})",
     "messages[0].tool_calls[0].function", "missing"},
    {R"({"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f"}}]}]})",
     "messages[0].tool_calls[0].id", "missing"},
    {R"({"messages":[{"role":"assistant","tool_calls":[{"id":"a","function":{}}]}]})",
     "messages[0].tool_calls[0].function.name", "missing"},
    {R"({"messages":[{"role":"assistant","tool_calls":)"
     R"([{"id":"a","function":{"name":"f","arguments":{}}}]}]})",
     "messages[0].tool_calls[0].function.arguments", "a string"},
    {R"({"messages":[{"role":"tool","content":"x"}]})", "messages[0].tool_call_id", "missing"},
    {R"({"messages":[{"role":"tool","content":"x","tool_call_id":"nope"}]})",
     "messages[0].tool_call_id", "no tool call"},
    {with(R"("model":7)"), "model", "a string"},
    {with(R"("temperature":-0.1)"), "temperature", "at least 0"},
    {with(R"("temperature":2.1)"), "temperature", "at most 2"},
    {with(R"("temperature":"0.5")"), "temperature", "a number"},
    {with(R"("temperature":1e400)"), "", "not valid JSON"},
    {with(R"("temperature":NaN)"), "", "not valid JSON"},
    {with(R"("top_p":0)"), "top_p", "above 0"},
    {with(R"("top_p":1.0001)"), "top_p", "at most 1"},
    {with(R"("top_k":-2)"), "top_k", "from -1"},
    {with(R"("top_k":2147483648)"), "top_k", "2147483647"},
    {with(R"("min_p":2)"), "min_p", "at most 1"},
    {with(R"("presence_penalty":2.1)"), "presence_penalty", "at most 2"},
    {with(R"("frequency_penalty":-2.1)"), "frequency_penalty", "at least -2"},
    {with(R"("repetition_penalty":0)"), "repetition_penalty", "above 0"},
    {with(R"("max_tokens":0)"), "max_tokens", "from 1"},
    {with(R"("max_tokens":-2)"), "max_tokens", "from 1"},
    {with(R"("max_tokens":1.5)"), "max_tokens", "an integer"},
    {with(R"("max_tokens":"5")"), "max_tokens", "an integer"},
    {with(R"("max_tokens":9223372036854775808)"), "max_tokens", "an integer"},
    {with(R"("max_completion_tokens":0)"), "max_completion_tokens", "from 1"},
    {with(R"("min_tokens":10,"max_tokens":5)"), "min_tokens", "maximum of 5"},
    {with(R"("n":0)"), "n", "from 1 to 128"},
    {with(R"("n":129)"), "n", "from 1 to 128"},
    {with(R"("n":1.5)"), "n", "integer"},
    {with(R"("seed":18446744073709551616)"), "seed", "an integer"},
    {with(R"("seed":-9223372036854775809)"), "seed", "an integer"},
    {with(R"("seed":"x")"), "seed", "an integer"},
    {with(R"("logprobs":5)"), "logprobs", "true or false"},
    {with(R"("top_logprobs":3)"), "top_logprobs", "only allowed with"},
    {with(R"("logprobs":true,"top_logprobs":21)"), "top_logprobs", "from 0 to 20"},
    {with(R"("stop":"")"), "stop", "not be empty"},
    {with(R"("stop":["a",""])"), "stop[1]", "not be empty"},
    {with(R"("stop":[["a"]])"), "stop[0]", "a string"},
    {with(R"("stop":["1","2","3","4","5","6","7","8","9","0","a","b","c","d","e","f","g"])"),
     "stop", "at most 16"},
    {with("\"stop\":\"" + std::string(1 << 20, 'x') + "\""), "stop", "at most 1024"},
    {with(R"("stop_token_ids":[-1])"), "stop_token_ids[0]", "from 0 to 999"},
    {with(R"("stop_token_ids":[3,1000])"), "stop_token_ids[1]", "from 0 to 999"},
    {with(R"("stop_token_ids":[3,1.5])"), "stop_token_ids[1]", "a token id"},
    {with(R"("logit_bias":{"-1":1})"), "logit_bias", "from 0 to 999"},
    {with(R"("logit_bias":{"abc":1})"), "logit_bias", "token ids"},
    {with(R"("logit_bias":{"1000":1})"), "logit_bias", "from 0 to 999"},
    {with(R"("logit_bias":{"5":101})"), "logit_bias.5", "-100 to 100"},
    {with(R"("logit_bias":{"5":"x"})"), "logit_bias.5", "a number"},
    {with(R"("logit_bias":"5")"), "logit_bias", "an object"},
    {with(R"("logit_bias":[5])"), "logit_bias[0]", "a token id"},
    {with(R"("logit_bias":[[5,1],[".",1]])"), "logit_bias[1]", "a token id"},
    {with(R"("logit_bias":[[5,1],[5,2]])"), "logit_bias[1]", "no other one"},
    {with(R"("logit_bias":[[5,true]])"), "logit_bias.5", "a number"},
    {with(R"("stream":"yes")"), "stream", "true or false"},
    {with(R"("stream_options":{"include_usage":true})"), "stream_options", "only allowed with"},
    {with(R"("stream":true,"stream_options":{"include_usage":1})"), "stream_options.include_usage",
     "true or false"},
    {with(R"("reasoning_effort":"ultra")"), "reasoning_effort", "must be"},
    {with(R"("chat_template_kwargs":{"reasoning_effort":"ultra"})"),
     "chat_template_kwargs.reasoning_effort", "must be"},
    {with(R"("response_format":{"type":"xml"})"), "response_format.type",
     "'structural_tag'"},  // B10
    {with(R"("response_format":{"type":"json_schema"})"), "response_format.json_schema", "missing"},
    {with(R"("response_format":{"type":"json_schema","json_schema":{}})"),
     "response_format.json_schema.name", "letters"},
    {with(R"("response_format":{"type":"json_schema","json_schema":{"name":"a"}})"),
     "response_format.json_schema.schema", "missing"},
    {with(R"("response_format":{"type":"json_schema","json_schema":{"name":"a","schema":[]}})"),
     "response_format.json_schema.schema", "must be a JSON schema"},
    {with(R"("response_format":{"type":"json_schema","json_schema":{"name":"a","schema":"{"}})"),
     "response_format.json_schema.schema", "not JSON"},
    {with(R"("response_format":{"type":"json_object"},"structured_outputs":{"regex":"a"})"),
     "structured_outputs.regex", "both say"},
    {with(R"("structured_outputs":{"json":{},"regex":"a"})"), "structured_outputs.regex",
     "both say"},
    {with(R"("structured_outputs":{})"), "structured_outputs", "must have one of"},
    {with(R"("structured_outputs":{"structural_tag":7})"), "structured_outputs.structural_tag",
     "is an object"},
    {with(R"("structured_outputs":{"structural_tag":"{"})"), "structured_outputs.structural_tag",
     "not JSON"},
    {with(R"("structured_outputs":{"choice":[]})"), "structured_outputs.choice", "at least one"},
    {with(R"("structured_outputs":{"choice":["a",1]})"), "structured_outputs.choice", "texts"},
    {with(R"("guided_json":{},"guided_regex":"a")"), "guided_regex", "both say"},
    {with(R"("guided_regex":"a","ignore_eos":true)"), "ignore_eos", "contradicts"},
    {with(R"("response_format":{"type":"xml"})"), "response_format.type", "must be 'text'"},
    {with(R"("response_format":{})"), "response_format.type", "missing"},
    {with(R"("tools":[{"type":"function"}])"), "tools[0].function", "missing"},
    {with(R"("tools":[{}])"), "tools[0].type", "missing"},
    {with(R"("tools":["x"])"), "tools[0]", "an object"},
    {with(R"("tools":[{"type":"function","function":{"name":"a b"}}])"), "tools[0].function.name",
     "letters"},
    {with(R"("tools":[{"type":"function","function":{"name":")" + std::string(65, 'a') + R"("}}])"),
     "tools[0].function.name", "at most 64"},
    {with(R"("tools":[{"type":"function","function":{"name":"f","parameters":[]}}])"),
     "tools[0].function.parameters", "an object"},
    {with(R"("tools":[{"type":"function","function":{"name":"f"}},)"
          R"({"type":"function","function":{"name":"f"}}])"),
     "tools[1].function.name", "two functions"},
    {with(R"("tool_choice":"required")"), "tool_choice", "no function"},
    {with(R"("tool_choice":"perhaps")"), "tool_choice", "must be"},
    {with(R"("tool_choice":{"type":"function","function":{"name":"f"}})"),
     "tool_choice.function.name", "must name a function"},
    {with(R"("tool_choice":{"type":"function"})"), "tool_choice.function", "missing"},
    {with(R"("tool_choice":{"type":"custom"})"), "tool_choice.type", "must be"},
    {with(R"("tool_choice":{"type":"allowed_tools"})"), "tool_choice.allowed_tools", "missing"},
    {with(R"("tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[)"
          R"({"type":"function","function":{"name":"f"}}]}})"),
     "tool_choice.allowed_tools.tools[0].function.name", "must name a function"},
    {with(R"("tools":[{"type":"function","function":{"name":"f"}}],)"
          R"("tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"no","tools":[]}})"),
     "tool_choice.allowed_tools.mode", "must be"},
    {with(R"("priority":1000000000)"), "priority", "from -1000"},
    {with(R"("priority":"high")"), "priority", "an integer"},
    {with("\"user\":\"" + std::string(1 << 20, 'x') + "\""), "user", "at most 1024"},
    {with(R"("metadata":{"a":1})"), "metadata", "strings"},
    {with(R"("cache_salt":"")"), "cache_salt", "empty"},
    {with(R"("cache_salt":7)"), "cache_salt", "string"},
    {with("\"cache_salt\":\"" + std::string(1025, 's') + '"'), "cache_salt", "1024"},
    {with(R"("timeout":0)"), "timeout", "0"},
    {with(R"("timeout":-1)"), "timeout", "0"},
    {with(R"("timeout":86401)"), "timeout", "86400"},
    {with(R"("timeout":"5s")"), "timeout", "number"},
    {with(R"("modalities":["audio"])"), "modalities", "'text'"},
};

TEST(ChatRequest, RefusesBadFieldsByName) {
  for (const Bad& bad : kBad) {
    SCOPED_TRACE(bad.body.substr(0, 200));
    const Result<ChatRequest> request = parse_chat_request(bad.body, kLimits);
    ASSERT_FALSE(request.ok());
    EXPECT_EQ(request.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(request.error().field, bad.field) << request.error().message;
    EXPECT_NE(request.error().message.find(bad.message), std::string::npos)
        << request.error().message;
  }
}

TEST(ChatRequest, ReadsAPredictedOutput) {
  EXPECT_FALSE(good(with("")).prediction.has_value());
  EXPECT_EQ(good(with(R"("prediction":{"type":"content","content":"a b"})")).prediction, "a b");
  EXPECT_EQ(good(with(R"("prediction":{"type":"content","content":[{"type":"text","text":"a"},)"
                      R"({"type":"text","text":" b"}]})"))
                .prediction,
            "a b");
  for (const char* wrong :
       {R"("prediction":"a")", R"("prediction":{"content":"a"})",
        R"("prediction":{"type":"text","content":"a"})", R"("prediction":{"type":"content"})",
        R"("prediction":{"type":"content","content":7})",
        R"("prediction":{"type":"content","content":[{"type":"image_url"}]})",
        R"("prediction":{"type":"content","content":["a"]})"}) {
    const Result<ChatRequest> request = parse_chat_request(with(wrong), kLimits);
    ASSERT_FALSE(request.ok()) << wrong;
    EXPECT_EQ(request.error().field.find("prediction"), 0u) << wrong;
  }
}

TEST(ChatRequest, RefusesTooMany) {
  std::string tools;
  for (int i = 0; i < 129; ++i) {
    if (i > 0) tools += ',';
    tools += R"({"type":"function","function":{"name":"f)";
    tools += std::to_string(i);
    tools += "\"}}";
  }
  const auto request = parse_chat_request(with("\"tools\":[" + tools + "]"), kLimits);
  ASSERT_FALSE(request.ok());
  EXPECT_EQ(request.error().field, "tools");

  std::string bias;
  for (int i = 0; i < 200'000; ++i) {
    bias += i > 0 ? ",\"" : "\"";
    bias += std::to_string(i);
    bias += "\":1";
  }
  const auto biased = parse_chat_request(with("\"logit_bias\":{" + bias + "}"), kLimits);
  ASSERT_FALSE(biased.ok());
  EXPECT_NE(biased.error().message.find("at most 4096"), std::string::npos);
}

// As llama.cpp has it: of pairs, false bans.
TEST(ChatRequest, BiasesMayBeAList) {
  const auto request = parse_chat_request(with(R"("logit_bias":[[7,2.5],[8,false]])"), kLimits);
  ASSERT_TRUE(request.ok()) << request.error().message;
  const std::vector<std::pair<TokenId, float>> wanted = {{7, 2.5f}, {8, -100.0f}};
  EXPECT_EQ(request->generation.logit_bias, wanted);
  const auto none = parse_chat_request(with(R"("logit_bias":[])"), kLimits);
  ASSERT_TRUE(none.ok());
  EXPECT_TRUE(none->generation.logit_bias.empty());
}

// The same bias for all would leave the model's choice as it was.
TEST(ChatRequest, AP18_EveryTokenBanned) {
  const auto banned = [](int count) {
    std::string bans;
    for (int i = 0; i < count; ++i) bans += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\":-100";
    return parse_chat_request(with("\"logit_bias\":{" + bans + "}"), kLimits);
  };
  ASSERT_FALSE(banned(1000).ok());
  EXPECT_EQ(banned(1000).error().field, "logit_bias");
  EXPECT_TRUE(banned(999).ok());
}

TEST(ChatRequest, DeepJsonIsRefusedQuickly) {
  for (const size_t depth : {257u, 100'000u}) {
    const std::string body = with("\"x\":" + std::string(depth, '[') + std::string(depth, ']'));
    const auto request = parse_chat_request(body, kLimits);
    ASSERT_FALSE(request.ok());
    EXPECT_NE(request.error().message.find("256 levels"), std::string::npos);
  }
}

TEST(ChatRequest, ReadsEverything) {
  const ChatRequest request = good(R"({
    "model": "m", "temperature": 0, "top_p": 0.5, "top_k": -1, "min_p": 0.1, "seed": -3,
    "repetition_penalty": 1.1, "frequency_penalty": 0.5, "presence_penalty": -0.5,
    "logit_bias": {"7": -100, "8": 2.5}, "max_tokens": 5, "max_completion_tokens": 9.0,
    "min_tokens": 2, "stop": ["a", "b"], "stop_token_ids": [1, 2], "ignore_eos": true,
    "stream": true, "stream_options": {"include_usage": true}, "logprobs": true, "top_logprobs": 4,
    "reasoning_effort": "xhigh", "include_reasoning": false, "priority": -2, "user": "u",
    "include_stop_str_in_output": true, "parallel_tool_calls": true, "store": true,
    "messages": [
      {"role": "system", "content": "s"},
      {"role": "developer", "content": [{"type": "text", "text": "d1"}, {"type":"text","text":"d2"}]},
      {"role": "user", "content": "u", "name": "ann"},
      {"role": "assistant", "content": null, "reasoning_content": "r", "refusal": null,
       "tool_calls": [{"id": "c1", "type": "function",
                       "function": {"name": "get.weather-now", "arguments": "{broken"}}]},
      {"role": "tool", "tool_call_id": "c1", "content": "sunny"}],
    "tools": [{"type": "function", "function": {"name": "get.weather-now", "description": "d",
                "strict": true, "parameters": {"type": "object", "properties": {}}}},
              {"type": "web_search"}, {"type": "namespace", "name": 7}],
    "client_metadata": {"anything": [1, {"deep": null}]}})");
  EXPECT_EQ(request.model, "m");
  ASSERT_EQ(request.messages.size(), 5u);
  EXPECT_EQ(request.messages[1].content, "d1d2");
  EXPECT_EQ(request.messages[2].name, "ann");
  EXPECT_EQ(request.messages[3].reasoning, "r");
  ASSERT_EQ(request.messages[3].tool_calls.size(), 1u);
  EXPECT_EQ(request.messages[3].tool_calls[0].arguments, "{broken");
  EXPECT_EQ(request.messages[4].name, "get.weather-now");
  ASSERT_EQ(request.tools.size(), 1u);
  EXPECT_EQ(request.tools[0].description, "d");
  EXPECT_TRUE(request.tools[0].parameters.has_value());
  EXPECT_EQ(request.warnings.size(), 3u);  // two tools that are no functions, and store
  EXPECT_EQ(request.reasoning_effort, ReasoningEffort::kHigh);
  EXPECT_FALSE(request.include_reasoning);
  EXPECT_EQ(request.top_logprobs, 4);

  const GenerationFields& generation = request.generation;
  EXPECT_EQ(generation.temperature, 0.0);
  EXPECT_EQ(generation.top_p, 0.5);
  EXPECT_EQ(generation.top_k, 0);
  EXPECT_EQ(generation.seed, static_cast<uint64_t>(-3));
  EXPECT_EQ(generation.max_tokens, 9);
  EXPECT_EQ(generation.min_tokens, 2);
  EXPECT_EQ(generation.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(generation.stop_token_ids, (std::vector<TokenId>{1, 2}));
  EXPECT_TRUE(generation.ignore_eos);
  EXPECT_TRUE(generation.include_stop);
  EXPECT_TRUE(generation.stream);
  EXPECT_TRUE(generation.include_usage);
  EXPECT_EQ(generation.priority, -2);
  ASSERT_EQ(generation.logit_bias.size(), 2u);
  EXPECT_EQ(generation.logit_bias[1], (std::pair<TokenId, float>{8, 2.5f}));
}

TEST(ChatRequest, NullIsAbsentAndDefaultsHold) {
  const ChatRequest request = good(with(
      R"("temperature":null,"tools":null,"stop":null,"seed":null,"stream":null,"logit_bias":null,)"
      R"("max_tokens":null,"response_format":null,"tool_choice":null,"metadata":null,"n":null)"));
  EXPECT_FALSE(request.generation.temperature.has_value());
  EXPECT_FALSE(request.generation.seed.has_value());
  EXPECT_FALSE(request.generation.max_tokens.has_value());
  EXPECT_FALSE(request.generation.stream);
  EXPECT_FALSE(request.reasoning_effort.has_value());
  EXPECT_TRUE(request.include_reasoning);
  EXPECT_EQ(request.top_logprobs, -1);
}

TEST(ChatRequest, ToolChoiceNoneLeavesNoTools) {
  EXPECT_TRUE(good(with(R"("tools":[{"type":"function","function":{"name":"f"}}],)"
                        R"("tool_choice":"none")"))
                  .tools.empty());
  EXPECT_EQ(good(with(R"("tools":[{"type":"function","function":{"name":"f"}}],)"
                      R"("tool_choice":"auto")"))
                .tools.size(),
            1u);
}

TEST(ChatRequest, OnlyAllowedToolsAreLeft) {
  const auto chosen = [](const std::string& mode) {
    return good(with(R"("tools":[{"type":"function","function":{"name":"f"}},)"
                     R"({"type":"function","function":{"name":"g"}}],)"
                     R"("tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":")" +
                     mode + R"(","tools":[{"type":"function","function":{"name":"g"}}]}})"));
  };
  const ChatRequest free = chosen("auto");
  ASSERT_EQ(free.tools.size(), 1u);
  EXPECT_EQ(free.tools[0].name, "g");
  EXPECT_FALSE(free.forced_call.has_value());
  const ChatRequest made = chosen("required");
  ASSERT_EQ(made.tools.size(), 1u);
  ASSERT_TRUE(made.forced_call.has_value());
  EXPECT_EQ(made.forced_call->function_name, "g");
}

TEST(ChatRequest, ToolChoiceForcesACall) {
  const std::string f = R"({"type":"function","function":{"name":"f"}})";
  const std::string g = R"({"type":"function","function":{"name":"g"}})";
  const auto forced = [&](const std::string& tools, const std::string& choice) {
    return good(with("\"tools\":[" + tools + "],\"tool_choice\":" + choice)).forced_call;
  };
  EXPECT_EQ(forced(f + "," + g, g).value().function_name, "g");
  EXPECT_EQ(forced(f + "," + g, "\"required\"").value().function_name, "");
  EXPECT_EQ(forced(f, "\"required\"").value().function_name, "f");
  EXPECT_FALSE(forced(f, "\"auto\"").has_value());
}

TEST(ChatRequest, TheEffortOfTheBodyWinsOverTheTemplates) {
  const ChatRequest request = good(
      with(R"("reasoning_effort":"minimal","chat_template_kwargs":{"reasoning_effort":"high"})"));
  EXPECT_EQ(request.reasoning_effort, ReasoningEffort::kLow);
}

}  // namespace
}  // namespace pelton::api
