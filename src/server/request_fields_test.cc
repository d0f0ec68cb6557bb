// Row D6, field by field: each field of api/request_fields.cc goes to a running server over HTTP
// with a value that asks for something, and what is seen there is what docs/request_fields.md says:
// obeyed, no effect on the answer, a warning, or refused by its name. The page's table is written
// by this test (PELTON_RECORD=1) and compared otherwise.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "api/documented_fields.h"
#include "base/file.h"
#include "server/endpoint.h"
#include "server/routes.h"
#include "server/server_fixture.h"

namespace pelton::server {
namespace {

using api::DocumentedField;
using Effect = DocumentedField::Effect;

constexpr std::string_view kPage = PELTON_SOURCE_DIR "/docs/request_fields.md";
constexpr std::string_view kScript = R"({"rules": [
  {"when": "", "then": "<|channel|>final<|message|>Hello there, friend.<|return|>"}]})";

// The script's answer, bent to what a grammar allows: the end where it may be, else a brace that
// closes, else the first token that is no blank.
ServerFixture::Options fixture_options() {
  static const tokenizer::Tokenizer tokenizer = chat::tiny_tokenizer();
  ServerFixture::Options options;
  options.executor = [](engine::ModelledExecutor::Options& executor) {
    executor.next_token = [script =
                               executor.next_token](const engine::ModelledExecutor::Seen& seen) {
      const TokenId said = script(seen);
      if (grammar::may_be(seen.allowed, said)) return said;
      const auto last = static_cast<TokenId>(seen.allowed.size() * 64 - 1);
      for (TokenId end = last; end > 255; --end) {
        if (grammar::may_be(seen.allowed, end) && tokenizer.is_special(end)) return end;
      }
      if (grammar::may_be(seen.allowed, '}')) return TokenId{'}'};  // bytes are tokens
      for (TokenId token = ' ' + 1; token <= last; ++token) {
        if (grammar::may_be(seen.allowed, token)) return token;
      }
      return said;
    };
  };
  return options;
}

struct Target {
  std::string_view path;
  std::string_view body;  // that is answered
};
constexpr Target kTargets[] = {
    {"/v1/chat/completions", R"({"messages":[{"role":"user","content":"hi"}],"max_tokens":40})"},
    {"/v1/completions", R"({"prompt":"hi","max_tokens":40})"},
    {"/v1/responses", R"({"input":"hi","max_output_tokens":40,"store":false})"},
    {"/v1/messages", R"({"messages":[{"role":"user","content":"hi"}],"max_tokens":2000})"},
    {"/inference/v1/generate", R"({"token_ids":[72],"max_tokens":40})"},
    {"/v1/embeddings", R"({"input":"hi"})"},
};

// What a field needs beside it, or where an endpoint writes it otherwise: "PATH FIELD" or "FIELD",
// then the members that are set; null takes one away.
const std::map<std::string_view, std::string_view>& others() {
  static const std::map<std::string_view, std::string_view> all = {
      {"/v1/chat/completions top_logprobs", R"({"logprobs":true})"},
      {"/v1/chat/completions continue_final_message",
       R"({"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"He"}]})"},
      {"/v1/chat/completions echo",
       R"({"continue_final_message":true,"messages":[{"role":"user","content":"hi"},)"
       R"({"role":"assistant","content":"He"}]})"},
      {"/v1/chat/completions logprob_token_ids", R"({"logprobs":true})"},
      {"/v1/completions logprob_token_ids", R"({"logprobs":0})"},
      {"/inference/v1/generate logprob_token_ids",
       R"({"max_tokens":null,"sampling_params":{"logprobs":0,"logprob_token_ids":[72]},)"
       R"("logprob_token_ids":null})"},
      {"/v1/completions beam_width", R"({"use_beam_search":true})"},
      {"/v1/completions early_stopping", R"({"use_beam_search":true})"},
      {"/v1/completions length_penalty", R"({"use_beam_search":true})"},
      {"dry_allowed_length", R"({"dry_multiplier":0.8})"},
      {"dry_base", R"({"dry_multiplier":0.8})"},
      {"mirostat_eta", R"({"mirostat":2})"},
      {"mirostat_tau", R"({"mirostat":2})"},
      {"dry_penalty_last_n", R"({"dry_multiplier":0.8})"},
      {"dry_sequence_breakers", R"({"dry_multiplier":0.8})"},
      {"dynatemp_exponent", R"({"dynatemp_range":0.5})"},
      {"xtc_threshold", R"({"xtc_probability":0.5})"},
      {"penalize_nl", R"({"repeat_penalty":1.5})"},
      {"penalize_newline", R"({"repeat_penalty":1.5})"},
      {"repeat_last_n", R"({"repeat_penalty":1.5})"},
      {"truncation_side", R"({"truncate_prompt_tokens":8})"},
      {"stream_options", R"({"stream":true})"},
      {"/v1/chat/completions tool_choice",
       R"({"tools":[{"type":"function","function":{"name":"f"}}]})"},
      {"/v1/responses tool_choice",
       R"({"tools":[{"type":"function","name":"f"}],"tool_choice":{"type":"function","name":"f"}})"},
      {"/v1/messages tool_choice",
       R"({"tools":[{"name":"f","input_schema":{}}],"tool_choice":{"type":"tool","name":"f"}})"},
      {"/v1/messages tools", R"({"tools":[{"name":"f","input_schema":{"type":"object"}}]})"},
      {"/v1/responses tools", R"({"tools":[{"type":"function","name":"f"}]})"},
      {"/v1/chat/completions function_call", R"({"functions":[{"name":"f"}]})"},
      {"background", R"({"store":true})"},
      {"store", R"({"store":true})"},
      {"/v1/completions logprobs", R"({"logprobs":2})"},
      {"/inference/v1/generate sampling_params", R"({"max_tokens":null})"},
      {"/v1/embeddings messages", R"({"input":null})"},
      {"max_completion_tokens", R"({"max_tokens":null,"max_output_tokens":null})"},
      {"max_tokens", R"({"max_output_tokens":null})"},
      {"n_predict", R"({"max_tokens":null,"max_output_tokens":null})"},
      {"num_predict", R"({"max_tokens":null,"max_output_tokens":null})"},
      {"/v1/messages max_completion_tokens", R"({"max_tokens":3})"},
      {"/v1/messages n_predict", R"({"max_tokens":3})"},
      {"/v1/messages num_predict", R"({"max_tokens":3})"},
  };
  return all;
}

// `value`: none is the example, or what others() has in its place.
std::string body_with(const Target& target, const DocumentedField& field,
                      const std::optional<Json>& value = {}) {
  std::map<std::string, Json> members;
  const auto add = [&](std::string_view object) {
    const Json json = parsed(std::string(object));
    for (const Json::Member& member : json.as_object()) members[member.key] = member.value;
  };
  add(target.body);
  members[std::string(field.name)] = parsed(std::string(field.example));
  const auto own = others().find(fmt::format("{} {}", target.path, field.name));
  const auto any = others().find(field.name);
  if (own != others().end()) {
    add(own->second);
  } else if (any != others().end() && target.path != "/v1/embeddings") {
    add(any->second);
  }
  if (value) members[std::string(field.name)] = *value;
  Json::Object object;
  for (auto& [key, member] : members) object.push_back({key, member});
  return Json(std::move(object)).dump();
}

std::string named_by(const net::HttpResponse& response) {
  const Json body = parsed(response.body);
  const Json* error = body.find("error");
  if (error == nullptr) return response.body;
  return error->string("param").value_or("") + " " + error->string("message").value_or("");
}

bool is_read_at(const Target& target, std::string_view name) {
  api::FieldTable table;
  find_endpoint("POST", target.path).endpoint->note_fields(table);
  return table.find(name) != nullptr;
}

// What a server does with the field's example, in the page's words.
std::string seen(ServerFixture& fixture, const Target& target, const DocumentedField& field) {
  const net::HttpResponse response =
      fixture.post(std::string(target.path), body_with(target, field));
  const std::string warning(response.headers.get("x-pelton-warning"));
  if (response.status == 400) {
    EXPECT_THAT(named_by(response), testing::HasSubstr(field.name));
    return "refused";
  }
  // A stored response that is not there is asked for by its name, too.
  EXPECT_TRUE(response.status == 200 || response.status == 404) << response.body;
  if (response.status == 404) return "obeyed";
  if (!warning.empty()) {
    EXPECT_THAT(warning, testing::HasSubstr(field.name));
    return "warning";
  }
  if (field.effect == Effect::kNone) return "no effect";
  if (field.effect == Effect::kBeside)
    return is_read_at(target, field.name) ? "obeyed" : "no effect";
  EXPECT_TRUE(is_read_at(target, field.name)) << "ignored though it changes the answer";
  return "obeyed";
}

std::string row_of(ServerFixture& fixture, const DocumentedField& field) {
  std::string row = fmt::format("| `{}` | {} |", field.name, field.servers);
  for (const Target& target : kTargets) {
    SCOPED_TRACE(fmt::format("{} {}", target.path, field.name));
    row += fmt::format(" {} |", seen(fixture, target, field));
  }
  return row + "\n";
}

// The page's lines that begin a row of the table.
std::string table_of(const std::string& page) {
  std::string table;
  size_t begin = 0;
  while (begin < page.size()) {
    const size_t end = std::min(page.find('\n', begin), page.size() - 1) + 1;
    const std::string_view line(page.data() + begin, end - begin);
    if (line.starts_with("| `")) table += line;
    begin = end;
  }
  return table;
}

TEST(RequestFields, D6_the_page_says_what_a_server_does_with_each) {
  ServerFixture fixture(kScript, fixture_options());
  std::string table;
  size_t pairs = 0;
  for (const DocumentedField& field : api::documented_fields()) {
    ASSERT_FALSE(field.servers.empty() || field.types.empty() || field.example.empty())
        << field.name;
    pairs += static_cast<size_t>(std::ranges::count(field.servers, ' ')) + 1;
    table += row_of(fixture, field);
  }
  EXPECT_GE(pairs, 300U) << "(server, field)";
  const std::string file(kPage);
  const Result<std::string> page = base::read_file(file, size_t{1} << 20);
  ASSERT_TRUE(page.ok());
  const std::string old = table_of(*page);
  if (std::getenv("PELTON_RECORD") != nullptr) {
    std::string text = *page;
    text.replace(text.find(old), old.size(), table);
    ASSERT_TRUE(base::write_file(file, text).ok());
    return;
  }
  EXPECT_EQ(old, table) << "PELTON_RECORD=1 writes the table of docs/request_fields.md anew";
}

// A value of no type that the field may have: true, a text, a list, an object, or a fraction.
Json wrong_value(const DocumentedField& field) {
  const auto is = [&](std::string_view type) {
    return field.types.find(type) != std::string_view::npos;
  };
  if (!is("object")) return parsed(R"({"x":{}})");
  return is("number") || is("integer") ? parsed("true") : parsed("7.5");
}

TEST(RequestFields, D6_a_wrong_type_is_refused_even_of_a_field_without_effect) {
  ServerFixture fixture(kScript, fixture_options());
  for (const DocumentedField& field : api::documented_fields()) {
    for (const Target& target : kTargets) {
      SCOPED_TRACE(fmt::format("{} {}", target.path, field.name));
      const net::HttpResponse response =
          fixture.post(std::string(target.path), body_with(target, field, wrong_value(field)));
      EXPECT_EQ(response.status, 400) << response.body;
      EXPECT_THAT(named_by(response), testing::HasSubstr(field.name));
    }
  }
}

// KV-10: nothing is empty enough of what is between workers and their gateway.
TEST(RequestFields, OfWhatNoClientMaySayNullAloneIsTaken) {
  ServerFixture fixture(kScript, fixture_options());
  const std::pair<std::string_view, std::vector<std::string_view>> kNever[] = {
      {"kv_transfer_params", {"{}", R"({"do_remote_decode":true})"}},
      {"bootstrap_host", {R"("")", "[]", R"("h")"}},
      {"bootstrap_port", {"[]", "0"}},
      {"bootstrap_room", {"[]", "0"}}};
  for (const auto& [name, values] : kNever) {
    for (const Target& target : kTargets) {
      const auto post = [&, name = name](std::string_view value) {
        return fixture.post(
            std::string(target.path),
            body_with(target, {.name = name, .example = "null"}, parsed(std::string(value))));
      };
      SCOPED_TRACE(fmt::format("{} {}", target.path, name));
      EXPECT_EQ(post("null").status, 200);
      for (const std::string_view value : values) {
        const net::HttpResponse response = post(value);
        EXPECT_EQ(response.status, 400) << value << response.body;
        EXPECT_THAT(named_by(response), testing::HasSubstr(name));
      }
    }
  }
}

// A29: one that the field may not have, by the table: no such word, or one beyond an end of the
// range.
std::vector<Json> values_beyond(const DocumentedField& field) {
  const size_t dots = field.allowed.find("..");
  if (field.allowed.empty()) return {};
  if (dots == std::string_view::npos) return {Json("nonsense"), Json("")};
  std::vector<Json> values;
  const std::string low(field.allowed.substr(0, dots));
  const std::string high(field.allowed.substr(dots + 2));
  const bool is_text = field.types.find("string") != std::string_view::npos;
  if (is_text) return {Json(std::string(std::stoul(high) + 1, 'x'))};
  if (!low.empty()) values.push_back(parsed(std::to_string(std::stoll(low) - 1)));
  if (!high.empty()) values.push_back(parsed(std::to_string(std::stoll(high) + 1)));
  return values;
}

TEST(RequestFields, A29_values_that_a_field_may_not_have_are_refused) {
  ServerFixture fixture(kScript, fixture_options());
  int tried = 0;
  for (const DocumentedField& field : api::documented_fields()) {
    for (const Json& value : values_beyond(field)) {
      for (const Target& target : kTargets) {
        SCOPED_TRACE(fmt::format("{} {} {}", target.path, field.name, value.dump().substr(0, 40)));
        const net::HttpResponse response =
            fixture.post(std::string(target.path), body_with(target, field, value));
        EXPECT_EQ(response.status, 400) << response.body;
        EXPECT_THAT(named_by(response), testing::HasSubstr(field.name));
        ++tried;
      }
    }
  }
  EXPECT_GT(tried, 100);
}

TEST(RequestFields, A29_members_without_effect_have_their_values_too) {
  ServerFixture fixture(kScript, fixture_options());
  const std::pair<std::string_view, std::string_view> kBad[] = {
      {R"("reasoning":{"summary":"loud"})", "reasoning.summary"},
      {R"("reasoning":{"generate_summary":7})", "reasoning.generate_summary"},
      {R"("stream":true,"stream_options":{"include_obfuscation":"yes"})",
       "stream_options.include_obfuscation"},
      {R"("thinking":{"type":"enabled","budget_tokens":1024,"clear_thinking":7})",
       "thinking.clear_thinking"},
      {R"("response_format":{"type":"json_object","strict":"maybe"})", "response_format.strict"},
      {R"("tools":[{"type":"function","function":{"name":"f","defer_loading":"x"}}])",
       "tools[0].function.defer_loading"},
  };
  for (const auto& [member, name] : kBad) {
    const net::HttpResponse response = fixture.post(
        "/v1/chat/completions",
        fmt::format(R"({{"messages":[{{"role":"user","content":"hi"}}],{}}})", member));
    EXPECT_EQ(response.status, 400) << member << response.body;
    EXPECT_THAT(named_by(response), testing::HasSubstr(name));
  }
  const net::HttpResponse kind =
      fixture.post("/v2/embed", R"({"texts":["hi"],"input_type":"nonsense"})");
  EXPECT_EQ(kind.status, 400) << kind.body;
  // A text's object is none of reasoning's.
  const net::HttpResponse text =
      fixture.post("/v1/responses", R"({"input":"hi","text":{"context":"auto"}})");
  EXPECT_EQ(text.status, 400) << text.body;
}

// Of one body all that ask for nothing, by the field's types.
std::vector<Json> neutral_values(const DocumentedField& field) {
  std::vector<Json> values = {parsed("null")};
  const auto is = [&](std::string_view type) {
    return field.types.find(type) != std::string_view::npos;
  };
  // As a schema, or beside words, false is a value of its own.
  const bool is_switch = is("boolean") && !is("object") && !is("string");
  if (is_switch && field.neutral != "true") values.push_back(parsed("false"));
  for (std::string_view words = field.neutral; !words.empty();) {
    const size_t end = std::min(words.find(' '), words.size());
    const std::string word(words.substr(0, end));
    const bool is_text = is("string") && word != "true" && word != "false";
    values.push_back(parsed(is_text ? "\"" + word + "\"" : word));
    words.remove_prefix(std::min(end + 1, words.size()));
  }
  return values;
}

TEST(RequestFields, D6_what_asks_for_nothing_is_taken) {
  ServerFixture fixture(kScript, fixture_options());
  static const std::set<std::string_view> kNeeded = {"input", "prompt", "messages", "token_ids",
                                                     "max_tokens"};
  // Anthropic's is an object; these are OpenAI's words.
  const auto is_word_of_others = [](const Target& target, const DocumentedField& field,
                                    const Json& value) {
    return target.path == "/v1/messages" && field.name == "tool_choice" && value.is_string();
  };
  for (const DocumentedField& field : api::documented_fields()) {
    for (const Target& target : kTargets) {
      if (kNeeded.contains(field.name)) continue;
      for (const Json& value : neutral_values(field)) {
        if (is_word_of_others(target, field, value)) continue;
        Json body = parsed(std::string(target.body));
        body.set(std::string(field.name), value);
        const net::HttpResponse response = fixture.post(std::string(target.path), body.dump());
        EXPECT_EQ(response.status, 200)
            << target.path << " " << field.name << " " << value.dump() << response.body;
        EXPECT_EQ(response.headers.get("x-pelton-warning"), "") << field.name << value.dump();
      }
    }
  }
}

std::string answer_of(const net::HttpResponse& response) {
  const Json body = parsed(response.body);
  const Json& choice = body.find("choices")->as_array().at(0);
  const Json* message = choice.find("message");
  return message == nullptr ? choice.string("text").value_or("")
                            : message->string("content").value_or("");
}

// Whatever a server calls it, the answer is held to it. The examples leave "yes" and "no".
TEST(RequestFields, D6_every_spelling_of_a_constraint_is_obeyed) {
  ServerFixture fixture(kScript, fixture_options());
  const std::pair<std::string_view, std::string_view> kSpellings[] = {
      {"guided_choice", ""},
      {"guided_regex", ""},
      {"guided_grammar", ""},
      {"guided_json", ""},
      {"structured_outputs", ""},
      {"structural_tag", ""},
      {"regex", ""},
      {"ebnf", ""},
      {"grammar", ""},
      {"json_schema", ""},
      {"json_schema", R"("{\"enum\":[\"yes\"]}")"},
      {"grammar", R"({"type":"regex","value":"yes|no"})"},
      {"grammar", R"({"type":"json","value":{"enum":["yes"]}})"},
      {"grammar", R"({"type":"json_schema","value":{"name":"n","schema":{"enum":["yes"]}}})"},
      {"format", R"({"enum":["yes"]})"},
      {"response_format", R"({"type":"json","value":{"enum":["yes"]}})"},
      {"response_format", R"({"type":"regex","value":"yes|no"})"},
      {"response_format", R"({"type":"json_schema","value":{"enum":["yes"]}})"},
  };
  for (const Target& target : {kTargets[0], kTargets[1]}) {
    for (const auto& [name, value] : kSpellings) {
      SCOPED_TRACE(fmt::format("{} {} {}", target.path, name, value));
      const auto field = std::ranges::find(api::documented_fields(), name, &DocumentedField::name);
      const Json given = parsed(std::string(value.empty() ? field->example : value));
      const net::HttpResponse response =
          fixture.post(std::string(target.path), body_with(target, *field, given));
      ASSERT_EQ(response.status, 200) << response.body;
      EXPECT_THAT(answer_of(response), testing::AnyOf("yes", "no", "\"yes\""));
    }
    const auto format =
        std::ranges::find(api::documented_fields(), "format", &DocumentedField::name);
    const net::HttpResponse any =
        fixture.post(std::string(target.path), body_with(target, *format, Json("json")));
    EXPECT_THAT(answer_of(any), testing::StartsWith("{"));
    const net::HttpResponse none =
        fixture.post(std::string(target.path), body_with(target, *format, Json("")));
    EXPECT_THAT(answer_of(none), testing::HasSubstr("Hello"));
    for (const std::string_view bad : {R"("xml")", R"(7)"}) {
      const net::HttpResponse refused = fixture.post(
          std::string(target.path), body_with(target, *format, parsed(std::string(bad))));
      EXPECT_EQ(refused.status, 400) << refused.body;
    }
  }
}

// A29: whatever stands beside it, "json_object" is an object.
TEST(RequestFields, A29_json_object_with_a_schema_is_an_object) {
  ServerFixture fixture(kScript, fixture_options());
  for (const Target& target : {kTargets[0], kTargets[1]}) {
    const auto format =
        std::ranges::find(api::documented_fields(), "response_format", &DocumentedField::name);
    for (const char* const schema :
         {"{}", "true", R"({"title":"x"})", R"({"type":["number","object"]})",
          R"({"anyOf":[{"type":"integer"},{"type":"object","properties":{}}]})"}) {
      const Json given = parsed(fmt::format(R"({{"type":"json_object","schema":{}}})", schema));
      const net::HttpResponse response =
          fixture.post(std::string(target.path), body_with(target, *format, given));
      ASSERT_EQ(response.status, 200) << schema << response.body;
      EXPECT_THAT(answer_of(response), testing::StartsWith("{")) << schema;
    }
    for (const char* const schema :
         {R"({"type":"number"})", R"({"type":["number","string"]})", "false"}) {
      const Json given = parsed(fmt::format(R"({{"type":"json_object","schema":{}}})", schema));
      const net::HttpResponse response =
          fixture.post(std::string(target.path), body_with(target, *format, given));
      EXPECT_EQ(response.status, 400) << schema << response.body;
      EXPECT_THAT(named_by(response), testing::HasSubstr("response_format.schema"));
    }
    const Json number = parsed(R"({"type":"json_schema","schema":{"type":"number"}})");
    EXPECT_EQ(fixture.post(std::string(target.path), body_with(target, *format, number)).status,
              200);
  }
}

TEST(RequestFields, D6_two_spellings_of_a_constraint_are_refused) {
  ServerFixture fixture(kScript, fixture_options());
  const net::HttpResponse response = fixture.post(
      "/v1/chat/completions", R"({"messages":[{"role":"user","content":"hi"}],)"
                              R"("format":"json","grammar":{"type":"regex","value":"a"}})");
  EXPECT_EQ(response.status, 400);
  EXPECT_THAT(named_by(response), testing::HasSubstr("both say what the answer must look like"));
}

TEST(RequestFields, D6_a_constraint_beside_a_forced_call_is_refused) {
  ServerFixture fixture(kScript, fixture_options());
  const std::string tools =
      R"("messages":[{"role":"user","content":"hi"}],"tools":[{"type":"function","function":)"
      R"({"name":"f","parameters":{"type":"object","properties":{},"additionalProperties":false}}}],)";
  for (const std::string_view constraint :
       {R"("regex":"yes|no")", R"("structured_outputs":{"choice":["a"]})",
        R"("guided_json":{"enum":["yes"]})"}) {
    for (const std::string_view choice :
         {R"("required")", R"({"type":"function","function":{"name":"f"}})"}) {
      const net::HttpResponse refused =
          fixture.post("/v1/chat/completions",
                       fmt::format(R"({{{}{},"tool_choice":{}}})", tools, constraint, choice));
      EXPECT_EQ(refused.status, 400) << refused.body;
      EXPECT_THAT(named_by(refused), testing::HasSubstr("makes it a call"));
    }
    const net::HttpResponse taken = fixture.post(
        "/v1/chat/completions", fmt::format(R"({{{}{},"tool_choice":"auto"}})", tools, constraint));
    EXPECT_EQ(taken.status, 200) << taken.body;
  }
  const net::HttpResponse own = fixture.post(
      "/v1/chat/completions",
      "{" + tools + R"("response_format":{"type":"json_object"},"tool_choice":"required"})");
  EXPECT_EQ(own.status, 200) << own.body;
}

TEST(RequestFields, D6_strict_fields_refuse_what_nobody_documents) {
  ServerFixture fixture(kScript, {.model = [](ServedModel& model) {
                          model.unknown_fields = api::UnknownFields::kRefuse;
                        }});
  for (const Target& target : kTargets) {
    const net::HttpResponse plain =
        fixture.post(std::string(target.path), std::string(target.body));
    EXPECT_EQ(plain.status, 200) << plain.body;
    const DocumentedField unknown{.name = "temprature", .neutral = {}, .example = "0.5"};
    const net::HttpResponse response =
        fixture.post(std::string(target.path), body_with(target, unknown));
    EXPECT_EQ(response.status, 400) << target.path;
    EXPECT_THAT(named_by(response), testing::HasSubstr("temprature"));
  }
  // In an object of the body, too; and a name that is no text stays out of the answer.
  const net::HttpResponse inner = fixture.post(
      "/v1/chat/completions", R"({"messages":[{"role":"user","content":"hi","mood":"good"}]})");
  EXPECT_THAT(named_by(inner), testing::HasSubstr("messages[0].mood"));
  const net::HttpResponse odd = fixture.post(
      "/v1/completions", "{\"prompt\":\"hi\",\"" + std::string(70, 'a') + "\xC3\xA9\":1}");
  EXPECT_EQ(odd.status, 400);
  EXPECT_THAT(named_by(odd), testing::HasSubstr("aaaa"));
}

}  // namespace
}  // namespace pelton::server
