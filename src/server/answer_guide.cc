#include "server/answer_guide.h"

#include <algorithm>
#include <utility>

#include "chat/text_network.h"
#include "prompt/response_opening.h"

namespace pelton::server {
namespace {

using api::OutputFormat;
using Rules = chat::TurnRules;

Json any_object() {
  return Json(Json::Object{{"type", Json("object")}});
}

// The arguments, and the text around them that the chat format has.
OutputFormat arguments_of(const api::FunctionTool& tool, const Json& schema,
                          const chat::CallFrame& frame) {
  Json::Array parts;
  const auto add_text = [&](const std::string& text) {
    if (text.empty()) return;
    parts.push_back(Json(Json::Object{{"type", Json("const_string")}, {"value", Json(text)}}));
  };
  add_text(frame.before);
  parts.push_back(Json(Json::Object{{"type", Json("json_schema")}, {"json_schema", schema}}));
  add_text(frame.after);
  Json sequence(Json::Object{{"type", Json("sequence")}, {"elements", Json(std::move(parts))}});
  return {.kind = OutputFormat::Kind::kStructuralTag,
          .field = tool.field,
          .schema = Json(Json::Object{{"format", std::move(sequence)}})};
}

OutputFormat parameters_of(const api::FunctionTool& tool, const chat::CallFrame& frame) {
  if (!frame.empty()) {
    return arguments_of(tool, tool.parameters ? *tool.parameters : any_object(), frame);
  }
  if (!tool.parameters) return {.kind = OutputFormat::Kind::kJsonObject, .field = tool.field};
  return {.kind = OutputFormat::Kind::kJsonSchema, .field = tool.field, .schema = *tool.parameters};
}

OutputFormat any_arguments_of(const api::FunctionTool& tool, const chat::CallFrame& frame) {
  if (!frame.empty()) return arguments_of(tool, any_object(), frame);
  return {.kind = OutputFormat::Kind::kJsonObject, .field = tool.field};
}

// Of a function that need not be followed to the letter, if that cannot be done.
GrammarStore::Compiled compile_lenient(const api::FunctionTool& tool, const chat::CallFrame& frame,
                                       const ServedModel& model,
                                       const GrammarStore::TenantView& grammars) {
  const GrammarStore::Compiled exact =
      grammars.grammar(parameters_of(tool, frame), model.tokenizer);
  if (exact.ok() || exact.error().code != ErrorCode::kUnsupported) return exact;
  return grammars.grammar(any_arguments_of(tool, frame), model.tokenizer);
}

struct Wanted {
  const api::FunctionTool& tool;
  bool forced;
  Rules::Begin begin;
};
Result<Rules::Function> rules_of(const Wanted& wanted, const ServedModel& model,
                                 const GrammarStore::TenantView& grammars) {
  const api::FunctionTool& tool = wanted.tool;
  Rules::Function function{.name = tool.name, .arguments = nullptr};
  const chat::CallFrame frame = model.chat->call_frame(tool.name, wanted.begin);
  if (tool.strict) {
    TRY_ASSIGN(function.arguments, grammars.grammar(parameters_of(tool, frame), model.tokenizer));
  } else if (wanted.forced) {
    TRY_ASSIGN(function.arguments, compile_lenient(tool, frame, model, grammars));
  } else if (!frame.empty()) {
    TRY_ASSIGN(function.arguments,
               grammars.grammar(any_arguments_of(tool, frame), model.tokenizer));
  }
  return function;
}

}  // namespace

Result<std::optional<grammar::GrammarState>> chat_guide(const AnswerDemands& demands,
                                                        const ServedModel& model,
                                                        const GrammarStore::TenantView& grammars) {
  const bool strict = std::any_of(demands.tools.begin(), demands.tools.end(),
                                  [](const api::FunctionTool& tool) { return tool.strict; });
  if (!demands.format && !demands.forced_call && !strict)
    return std::optional<grammar::GrammarState>();
  Rules rules;
  if (demands.format) {
    TRY_ASSIGN(rules.answer, grammars.grammar(*demands.format, model.tokenizer));
  }
  const std::string* only = nullptr;  // the one function that is called
  if (demands.forced_call) {
    only = &demands.forced_call->function_name;
    rules.begin = only->empty() ? Rules::Begin::kAnyCall : Rules::Begin::kFirstCall;
  }
  for (const api::FunctionTool& tool : demands.tools) {
    const bool forced = only != nullptr && (only->empty() || *only == tool.name);
    TRY_ASSIGN(Rules::Function function, rules_of({tool, forced, rules.begin}, model, grammars));
    if (only == nullptr || forced) rules.functions.push_back(std::move(function));
  }
  if (only == nullptr) rules.builtin_tools = prompt::builtin_tools(demands.builtins);
  const std::shared_ptr<const grammar::TokenTrie> trie = grammars.trie(model.tokenizer);
  if (trie == nullptr) return Error{ErrorCode::kNotFound, "no vocabulary yet", ""};
  TRY_ASSIGN(auto network, model.chat->turn_grammar(rules, trie));
  return std::optional(grammar::GrammarState(std::move(network)));
}

Result<std::optional<grammar::GrammarState>> text_guide(const std::optional<OutputFormat>& format,
                                                        const ServedModel& model,
                                                        const GrammarStore::TenantView& grammars) {
  if (!format) return std::optional<grammar::GrammarState>();
  if (std::optional<Error> error = model.no_text(format->field, TextUse::kOption)) return *error;
  TRY_ASSIGN(auto compiled, grammars.grammar(*format, model.tokenizer));
  return std::optional(
      grammar::GrammarState(chat::text_network(std::move(compiled), model.all_stop_tokens())));
}

}  // namespace pelton::server
