// No field that OpenAI, vLLM, SGLang, llama.cpp, Anthropic or Cohere document and that would change
// the answer is dropped by an endpoint that says 200 (row D6): it is obeyed, or refused by its
// name. api/documented_fields has the fields; here each goes to each endpoint.
#include "api/documented_fields.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "api/chat_request.h"
#include "api/completion_request.h"
#include "chat/tiny_tokenizer.h"
#include "server/grammar_store.h"
#include "server/server_fixture.h"

namespace pelton::server {
namespace {

using Effect = api::DocumentedField::Effect;

constexpr std::string_view kScript = R"({"rules": [
  {"when": "", "then": "<|channel|>final<|message|>Hello there, friend.<|return|>"},
  {"when": "go on", "then": [{"text": "and on ", "times": 40}]}]})";

struct Endpoint {
  const char* path;
  const char* good;  // members of a body that is answered
  bool makes_vectors = false;
};
constexpr Endpoint kEndpoints[] = {
    {"/v1/chat/completions", R"("messages":[{"role":"user","content":"hi"}],"max_tokens":1)"},
    {"/v1/chat/completions/render", R"("messages":[{"role":"user","content":"hi"}])"},
    {"/v1/chat/completions/input_tokens", R"("messages":[{"role":"user","content":"hi"}])"},
    {"/v1/completions", R"("prompt":"hi","max_tokens":1)"},
    {"/v1/completions/render", R"("prompt":"hi")"},
    {"/v1/responses", R"("input":"hi","max_output_tokens":1,"store":false)"},
    {"/v1/responses/input_tokens", R"("input":"hi")"},
    {"/v1/messages", R"("messages":[{"role":"user","content":"hi"}],"max_tokens":1)"},
    {"/v1/messages/count_tokens", R"("messages":[{"role":"user","content":"hi"}])"},
    {"/inference/v1/generate", R"("token_ids":[72],"sampling_params":{"max_tokens":1})"},
    {"/inference/v1/generate", R"("token_ids":[72],"max_tokens":1)"},
    {"/v1/embeddings", R"("input":"hi")", true},
    {"/v2/embed", R"("texts":["hi"])", true},
    {"/v1/rerank", R"("query":"hi","documents":["ho"])", true},
    {"/v1/score", R"("text_1":"hi","text_2":"ho")", true},
    {"/tokenize", R"("prompt":"hi")"},
    {"/tokenize", R"("messages":[{"role":"user","content":"hi"}])"},
    {"/detokenize", R"("tokens":[72])"},
    {"/invocations", R"("prompt":"hi","max_tokens":1)"},
};

std::string body_of(const Endpoint& endpoint, std::string_view member) {
  return fmt::format("{{{},{}}}", endpoint.good, member);
}

std::string param_of(const net::HttpResponse& response) {
  const Json body = parsed(response.body);
  const Json* error = body.find("error");
  if (error == nullptr) return {};
  // Anthropic's errors have no such member; the message names the field.
  return error->string("param").value_or(error->string("message").value_or(""));
}

// What no field can be obeyed with: whoever reads it complains, and who does not must refuse it.
std::string_view nonsense_for(std::string_view name) {
  // These take any object.
  for (const std::string_view object :
       {"chat_template_kwargs", "json_schema", "guided_json", "sampling_params",
        "repetition_detection", "output_config", "structural_tag", "format"}) {
    if (name == object) return "7.5";
  }
  return R"({"x":{}})";
}

TEST(DocumentedFields, D6_none_that_changes_the_answer_is_dropped_by_any_endpoint) {
  ServerFixture fixture(kScript, {});
  for (const Endpoint& endpoint : kEndpoints) {
    const net::HttpResponse good =
        fixture.post(endpoint.path, fmt::format("{{{}}}", endpoint.good));
    ASSERT_EQ(good.status, 200) << endpoint.path << good.body;
    EXPECT_FALSE(good.headers.has("x-pelton-warning")) << endpoint.path;
    for (const api::DocumentedField& field : api::documented_fields()) {
      if (field.effect == Effect::kNone || field.effect == Effect::kBeside) continue;
      const std::string member = fmt::format("\"{}\":{}", field.name, nonsense_for(field.name));
      SCOPED_TRACE(fmt::format("{} {}", endpoint.path, member));
      const net::HttpResponse response = fixture.post(endpoint.path, body_of(endpoint, member));
      const bool may_be_ignored = field.effect == Effect::kStyle ||
                                  (field.effect == Effect::kText && endpoint.makes_vectors);
      if (may_be_ignored && response.status == 200) {
        EXPECT_THAT(std::string(response.headers.get("x-pelton-warning")),
                    testing::HasSubstr(field.name));
        continue;
      }
      ASSERT_EQ(response.status, 400) << response.body;
      EXPECT_THAT(param_of(response), testing::HasSubstr(field.name));
    }
  }
}

// Members of small objects that say what is done anyway, and defaults that SDKs send.
TEST(DocumentedFields, D6_members_that_change_nothing_are_no_reason_to_refuse) {
  ServerFixture fixture(kScript, {});
  const std::string chat = R"({"messages":[{"role":"user","content":"hi"}],"max_tokens":1,)";
  for (
      const char* member :
      {R"("reasoning":{"effort":"low","summary":"auto","context":"auto","mode":"standard"})",
       R"("response_format":{"type":"text","strict":false})",
       R"("structured_outputs":{"regex":"a","_backend":"x","whitespace_pattern":""})",
       R"("response_format":{"type":"json_schema","strict":true,"json_schema":{"name":"n","title":"t","schema":{"type":"null"}}})"}) {
    const net::HttpResponse response = fixture.post("/v1/chat/completions", chat + member + "}");
    EXPECT_EQ(response.status, 200) << member << response.body;
  }
  const std::string input = R"({"input":"hi","max_output_tokens":1,"store":false,"reasoning":)";
  EXPECT_EQ(
      fixture.post("/v1/responses", input + R"({"context":"auto","mode":"standard"}})").status,
      200);
  EXPECT_EQ(fixture.post("/v1/responses", input + R"({"context":"all_turns"}})").status, 400);
  const net::HttpResponse vectors =
      fixture.post("/v1/embeddings", R"({"input":"hi","temperature":1,"seed":1})");
  EXPECT_EQ(vectors.status, 200) << vectors.body;
  EXPECT_THAT(std::string(vectors.headers.get("x-pelton-warning")), testing::HasSubstr("seed"));
}

// Null, and what asks for nothing, is answered as if it were not there: clients send their
// defaults.
TEST(DocumentedFields, D6_defaults_are_no_reason_to_refuse) {
  ServerFixture fixture(kScript, {});
  const char* const defaults =
      R"("mirostat":0,"dry_multiplier":0.0,"xtc_probability":0,"typical_p":1.0,"top_n_sigma":-1,)"
      R"("dynatemp_range":0,"repeat_penalty":1.0,"n_probs":0,"n_predict":-1,"samplers":[],"lora":[],)"
      R"("cache_prompt":true,"id_slot":0,"use_beam_search":false,"stop_regex":"")";
  for (const Endpoint& endpoint : kEndpoints) {
    const net::HttpResponse response = fixture.post(endpoint.path, body_of(endpoint, defaults));
    EXPECT_EQ(response.status, 200) << endpoint.path << response.body;
    EXPECT_FALSE(response.headers.has("x-pelton-warning")) << endpoint.path;
  }
}

TEST(DocumentedFields, D6_an_unknown_field_is_told_of_by_every_endpoint) {
  ServerFixture fixture(kScript, {});
  for (const Endpoint& endpoint : kEndpoints) {
    const net::HttpResponse response =
        fixture.post(endpoint.path, body_of(endpoint, R"("temprature":0.5,"a\r\nb: c":1)"));
    EXPECT_EQ(response.status, 200) << endpoint.path << response.body;
    std::vector<std::string> warnings;
    for (const auto& [name, value] : response.headers.fields()) {
      if (name == "x-pelton-warning") warnings.push_back(value);
    }
    EXPECT_THAT(warnings, testing::ElementsAre("temprature ignored: an unknown field",
                                               "a??b:?c ignored: an unknown field"))
        << endpoint.path;
  }
  std::string many = R"("k":1)";
  for (int i = 0; i < 3000; ++i) many += fmt::format(",\"k{}\":1", i);
  EXPECT_EQ(fixture.post(kEndpoints[0].path, body_of(kEndpoints[0], many)).status, 200);
  // However many there are before it.
  many += R"(,"logits_processors":["x"])";
  EXPECT_EQ(fixture.post(kEndpoints[0].path, body_of(kEndpoints[0], many)).status, 400);
}

enum class Outcome { kObeyed, kWarned, kRefused };
struct Case {
  const char* path;
  const char* member;
  Outcome outcome;
  const char* named = "";  // by the warning or the error
};

// llama.cpp's names for what others name otherwise, and numbers that stand for the default.
TEST(DocumentedFields, D6_names_and_defaults_of_other_servers) {
  ServerFixture fixture(kScript, {});
  const auto tokens_of = [&](const Endpoint& endpoint, const std::string& members) {
    std::string body = fmt::format("{{{},{}}}", endpoint.good, members);
    const net::HttpResponse response = fixture.post(endpoint.path, body);
    EXPECT_EQ(response.status, 200) << endpoint.path << body << response.body;
    EXPECT_FALSE(response.headers.has("x-pelton-warning")) << body;
    const Json answer = parsed(response.body);
    const Json* usage = answer.find("usage");
    return usage == nullptr ? int64_t{0} : usage->integer("completion_tokens").value_or(0);
  };
  for (const Endpoint endpoint :
       {Endpoint{"/v1/chat/completions", R"("messages":[{"role":"user","content":"hi"}])"},
        Endpoint{"/v1/completions", R"("prompt":"hi")"}}) {
    const int64_t whole = tokens_of(endpoint, R"("repeat_penalty":1.0,"max_tokens":99)");
    ASSERT_GT(whole, 4);
    EXPECT_EQ(tokens_of(endpoint, R"("n_predict":2)"), 2);
    EXPECT_EQ(tokens_of(endpoint, R"("n_predict":3,"max_tokens":3)"), 3);
    EXPECT_EQ(tokens_of(endpoint, R"("n_predict":-1)"), whole);
    EXPECT_EQ(tokens_of(endpoint, R"("max_tokens":-1)"), whole);
    EXPECT_EQ(tokens_of(endpoint, R"("max_completion_tokens":-1,"max_tokens":3)"), 3);
    EXPECT_EQ(tokens_of(endpoint, R"("logit_bias":[],"bad_words":[],"truncate_prompt_tokens":-1,)"
                                  R"("n_predict":99)"),
              whole);
  }
  // Of a completion too, whose own default is 16.
  const Endpoint completions{"/v1/completions", R"("prompt":"go on")"};
  EXPECT_EQ(tokens_of(completions, R"("temperature":0)"), api::kCompletionTokensDefault);
  EXPECT_EQ(tokens_of(completions, R"("min_tokens":20)"), 20);
  EXPECT_GT(tokens_of(completions, R"("max_tokens":-1)"), 40);
  const auto refused = [&](const char* path, const std::string& body) {
    const net::HttpResponse response = fixture.post(path, body);
    EXPECT_EQ(response.status, 400) << body << response.body;
    return param_of(response);
  };
  const std::string chat = R"({"messages":[{"role":"user","content":"hi"}],)";
  const char* const path = "/v1/chat/completions";
  EXPECT_EQ(refused(path, chat + R"("n_predict":-2})"), "n_predict");
  EXPECT_EQ(refused(path, chat + R"("max_tokens":0})"), "max_tokens");
  EXPECT_EQ(refused(path, chat + R"("repeat_penalty":0})"), "repeat_penalty");
  EXPECT_EQ(refused(path, chat + R"("truncate_prompt_tokens":0})"), "truncate_prompt_tokens");
  EXPECT_EQ(refused(path, chat + R"("logit_bias":[["a",2]]})"), "logit_bias[0]");
  EXPECT_EQ(refused(path, chat + R"("bad_words":[""]})"), "bad_words[0]");
  EXPECT_EQ(refused(path, chat + R"("allowed_token_ids":[]})"), "allowed_token_ids");
  // Anthropic's must say how many.
  EXPECT_THAT(refused("/v1/messages", chat + R"("max_tokens":-1})"),
              testing::HasSubstr("'max_tokens' must be at least 1"));
  // The penalty is the penalty, under either name.
  const auto penalty = [](const char* members) {
    const auto request = api::parse_chat_request(
        fmt::format(R"({{"messages":[{{"role":"user","content":"x"}}],{}}})", members), {});
    EXPECT_TRUE(request.ok()) << members;
    return request.ok() ? request->generation.repetition_penalty : std::nullopt;
  };
  EXPECT_EQ(penalty(R"("repeat_penalty":1.2)"), 1.2);
  EXPECT_EQ(penalty(R"("repetition_penalty":1.3)"), 1.3);
}

// DeepSeek's, GLM's and Kimi's clients say so in a chat.
TEST(DocumentedFields, D6_thinking_of_a_chat) {
  const auto parse = [](const char* thinking) {
    return api::parse_chat_request(
        fmt::format(R"({{"messages":[{{"role":"user","content":"x"}}],"thinking":{}}})", thinking),
        {});
  };
  using enum api::ReasoningEffort;
  EXPECT_EQ(parse(R"({"type":"disabled"})")->reasoning_effort, kLow);
  EXPECT_EQ(parse(R"({"type":"enabled"})")->reasoning_effort, std::nullopt);
  EXPECT_EQ(parse(R"({"type":"enabled","budget_tokens":20000})")->reasoning_effort, kHigh);
  EXPECT_TRUE(parse(R"({"type":"adaptive"})")->include_reasoning);
  EXPECT_FALSE(parse(R"({"type":"enabled","display":"omitted"})")->include_reasoning);
  const auto bad = parse(R"({"type":"sometimes"})");
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.error().field, "thinking.type");
}

constexpr const char* kChat = "/v1/chat/completions";
constexpr const char* kText = "/v1/completions";
constexpr const char* kResponses = "/v1/responses";
constexpr const char* kMessages = "/v1/messages";

using enum Outcome;
constexpr Case kWhereTheyStand[] = {
    {kChat, R"("response_format":{"type":"json_object","schema":{"type":"object"}})", kObeyed},
    {kChat, R"("response_format":{"type":"json_object","schema":7})", kRefused,
     "response_format.schema"},
    {kChat, R"("response_format":{"type":"json_schema","schema":{"type":"object"}})", kObeyed},
    {kChat, R"("response_format":{"type":"json_object","value":{"type":"object"}})", kRefused,
     "response_format.value"},
    {kChat, R"("response_format":{"type":"text","schema":{"type":"object"}})", kRefused,
     "response_format.schema"},
    {kChat,
     R"("response_format":{"type":"json_schema","json_schema":{"name":"a","schema":{},"x":1}})",
     kRefused, "response_format.json_schema.x"},
    {kChat, R"("structured_outputs":{"json":{},"disable_any_whitespace":true})", kObeyed},
    {kChat, R"("structured_outputs":{"json":{},"disable_any_whitespace":"yes"})", kRefused,
     "structured_outputs.disable_any_whitespace"},
    {kChat, R"("structured_outputs":{"json":{},"whitespace_pattern":" ?"})", kRefused,
     "structured_outputs.whitespace_pattern"},
    {kChat, R"("structured_outputs":{"json":{},"disable_additional_properties":true})", kRefused,
     "structured_outputs.disable_additional_properties"},
    {kText, R"("structured_outputs":{"json":{},"whitespace_pattern":" ?"})", kRefused,
     "structured_outputs.whitespace_pattern"},
    {kChat, R"("guided_json":{},"guided_whitespace_pattern":" ?")", kRefused,
     "guided_whitespace_pattern"},
    {kChat, R"("output_config":{"effort":"low"})", kRefused, "output_config"},
    {kResponses, R"("output_config":{"format":{"type":"json_schema"}})", kRefused, "output_config"},
    {kChat, R"("text":{"format":{"type":"json_object"}})", kRefused, "text"},
    {kMessages, R"("text":{"format":{"type":"json_object"}})", kRefused, "text"},
    {kResponses, R"("text":{"format":{"type":"json_object"},"schema":{}})", kRefused,
     "text.schema"},
    {kResponses, R"("text":{"verbosity":"low"})", kWarned, "text.verbosity"},
    {kChat, R"("verbosity":"high")", kWarned, "verbosity"},
    {kChat, R"("ebnf":"root ::= \"a\"")", kObeyed},
    {kChat, R"("ebnf":"root ::= nothing")", kRefused, "ebnf"},
    {kChat, R"("regex":"[ab]+")", kObeyed},
    {kChat, R"("grammar":"root ::= \"a\"")", kObeyed},
    {kChat, R"("json_schema":{"type":"object"})", kObeyed},
    {kChat, R"("ebnf":"root ::= \"a\"","regex":"a")", kRefused, "ebnf"},
    {kChat, R"("reasoning":{"effort":"ultra"})", kRefused, "reasoning.effort"},
    {kChat, R"("reasoning":{"effort":"high","max_tokens":9})", kObeyed},
    {kChat, R"("reasoning":{"deeply":true})", kRefused, "reasoning.deeply"},
    {kResponses, R"("reasoning":{"effort":"ultra"})", kRefused, "reasoning.effort"},
    {kResponses, R"("reasoning":{"budget":3})", kRefused, "reasoning.budget"},
    {kChat, R"("chat_template_kwargs":{"builtin_tools":["python"]})", kRefused,
     "chat_template_kwargs.builtin_tools"},
    {kChat, R"("chat_template_kwargs":{"enable_thinking":false})", kWarned,
     "chat_template_kwargs.enable_thinking"},
    {kResponses, R"("return_token_ids":true)", kRefused, "return_token_ids"},
    {kResponses, R"("prompt_logprobs":1)", kRefused, "prompt_logprobs"},
    {kMessages, R"("prompt_logprobs":1)", kRefused, "prompt_logprobs"},
    {kMessages, R"("reasoning_effort":"low")", kRefused, "reasoning_effort"},
    {kText, R"("reasoning_effort":"low")", kRefused, "reasoning_effort"},
    {kText, R"("tools":[{"type":"function","function":{"name":"f"}}])", kRefused, "tools"},
    {"/v1/embeddings", R"("truncate_prompt_tokens":3)", kRefused, "truncate_prompt_tokens"},
    {"/v1/embeddings", R"("embed_dtype":"int8")", kRefused, "embed_dtype"},
    {"/v1/embeddings", R"("normalize":false)", kObeyed, ""},
    {"/v1/rerank", R"("rank_fields":["title"])", kRefused, "rank_fields"},
    {"/v1/rerank", R"("instruction":"Find rivals.")", kRefused, "instruction"},
    {"/v1/rerank", R"("instruction":"")", kObeyed},
    {"/inference/v1/generate", R"("temperature":0.5)", kRefused, "temperature"},
    {"/inference/v1/generate", R"("sampling_params":{"logits_processors":["x"]})", kRefused,
     "sampling_params.logits_processors"},
};

TEST(DocumentedFields, D6_fields_where_they_stand) {
  ServerFixture fixture(kScript, {});
  for (const Case& one : kWhereTheyStand) {
    SCOPED_TRACE(fmt::format("{} {}", one.path, one.member));
    const std::string_view member = one.member;
    const std::string_view key = member.substr(0, member.find(':'));
    const auto* endpoint =
        std::find_if(std::begin(kEndpoints), std::end(kEndpoints), [&](const Endpoint& known) {
          return std::string_view(known.path) == one.path &&
                 std::string_view(known.good).find(key) == std::string_view::npos;
        });
    const net::HttpResponse response = fixture.post(one.path, body_of(*endpoint, one.member));
    EXPECT_EQ(response.status, one.outcome == Outcome::kRefused ? 400 : 200) << response.body;
    const std::string warning(response.headers.get("x-pelton-warning"));
    if (one.outcome == Outcome::kRefused) {
      EXPECT_THAT(param_of(response), testing::HasSubstr(one.named));
    } else {
      EXPECT_EQ(!warning.empty(), one.outcome == Outcome::kWarned) << warning;
      EXPECT_THAT(warning, testing::HasSubstr(one.named));
    }
  }
}

TEST(DocumentedFields, D6_compact_JSON_has_no_whitespace) {
  const tokenizer::Tokenizer tokenizer = chat::tiny_tokenizer();
  GrammarStore store({});
  const auto takes = [&](const std::string& members, std::string_view text) {
    const auto request = api::parse_chat_request(
        fmt::format(
            R"({{"messages":[{{"role":"user","content":"x"}}],"structured_outputs":{{{}}}}})",
            members),
        {.vocab_size = tokenizer.vocab_size()});
    EXPECT_TRUE(request.ok() && request->generation.format) << members;
    grammar::CompileDeadline deadline({.cpu_us_max = int64_t{3600} * 1'000'000});
    const auto compiled = store.compiling_of("", {.deadline = deadline})
                              .grammar(*request->generation.format, tokenizer);
    EXPECT_TRUE(compiled.ok()) << members;
    return grammar::Matcher(*compiled).accept_bytes(text);
  };
  for (const std::string what : {R"("json_object":true)", R"("json":{"type":"object"})"}) {
    const std::string compact = what + R"(,"disable_any_whitespace":true)";
    EXPECT_TRUE(takes(what, R"({"a": 1})"));
    EXPECT_FALSE(takes(compact, R"({"a": 1})"));
    EXPECT_TRUE(takes(compact, R"({"a":1})"));
    // Kept apart in the store, whichever is asked for first.
    EXPECT_TRUE(takes(what, R"({"a": 1})"));
  }
}

}  // namespace
}  // namespace pelton::server
