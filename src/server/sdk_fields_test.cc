// Every field that openai 7.55's and @anthropic-ai/sdk 1.11's types let a client send: obeyed, let
// be because no answer depends on it, told of in a warning, or refused by its name. Nothing that
// would have to be obeyed is ignored in silence.
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "server/catalogue_rows.h"
#include "server/server_fixture.h"

namespace pelton::server {
namespace {

constexpr std::string_view kScript = R"({"rules": [
  {"when": "", "then": "<|channel|>final<|message|>Hello there, friend.<|return|>"}]})";

enum class Outcome { kTaken, kWarned, kRefused };

struct Field {
  std::string path;
  std::string base;    // members that a body needs
  std::string member;  // the field
  Outcome outcome = Outcome::kTaken;
  std::string name() const { return member.substr(1, member.find('"', 1) - 1); }
};
std::ostream& operator<<(std::ostream& out, const Field& field) {
  return out << field.path << " " << field.member;
}

std::vector<Field> fields() {
  using enum Outcome;
  std::vector<Field> all;
  const auto add = [&](const char* path, const char* base,
                       std::vector<std::pair<std::string, Outcome>> members) {
    for (auto& [member, outcome] : members) all.push_back({path, base, member, outcome});
  };
  const std::string kFormat = R"("response_format":{"type":"text"})";
  add("/v1/chat/completions", R"("messages":[{"role":"user","content":"Hi"}])",
      {{R"("model":"tiny")", kTaken},
       {R"("audio":{"voice":"a","format":"wav"})", kRefused},
       {R"("frequency_penalty":0.5)", kTaken},
       {R"("function_call":"auto")", kTaken},
       {R"("functions":[{"name":"f"}])", kTaken},
       {R"("functions":[])", kTaken},
       {R"("logit_bias":{"5":1})", kTaken},
       {R"("logprobs":true)", kTaken},
       {R"("max_completion_tokens":9)", kTaken},
       {R"("max_tokens":9)", kTaken},
       {R"("metadata":{"a":"b"})", kTaken},
       {R"("modalities":["text"])", kTaken},
       {R"("modalities":["text","audio"])", kRefused},
       {R"("moderation":{"model":"m"})", kRefused},
       {R"("n":2)", kTaken},
       {R"("parallel_tool_calls":false)", kTaken},
       {R"("prediction":{"type":"content","content":"x"})", kTaken},
       {R"("presence_penalty":0.5)", kTaken},
       {R"("prompt_cache_key":"k")", kTaken},
       {R"("prompt_cache_options":{"ttl":"1h"})", kTaken},
       {R"("prompt_cache_retention":"24h")", kTaken},
       {R"("reasoning_effort":"low")", kTaken},
       {kFormat, kTaken},
       {R"("safety_identifier":"s")", kTaken},
       {R"("seed":7)", kTaken},
       {R"("service_tier":"auto")", kTaken},
       {R"("stop":["x"])", kTaken},
       {R"("store":true)", kWarned},
       {R"("store":false)", kTaken},
       {R"("stream":false)", kTaken},
       {R"("stream":true,"stream_options":{"include_usage":true,"include_obfuscation":false})",
        kTaken},
       {R"("temperature":0.5)", kTaken},
       {R"("tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"auto")", kTaken},
       {R"("tools":[{"type":"custom","custom":{"name":"c"}}])", kWarned},
       {R"("logprobs":true,"top_logprobs":2)", kTaken},
       {R"("top_p":0.5)", kTaken},
       {R"("user":"u")", kTaken},
       // vLLM's.
       {R"("documents":[{"text":"a"}])", kRefused},
       {R"("documents":[])", kTaken},
       {R"("add_generation_prompt":false)", kRefused},
       {R"("add_generation_prompt":true)", kTaken},
       {R"("echo":true)", kTaken},
       {R"("best_of":2)", kRefused},
       {R"("best_of":1)", kTaken},
       {R"("kv_transfer_params":{"remote_host":"x"})", kRefused},
       {R"("kv_transfer_params":{})", kRefused},
       {R"("return_prompt_text":true)", kRefused},
       {R"("verbosity":"low")", kWarned},
       {R"("verbosity":"medium")", kTaken},
       {R"("verbosity":"much")", kRefused},
       {R"("web_search_options":{})", kWarned}});
  add("/v1/completions", R"("prompt":"Hi")",
      {{R"("best_of":1)", kTaken},
       {R"("best_of":3)", kTaken},
       {R"("echo":true)", kTaken},
       {R"("frequency_penalty":0.5)", kTaken},
       {R"("logit_bias":{"5":1})", kTaken},
       {R"("logprobs":2)", kTaken},
       {R"("max_tokens":9)", kTaken},
       {R"("n":2)", kTaken},
       {R"("presence_penalty":0.5)", kTaken},
       {R"("seed":7)", kTaken},
       {R"("stop":"x")", kTaken},
       {R"("stream":true,"stream_options":{"include_usage":true})", kTaken},
       {R"("prompt_embeds":"AAAA")", kRefused},
       {R"("kv_transfer_params":{"do_remote_decode":true})", kRefused},
       {R"("skip_special_tokens":false)", kTaken},
       {R"("suffix":"x")", kRefused},
       {R"("temperature":0.5)", kTaken},
       {R"("top_p":0.5)", kTaken},
       {R"("user":"u")", kTaken}});
  add("/v1/responses", R"("input":"Hi")",
      {{R"("access_programs":{})", kTaken},
       {R"("background":true)", kTaken},
       {R"("context_management":[{"type":"compaction"}])", kWarned},
       {R"("conversation":"conv_1")", kRefused},
       {R"("conversation":{"id":"conv_1"})", kRefused},
       {R"("image":{})", kTaken},
       {R"("include":["message.output_text.logprobs"])", kTaken},
       {R"("include":["reasoning.encrypted_content"])", kTaken},
       {R"("include":[7])", kRefused},
       {R"("instructions":"Be brief.")", kTaken},
       {R"("max_output_tokens":9)", kTaken},
       {R"("max_tool_calls":3)", kTaken},
       {R"("max_tool_calls":0)", kRefused},
       {R"("metadata":{"a":"b"})", kTaken},
       {R"("model":"tiny")", kTaken},
       {R"("moderation":{"model":"m"})", kRefused},
       {R"("parallel_tool_calls":true)", kTaken},
       {R"("previous_response_id":"resp_none")", kRefused},
       {R"("prompt":{"id":"p"})", kRefused},
       {R"("prompt_cache_key":"k")", kTaken},
       {R"("prompt_cache_options":{"ttl":"1h"})", kTaken},
       {R"("prompt_cache_retention":"24h")", kTaken},
       {R"("reasoning":{"effort":"high","summary":"auto"})", kTaken},
       {R"("request_id":"mine")", kRefused},
       {R"("previous_input_messages":[{"role":"user","content":"x"}])", kRefused},
       {R"("enable_response_messages":true)", kRefused},
       {R"("enable_response_messages":false)", kTaken},
       {R"("kv_transfer_params":{"do_remote_decode":true})", kRefused},
       {R"("safety_identifier":"s")", kTaken},
       {R"("service_tier":"auto")", kTaken},
       {R"("store":false)", kTaken},
       {R"("stream":true,"stream_options":{"include_obfuscation":false})", kTaken},
       {R"("temperature":0.5)", kTaken},
       {R"("text":{"format":{"type":"text"},"verbosity":"low"})", kWarned},
       {R"("tools":[{"type":"function","name":"f"}],"tool_choice":"auto")", kTaken},
       {R"("tools":[{"type":"web_search"}])", kWarned},
       {R"("top_logprobs":2)", kTaken},
       {R"("top_p":0.5)", kTaken},
       {R"("truncation":"auto")", kTaken},
       {R"("truncation":"disabled")", kTaken},
       {R"("user":"u")", kTaken}});
  add("/v1/embeddings", R"("input":"Hi")",
      {{R"("model":"tiny")", kTaken},
       {R"("dimensions":4)", kTaken},
       {R"("dimensions":0)", kRefused},
       {R"("encoding_format":"base64")", kTaken},
       {R"("encoding_format":"hex")", kRefused},
       {R"("user":"u")", kTaken}});
  add("/v1/messages", R"("max_tokens":2000,"messages":[{"role":"user","content":"Hi"}])",
      {{R"("model":"tiny")", kTaken},
       {R"("cache_control":{"type":"ephemeral"})", kTaken},
       {R"("container":"c")", kRefused},
       {R"("context_management":{"edits":[]})", kWarned},
       {R"("diagnostics":{})", kTaken},
       {R"("inference_geo":"eu")", kRefused},
       {R"("mcp_servers":[{"type":"url","url":"http://x","name":"n"}])", kRefused},
       {R"("metadata":{"user_id":"u"})", kTaken},
       {R"("output_config":{"effort":"low"})", kTaken},
       {R"("service_tier":"auto")", kTaken},
       {R"("speed":"fast")", kTaken},
       {R"("stop_sequences":["x"])", kTaken},
       {R"("stream":true)", kTaken},
       {R"("system":[{"type":"text","text":"Be brief."}])", kTaken},
       {R"("thinking":{"type":"enabled","budget_tokens":1024})", kTaken},
       {R"("thread":{"type":"x"})", kRefused},
       {R"("tools":[{"name":"f","input_schema":{"type":"object"}}],"tool_choice":{"type":"auto"})",
        kTaken},
       {R"("tools":[{"type":"web_search_20250305","name":"web_search"}])", kWarned},
       {R"("user_profile_id":"u")", kTaken},
       {R"("workspace_id":"w")", kTaken}});
  return all;
}

TEST(SdkFields, each_is_obeyed_let_be_told_of_or_refused) {
  ServerFixture fixture(kScript, {});
  for (const Field& field : fields()) {
    SCOPED_TRACE(testing::PrintToString(field));
    const net::HttpResponse response =
        fixture.post(field.path, "{" + field.base + "," + field.member + "}");
    const bool refused = field.outcome == Outcome::kRefused;
    EXPECT_EQ(response.status, refused ? 400 : 200) << response.body.substr(0, 300);
    EXPECT_EQ(response.headers.has("x-pelton-warning"), field.outcome == Outcome::kWarned);
    if (refused) {
      EXPECT_THAT(response.body, testing::HasSubstr(field.name()));
    }
    // Null is as good as nothing.
    const net::HttpResponse without =
        fixture.post(field.path, "{" + field.base + ",\"" + field.name() + "\":null}");
    EXPECT_EQ(without.status, 200) << without.body.substr(0, 300);
  }
}

}  // namespace
}  // namespace pelton::server
