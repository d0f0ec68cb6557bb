// As documented_fields_test, for the objects in a body (row D6): no member that is documented and
// would change the answer is dropped. Each object of api/documented_objects stands in a body below,
// and each of its members goes there.
#include "api/documented_objects.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "server/server_fixture.h"

namespace pelton::server {
namespace {

using api::BodyKind;
using api::DocumentedField;
using api::DocumentedObject;
using testing::HasSubstr;

// What is asked for by its format is answered in it: a forced call goes on behind its opening.
constexpr std::string_view kScript = R"({"rules": [
  {"when": "", "then": "<|channel|>final<|message|>Hello there, friend.<|return|>"},
  {"when": "say null", "then": "<|channel|>final<|message|>null<|return|>"},
  {"when": "call f", "then": "{}<|call|>"}]})";

// A body that is answered, with a mark where a member of the object may be added.
struct Example {
  BodyKind kind;
  std::string_view object;
  std::string_view body;
};

constexpr char kMark = '@';

const char* endpoint(BodyKind kind) {
  switch (kind) {
    case BodyKind::kChat:
      return "/v1/chat/completions";
    case BodyKind::kMessages:
      return "/v1/messages";
    case BodyKind::kResponse:
      return "/v1/responses";
    case BodyKind::kVectors:
      return "/v1/embeddings";
    case BodyKind::kText:
      break;
  }
  return "/v1/completions";
}

#define PELTON_CHAT(said) R"({"max_tokens":1,"messages":[{"role":"user","content":")" said R"("}],)"
#define PELTON_CHAT_HI PELTON_CHAT("hi")
#define PELTON_MESSAGES(said) \
  R"({"max_tokens":1025,"messages":[{"role":"user","content":")" said R"("}],)"
#define PELTON_MESSAGES_HI PELTON_MESSAGES("hi")
#define PELTON_MESSAGES_NULL PELTON_MESSAGES("say null")
#define PELTON_RESPONSES(said) R"({"max_output_tokens":1,"store":false,"input":")" said R"(",)"
#define PELTON_RESPONSES_HI PELTON_RESPONSES("hi")
#define PELTON_CALL                                                            \
  R"({"role":"user","content":"a"},{"role":"assistant","content":[{"type":"t)" \
  R"(ool_use","id":"1","name":"f","input":{}}]},)"

constexpr Example kExamples[] = {
    {BodyKind::kText, "stream_options",
     R"({"prompt":"hi","max_tokens":1,"stream":true,"stream_options":{"include_usage":true@}})"},
    {BodyKind::kText, "repetition_detection",
     R"({"prompt":"hi","max_tokens":1,"repetition_detection":{"max_pattern_size":3,"min_count":3@}})"},

    {BodyKind::kChat, "stream_options",
     PELTON_CHAT_HI R"("stream":true,"stream_options":{"include_usage":true@}})"},
    {BodyKind::kChat, "repetition_detection",
     PELTON_CHAT_HI R"("repetition_detection":{"max_pattern_size":3,"min_count":3@}})"},
    {BodyKind::kChat, "thinking", PELTON_CHAT_HI R"("thinking":{"type":"enabled"@}})"},
    {BodyKind::kChat, "messages[]",
     R"({"max_tokens":1,"messages":[{"role":"user","content":"hi"@}]})"},
    {BodyKind::kChat, "messages[]",
     R"({"max_tokens":1,"messages":[{"role":"user","content":"hi"},{"role":"assistant",)"
     R"("content":"ho"@},{"role":"user","content":"hi"}]})"},
    {BodyKind::kChat, "messages[]",
     R"({"max_tokens":1,"messages":[{"role":"user","content":"hi"},{"role":"assistant",)"
     R"("tool_calls":[{"id":"1","type":"function","function":{"name":"f"}}]},)"
     R"({"role":"tool","tool_call_id":"1","content":"ho"@}]})"},
    {BodyKind::kChat, "messages[].content[]",
     R"({"max_tokens":1,"messages":[{"role":"user","content":[{"type":"text","text":"hi"@}]}]})"},
    {BodyKind::kChat, "messages[].content[]",
     R"({"max_tokens":1,"messages":[{"role":"user","content":"hi"},{"role":"assistant",)"
     R"("content":[{"type":"refusal","refusal":"no"@}]},{"role":"user","content":"hi"}]})"},
    {BodyKind::kChat, "messages[].tool_calls[]",
     R"({"max_tokens":1,"messages":[{"role":"user","content":"hi"},{"role":"assistant",)"
     R"("tool_calls":[{"id":"1","type":"function","function":{"name":"f"}@}]},)"
     R"({"role":"tool","tool_call_id":"1","content":"ho"}]})"},
    {BodyKind::kChat, "messages[].tool_calls[].function",
     R"({"max_tokens":1,"messages":[{"role":"user","content":"hi"},{"role":"assistant",)"
     R"("tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"@}}]},)"
     R"({"role":"tool","tool_call_id":"1","content":"ho"}]})"},
    {BodyKind::kChat, "messages[].function_call",
     R"({"max_tokens":1,"messages":[{"role":"user","content":"hi"},{"role":"assistant",)"
     R"("function_call":{"name":"f","arguments":"{}"@}},)"
     R"({"role":"function","name":"f","content":"ho"}]})"},
    {BodyKind::kChat, "tools[]",
     PELTON_CHAT_HI R"("tools":[{"type":"function","function":{"name":"f"}@}]})"},
    {BodyKind::kChat, "tools[].function",
     PELTON_CHAT_HI R"("tools":[{"type":"function","function":{"name":"f"@}}]})"},
    {BodyKind::kChat, "functions[]", PELTON_CHAT_HI R"("functions":[{"name":"f"@}]})"},
    {BodyKind::kChat, "function_call",
     PELTON_CHAT("call f") R"("functions":[{"name":"f"}],"function_call":{"name":"f"@}})"},
    {BodyKind::kChat, "tool_choice",
     PELTON_CHAT("call f") R"("tools":[{"type":"function","function":{"name":"f"}}],)"
                           R"("tool_choice":{"type":"function","function":{"name":"f"}@}})"},
    {BodyKind::kChat, "tool_choice",
     PELTON_CHAT_HI R"("tools":[{"type":"function","function":{"name":"f"}}],)"
                    R"("tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto",)"
                    R"("tools":[{"type":"function","function":{"name":"f"}}]}@}})"},
    {BodyKind::kChat, "tool_choice.function",
     PELTON_CHAT("call f") R"("tools":[{"type":"function","function":{"name":"f"}}],)"
                           R"("tool_choice":{"type":"function","function":{"name":"f"@}}})"},
    {BodyKind::kChat, "tool_choice.allowed_tools",
     PELTON_CHAT_HI R"("tools":[{"type":"function","function":{"name":"f"}}],)"
                    R"("tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto",)"
                    R"("tools":[{"type":"function","function":{"name":"f"}}]@}}})"},
    {BodyKind::kChat, "tool_choice.allowed_tools.tools[]",
     PELTON_CHAT_HI R"("tools":[{"type":"function","function":{"name":"f"}}],)"
                    R"("tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto",)"
                    R"("tools":[{"type":"function","function":{"name":"f"}@}]}}})"},
    {BodyKind::kChat, "tool_choice.allowed_tools.tools[].function",
     PELTON_CHAT_HI R"("tools":[{"type":"function","function":{"name":"f"}}],)"
                    R"("tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto",)"
                    R"("tools":[{"type":"function","function":{"name":"f"@}}]}}})"},

    {BodyKind::kMessages, "stream_options",
     PELTON_MESSAGES_HI R"("stream":true,"stream_options":{"include_usage":true@}})"},
    {BodyKind::kMessages, "repetition_detection",
     PELTON_MESSAGES_HI R"("repetition_detection":{"max_pattern_size":3,"min_count":3@}})"},
    {BodyKind::kMessages, "thinking",
     PELTON_MESSAGES_HI R"("thinking":{"type":"enabled","budget_tokens":1024@}})"},
    {BodyKind::kMessages, "system[]",
     PELTON_MESSAGES_HI R"("system":[{"type":"text","text":"Be terse."@}]})"},
    {BodyKind::kMessages, "messages[]",
     R"({"max_tokens":1,"messages":[{"role":"user","content":"hi"@}]})"},
    {BodyKind::kMessages, "messages[]",
     R"({"max_tokens":1,"messages":[{"role":"user","content":"hi"},{"role":"system",)"
     R"("content":"Be terse."@}]})"},
    {BodyKind::kMessages, "messages[].output_config",
     R"({"max_tokens":1,"messages":[{"role":"user","content":"hi"},{"role":"system",)"
     R"("content":"Be terse.","output_config":{"effort":"low"@}}]})"},
    {BodyKind::kMessages, "messages[].content[]",
     R"({"max_tokens":1,"messages":[{"role":"user","content":[{"type":"text","text":"hi"@}]}]})"},
    {BodyKind::kMessages, "messages[].content[]",
     R"({"max_tokens":1,"messages":[{"role":"user","content":"hi"},{"role":"assistant",)"
     R"("content":[{"type":"thinking","thinking":"hm"@},{"type":"text","text":"ho"}]},)"
     R"({"role":"user","content":"hi"}]})"},
    {BodyKind::kMessages, "messages[].content[]",
     R"({"max_tokens":1,"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[)"
     R"({"type":"tool_use","id":"1","name":"f","input":{}@}]},)"
     R"({"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":"x"}]}]})"},
    {BodyKind::kMessages, "messages[].content[]",
     R"({"max_tokens":1,"messages":[)" PELTON_CALL
     R"({"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":"x"@}]}]})"},
    {BodyKind::kMessages, "messages[].content[]",
     R"({"max_tokens":1,"messages":[{"role":"user","content":[{"type":"document","source":)"
     R"({"type":"text","data":"hi"}@}]}]})"},
    {BodyKind::kMessages, "messages[].content[]",
     R"({"max_tokens":1,"tools":[{"name":"g","input_schema":{}}],"messages":[)"
     R"({"role":"user","content":"hi"},{"role":"system","content":[{"type":"tool_addition",)"
     R"("tool":{"type":"tool_reference","name":"g"}@}]}]})"},
    {BodyKind::kMessages, "messages[].content[].content[]",
     R"({"max_tokens":1,"messages":[)" PELTON_CALL
     R"({"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":[)"
     R"({"type":"text","text":"x"@}]}]}]})"},
    {BodyKind::kMessages, "messages[].content[].content[]",
     R"({"max_tokens":1,"tools":[{"name":"g","input_schema":{}}],"messages":[)" PELTON_CALL
     R"({"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":[)"
     R"({"type":"tool_reference","tool_name":"g"@}]}]}]})"},
    {BodyKind::kMessages, "messages[].content[].content[]",
     R"({"max_tokens":1,"messages":[)" PELTON_CALL
     R"({"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":[)"
     R"({"type":"document","source":{"type":"text","data":"hi"}@}]}]}]})"},
    {BodyKind::kMessages, "messages[].content[].content[]",
     R"({"max_tokens":1,"messages":[)" PELTON_CALL
     R"({"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":[)"
     R"({"type":"search_result","source":"s","title":"t","content":[]@}]}]}]})"},
    {BodyKind::kMessages, "messages[].content[].source",
     R"({"max_tokens":1,"messages":[{"role":"user","content":[{"type":"document","source":)"
     R"({"type":"text","data":"hi"@}}]}]})"},
    {BodyKind::kMessages, "messages[].content[].source",
     R"({"max_tokens":1,"messages":[{"role":"user","content":[{"type":"document","source":)"
     R"({"type":"content","content":[{"type":"text","text":"hi"}]@}}]}]})"},
    {BodyKind::kMessages, "messages[].content[].source.content[]",
     R"({"max_tokens":1,"messages":[{"role":"user","content":[{"type":"document","source":)"
     R"({"type":"content","content":[{"type":"text","text":"hi"@}]}}]}]})"},
    {BodyKind::kMessages, "messages[].content[].citations",
     R"({"max_tokens":1,"messages":[{"role":"user","content":[{"type":"document","source":)"
     R"({"type":"text","data":"hi"},"citations":{"enabled":false@}}]}]})"},
    {BodyKind::kMessages, "messages[].content[].content[].source",
     R"({"max_tokens":1,"messages":[)" PELTON_CALL
     R"({"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":[)"
     R"({"type":"document","source":{"type":"text","data":"hi"@}}]}]}]})"},
    {BodyKind::kMessages, "messages[].content[].content[].source",
     R"({"max_tokens":1,"messages":[)" PELTON_CALL
     R"({"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":[)"
     R"({"type":"document","source":{"type":"content","content":[]@}}]}]}]})"},
    {BodyKind::kMessages, "messages[].content[].content[].source.content[]",
     R"({"max_tokens":1,"messages":[)" PELTON_CALL
     R"({"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":[)"
     R"({"type":"document","source":{"type":"content","content":[)"
     R"({"type":"text","text":"x"@}]}}]}]}]})"},
    {BodyKind::kMessages, "messages[].content[].content[].citations",
     R"({"max_tokens":1,"messages":[)" PELTON_CALL
     R"({"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":[)"
     R"({"type":"document","source":{"type":"text","data":"hi"},"citations":{"enabled":false@}})"
     R"(]}]}]})"},
    {BodyKind::kMessages, "messages[].content[].content[].content[]",
     R"({"max_tokens":1,"messages":[)" PELTON_CALL
     R"({"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":[)"
     R"({"type":"search_result","source":"s","title":"t","content":[)"
     R"({"type":"text","text":"x"@}]}]}]}]})"},
    {BodyKind::kMessages, "messages[].content[].tool",
     R"({"max_tokens":1,"tools":[{"name":"g","input_schema":{}}],"messages":[)"
     R"({"role":"user","content":"hi"},{"role":"system","content":[{"type":"tool_addition",)"
     R"("tool":{"type":"tool_reference","name":"g"@}}]}]})"},
    {BodyKind::kMessages, "tools[]",
     PELTON_MESSAGES_HI R"("tools":[{"name":"f","input_schema":{}@}]})"},
    {BodyKind::kMessages, "tool_choice",
     PELTON_MESSAGES("call f") R"("tools":[{"name":"f","input_schema":{}}],)"
                               R"("tool_choice":{"type":"tool","name":"f"@}})"},
    {BodyKind::kMessages, "output_config",
     PELTON_MESSAGES_HI R"("output_config":{"effort":"low"@}})"},
    {BodyKind::kMessages, "output_config.format",
     PELTON_MESSAGES_NULL
     R"("output_config":{"format":{"type":"json_schema","schema":{"type":"null"}@}}})"},
    {BodyKind::kMessages, "output_format",
     PELTON_MESSAGES_NULL R"("output_format":{"type":"json_schema","schema":{"type":"null"}@}})"},

    {BodyKind::kResponse, "stream_options",
     PELTON_RESPONSES_HI R"("stream":true,"stream_options":{"include_usage":true@}})"},
    {BodyKind::kResponse, "repetition_detection",
     PELTON_RESPONSES_HI R"("repetition_detection":{"max_pattern_size":3,"min_count":3@}})"},
    {BodyKind::kResponse, "input[]",
     R"({"max_output_tokens":1,"store":false,"input":[{"role":"user","content":"hi"@}]})"},
    {BodyKind::kResponse, "input[]",
     R"({"max_output_tokens":1,"store":false,"input":[{"role":"user","content":"hi"},)"
     R"({"type":"reasoning","summary":[]@},)"
     R"({"type":"message","role":"assistant","content":"ho"},{"role":"user","content":"hi"}]})"},
    {BodyKind::kResponse, "input[]",
     R"({"max_output_tokens":1,"store":false,"input":[{"role":"user","content":"hi"},)"
     R"({"type":"function_call","call_id":"1","name":"f","arguments":"{}"@},)"
     R"({"type":"function_call_output","call_id":"1","output":"x"}]})"},
    {BodyKind::kResponse, "input[]",
     R"({"max_output_tokens":1,"store":false,"input":[{"role":"user","content":"hi"},)"
     R"({"type":"function_call","call_id":"1","name":"f","arguments":"{}"},)"
     R"({"type":"function_call_output","call_id":"1","output":"x"@}]})"},
    {BodyKind::kResponse, "input[].content[]",
     R"({"max_output_tokens":1,"store":false,"input":[{"role":"user","content":[)"
     R"({"type":"input_text","text":"hi"@}]}]})"},
    {BodyKind::kResponse, "input[].content[]",
     R"({"max_output_tokens":1,"store":false,"input":[{"role":"user","content":"hi"},)"
     R"({"role":"assistant","content":[{"type":"refusal","refusal":"no"@}]},)"
     R"({"role":"user","content":"hi"}]})"},
    {BodyKind::kResponse, "input[].output[]",
     R"({"max_output_tokens":1,"store":false,"input":[{"role":"user","content":"hi"},)"
     R"({"type":"function_call","call_id":"1","name":"f","arguments":"{}"},)"
     R"({"type":"function_call_output","call_id":"1","output":[{"type":"input_text","text":"x"@}]}]})"},
    {BodyKind::kResponse, "input[].output[]",
     R"({"max_output_tokens":1,"store":false,"input":[{"role":"user","content":"hi"},)"
     R"({"type":"function_call","call_id":"1","name":"f","arguments":"{}"},)"
     R"({"type":"function_call_output","call_id":"1","output":[{"type":"refusal","refusal":"x"@}]}]})"},
    {BodyKind::kResponse, "input[].summary[]",
     R"({"max_output_tokens":1,"store":false,"input":[{"role":"user","content":"hi"},)"
     R"({"type":"reasoning","summary":[{"type":"summary_text","text":"hm"@}]},)"
     R"({"type":"message","role":"assistant","content":"ho"},{"role":"user","content":"hi"}]})"},
    {BodyKind::kResponse, "tools[]",
     PELTON_RESPONSES_HI R"("tools":[{"type":"function","name":"f"@}]})"},
    {BodyKind::kResponse, "tool_choice",
     PELTON_RESPONSES("call f") R"("tools":[{"type":"function","name":"f"}],)"
                                R"("tool_choice":{"type":"function","name":"f"@}})"},
    {BodyKind::kResponse, "tool_choice",
     PELTON_RESPONSES_HI
     R"("tools":[{"type":"function","name":"f"}],"tool_choice":{"type":"allowed_tools",)"
     R"("mode":"auto","tools":[{"type":"function","name":"f"}]@}})"},
    {BodyKind::kResponse, "tool_choice.tools[]",
     PELTON_RESPONSES_HI
     R"("tools":[{"type":"function","name":"f"}],"tool_choice":{"type":"allowed_tools",)"
     R"("mode":"auto","tools":[{"type":"function","name":"f"@}]}})"},
};

std::string body_with(const Example& example, const std::string& member) {
  std::string body(example.body);
  const size_t mark = body.find(kMark);
  EXPECT_NE(mark, std::string::npos) << body;
  return body.replace(mark, 1, member.empty() ? "" : "," + member);
}

std::string warnings_of(const net::HttpResponse& response) {
  std::string all;
  for (const auto& [name, value] : response.headers.fields()) {
    if (name == "x-pelton-warning") all += value + "\n";
  }
  return all;
}

std::vector<Example> examples_of(BodyKind kind, std::string_view object) {
  std::vector<Example> found;
  for (const Example& example : kExamples) {
    if (example.kind == kind && example.object == object) found.push_back(example);
  }
  return found;
}

class DocumentedObjects : public testing::TestWithParam<BodyKind> {
 protected:
  net::HttpResponse post(const Example& example, const std::string& member) {
    return fixture_.post(endpoint(example.kind), body_with(example, member));
  }
  // Whether some body is refused for a value of it that cannot be meant.
  bool is_read(BodyKind kind, std::string_view object, std::string_view name) {
    for (const Example& example : examples_of(kind, object)) {
      for (const char* const nonsense : {R"({"x":{}})", "7.5"}) {
        if (post(example, fmt::format("\"{}\":{}", name, nonsense)).status == 400) return true;
      }
    }
    return false;
  }

  ServerFixture fixture_{kScript, {}};
};

TEST_P(DocumentedObjects, D6_what_is_said_to_be_read_is_read) {
  for (const DocumentedObject& object : api::documented_objects(GetParam())) {
    ASSERT_FALSE(examples_of(GetParam(), object.path).empty()) << object.path << " has no example";
    for (const Example& example : examples_of(GetParam(), object.path)) {
      const net::HttpResponse response = post(example, "");
      EXPECT_EQ(response.status, 200) << example.body << response.body;
      EXPECT_EQ(warnings_of(response), "") << example.body;
    }
    std::string_view names = object.obeyed;
    while (!names.empty()) {
      const size_t end = std::min(names.find(' '), names.size());
      const std::string_view name = names.substr(0, end);
      EXPECT_TRUE(is_read(GetParam(), object.path, name)) << object.path << " " << name;
      names.remove_prefix(std::min(end + 1, names.size()));
    }
  }
}

bool is_of(const DocumentedField& field, std::string_view type) {
  return api::has_word(field.types, type);
}

// One of its types that asks for something; of a member without types, which is refused or read
// where it stands, any.
std::string asking_value(const DocumentedField& field) {
  if (field.types.empty() || is_of(field, "object")) return R"({"x":{}})";
  if (is_of(field, "array")) return R"([{"x":{}}])";
  if (is_of(field, "boolean")) return field.neutral == "true" ? "false" : "true";
  return is_of(field, "string") ? R"("x")" : "7";
}

std::vector<std::string> neutral_values(const DocumentedField& field) {
  std::vector<std::string> values = {"null"};
  if (is_of(field, "object")) values.emplace_back("{}");
  if (is_of(field, "array")) values.emplace_back("[]");
  if (is_of(field, "string")) values.emplace_back("\"\"");
  if (is_of(field, "boolean")) values.emplace_back(field.neutral == "true" ? "true" : "false");
  return values;
}

// A29: a property of the table, and of what a server answers.
TEST_P(DocumentedObjects, A29_what_is_taken_and_not_read_is_of_its_type) {
  for (const DocumentedObject& object : api::documented_objects(GetParam())) {
    const Example example = examples_of(GetParam(), object.path).front();
    for (const DocumentedField& field : object.others) {
      if (field.effect == DocumentedField::Effect::kChanges) continue;
      if (api::has_word(object.obeyed, field.name)) continue;  // of another type of object
      ASSERT_FALSE(field.types.empty()) << object.path << " " << field.name;
      const char* const wrong = is_of(field, "object") ? "7.5" : R"({"x":{}})";
      if (is_of(field, "object") && is_of(field, "number")) continue;  // of any type
      const net::HttpResponse response = post(example, fmt::format("\"{}\":{}", field.name, wrong));
      EXPECT_EQ(response.status, 400) << object.path << " " << field.name << response.body;
      EXPECT_THAT(response.body, HasSubstr(field.name));
    }
  }
}

// What a server has written itself is no unknown word to it, be it ever so strict.
TEST(DocumentedItems, CallsOfBuiltInToolsMayComeBack) {
  ServerFixture fixture(kScript, {.model = [](ServedModel& model) {
                          model.unknown_fields = api::UnknownFields::kRefuse;
                        }});
  const net::HttpResponse response = fixture.post(
      "/v1/responses",
      R"({"store":false,"input":[{"role":"user","content":"hi"},{"type":"code_interpreter_call",)"
      R"("id":"ci_1","status":"completed","container_id":"c","code":"1","outputs":null},)"
      R"({"type":"web_search_call","id":"ws_1","status":"completed","action":{"type":"search"}}]})");
  ASSERT_EQ(response.status, 200) << response.body;
  for (const char* const member : {"[1].container_id", "[1].code", "[2].action"}) {
    EXPECT_THAT(warnings_of(response), HasSubstr(fmt::format("input{} ignored", member)));
  }
}

TEST_P(DocumentedObjects, D6_no_other_member_is_dropped_silently) {
  using Effect = DocumentedField::Effect;
  for (const DocumentedObject& object : api::documented_objects(GetParam())) {
    const Example example = examples_of(GetParam(), object.path).front();
    for (const DocumentedField& field : object.others) {
      const std::string member = fmt::format("\"{}\":{}", field.name, asking_value(field));
      SCOPED_TRACE(std::string(object.path) + " " + member);
      const net::HttpResponse response = post(example, member);
      if (field.effect == Effect::kChanges) {
        EXPECT_EQ(response.status, 400) << response.body;
        EXPECT_THAT(response.body, HasSubstr(field.name));
        continue;
      }
      // Where it stands for another type of object, it may be read and refused there.
      if (field.effect == Effect::kNone && response.status == 400) continue;
      EXPECT_EQ(response.status, 200) << response.body;
      const std::string named = fmt::format("{} ignored: ", field.name);
      EXPECT_EQ(warnings_of(response).find(named) != std::string::npos,
                field.effect == Effect::kStyle)
          << warnings_of(response);
      for (const std::string& nothing : neutral_values(field)) {
        const net::HttpResponse neutral =
            post(example, fmt::format("\"{}\":{}", field.name, nothing));
        EXPECT_EQ(neutral.status, 200) << nothing << neutral.body;
        EXPECT_EQ(warnings_of(neutral), "") << nothing;
      }
    }
    const net::HttpResponse unknown = post(example, R"("xyzzy":1)");
    EXPECT_EQ(unknown.status, 200) << object.path << unknown.body;
    EXPECT_THAT(warnings_of(unknown), HasSubstr(".xyzzy ignored: an unknown field")) << object.path;
  }
}

INSTANTIATE_TEST_SUITE_P(Bodies, DocumentedObjects,
                         testing::Values(BodyKind::kText, BodyKind::kChat, BodyKind::kMessages,
                                         BodyKind::kResponse));

// Each by its own outcome: what the audit sent.
struct MemberCase {
  const char* path;
  const char* body;
  int status;
  const char* named;  // by the warning or the error; empty: by nothing
};

constexpr MemberCase kMemberCases[] = {
    {"/v1/messages", PELTON_MESSAGES_HI R"("output_config":{"efort":"low"}})", 200,
     "output_config.efort"},
    {"/v1/messages", PELTON_MESSAGES_HI R"("thinking":{"type":"adaptive","deep":1}})", 200,
     "thinking.deep"},
    {"/v1/messages",
     PELTON_MESSAGES_HI R"("tools":[{"name":"f","input_schema":{},"input_examples":[{"a":1}]}]})",
     200, "tools[0].input_examples"},
    {"/v1/messages",
     PELTON_MESSAGES_HI R"("tools":[{"name":"f","input_schema":{},"allowed_callers":["direct"]}]})",
     200, ""},
    {"/v1/messages",
     PELTON_MESSAGES_HI
     R"("tools":[{"name":"f","input_schema":{},"allowed_callers":["code_execution_20250825"]}]})",
     400, "tools[0].allowed_callers"},
    // A tool of another type, which is left out, has members of its own.
    {"/v1/messages",
     PELTON_MESSAGES_HI R"("tools":[{"type":"bash_20250124","name":"b","max_uses":3}]})", 200,
     "tools[0] ignored: unknown tool type"},
    {"/v1/chat/completions",
     R"({"max_tokens":1,"messages":[{"role":"user","content":"hi"},{"role":"assistant",)"
     R"("content":"So","prefix":true}]})",
     400, "messages[1].prefix"},
    {"/v1/chat/completions",
     R"({"max_tokens":1,"messages":[{"role":"user","content":"hi"},{"role":"assistant",)"
     R"("content":"So","prefix":false,"refusal":null,"annotations":[],"audio":null}]})",
     200, ""},
    {"/v1/chat/completions",
     PELTON_CHAT_HI R"("tools":[{"type":"function","function":{"name":"f","examples":[1]}}]})", 200,
     "tools[0].function.examples"},
    {"/v1/chat/completions",
     PELTON_CHAT_HI R"("tools":[{"type":"function","defer_loading":true,)"
                    R"("function":{"name":"f"}}]})",
     200, "tools[0].defer_loading"},
    {"/v1/responses",
     PELTON_RESPONSES_HI R"("tools":[{"type":"function","name":"f","defer_loading":true}]})", 200,
     "tools[0].defer_loading"},
    {"/inference/v1/generate",
     R"({"token_ids":[72],"sampling_params":{"max_tokens":1,"repetition_detection":)"
     R"({"max_pattern_size":2,"min_count":2,"window":9}}})",
     200, "sampling_params.repetition_detection.window"},
    {"/v1/embeddings", R"({"messages":[{"role":"user","content":"hi","prefix":true}]})", 400,
     "messages[0].prefix"},
    {"/tokenize", R"({"messages":[{"role":"user","content":"hi","mood":1}]})", 200,
     "messages[0].mood"},
    // What is read of some objects only.
    {"/v1/chat/completions",
     R"({"max_tokens":1,"messages":[{"role":"user","content":"hi","tool_calls":[{"id":"1",)"
     R"("type":"function","function":{"name":"f"}}]}]})",
     200, "messages[0].tool_calls ignored: only read where 'role' is assistant"},
    {"/v1/chat/completions",
     R"({"max_tokens":1,"messages":[{"role":"system","name":"a","content":"hi"},)"
     R"({"role":"user","name":"b","content":"hi","tool_calls":[],"refusal":""}]})",
     200, "messages[0].name ignored"},
    {"/v1/chat/completions",
     PELTON_CHAT_HI R"("stream":true,"stream_options":{"continuous_usage_stats":true}})", 200,
     "stream_options.continuous_usage_stats ignored: only read where 'include_usage' is true"},
    {"/v1/chat/completions",
     PELTON_CHAT_HI R"("stream":true,"stream_options":{"continuous_usage_stats":false}})", 200, ""},
    {"/v1/messages",
     R"({"max_tokens":1,"messages":[{"role":"user","content":"hi","clear_at":"never"}]})", 200,
     "messages[0].clear_at"},
    {"/v1/responses",
     R"({"max_output_tokens":1,"store":false,"input":[{"role":"user","content":"hi",)"
     R"("encrypted_content":"x"}]})",
     200, "input[0].encrypted_content ignored: only read where 'type' is reasoning"},
};

TEST(NestedMembers, D6_members_where_they_stand) {
  ServerFixture fixture(kScript, {});
  for (const MemberCase& one : kMemberCases) {
    const net::HttpResponse response = fixture.post(one.path, one.body);
    EXPECT_EQ(response.status, one.status) << one.body << response.body;
    const std::string said = one.status == 200 ? warnings_of(response) : response.body;
    if (one.status == 200 && std::string_view(one.named).empty()) {
      EXPECT_EQ(said, "") << one.body;
    }
    EXPECT_THAT(said, HasSubstr(one.named)) << one.body;
  }
}

// However many there are.
TEST(NestedMembers, D6_a_bodys_warnings_are_bounded) {
  ServerFixture fixture(kScript, {});
  std::string many = R"({"max_tokens":1,"messages":[)";
  for (int i = 0; i < 100; ++i) many += R"({"role":"user","content":"x","mood":1},)";
  many.back() = ']';
  const net::HttpResponse response = fixture.post("/v1/chat/completions", many + "}");
  EXPECT_EQ(response.status, 200);
  const std::string said = warnings_of(response);
  EXPECT_EQ(static_cast<size_t>(std::ranges::count(said, '\n')), api::kFieldWarningsMax);
}

}  // namespace
}  // namespace pelton::server
