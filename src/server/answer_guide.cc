#include "server/answer_guide.h"

#include <algorithm>
#include <utility>

#include "chat/harmony_grammar.h"

namespace pelton::server {
namespace {

using api::OutputFormat;
using Rules = chat::HarmonyRules;

OutputFormat parameters_of(const api::FunctionTool& tool) {
  if (!tool.parameters) return {.kind = OutputFormat::Kind::kJsonObject, .field = tool.field};
  return {.kind = OutputFormat::Kind::kJsonSchema, .field = tool.field, .schema = *tool.parameters};
}

// Of a function that need not be followed to the letter, if that cannot be done.
GrammarStore::Compiled compile_lenient(const api::FunctionTool& tool, const ServedModel& model,
                                       const GrammarStore::Shelf& grammars) {
  const GrammarStore::Compiled exact = grammars.grammar(parameters_of(tool), model.tokenizer);
  if (exact.ok() || exact.error().code != ErrorCode::kUnsupported) return exact;
  return grammars.grammar({.kind = OutputFormat::Kind::kJsonObject, .field = tool.field},
                          model.tokenizer);
}

Result<Rules::Function> rules_of(const api::FunctionTool& tool, bool forced,
                                 const ServedModel& model, const GrammarStore::Shelf& grammars) {
  Rules::Function function{.name = tool.name, .arguments = nullptr};
  if (tool.strict) {
    TRY_ASSIGN(function.arguments, grammars.grammar(parameters_of(tool), model.tokenizer));
  } else if (forced) {
    TRY_ASSIGN(function.arguments, compile_lenient(tool, model, grammars));
  }
  return function;
}

}  // namespace

Result<std::optional<grammar::TokenGuide>> chat_guide(const AnswerDemands& demands,
                                                      const ServedModel& model,
                                                      const GrammarStore::Shelf& grammars) {
  const bool strict = std::any_of(demands.tools.begin(), demands.tools.end(),
                                  [](const api::FunctionTool& tool) { return tool.strict; });
  if (!demands.format && !demands.forced_call && !strict)
    return std::optional<grammar::TokenGuide>();
  Rules rules;
  if (demands.format) {
    TRY_ASSIGN(rules.final_text, grammars.grammar(*demands.format, model.tokenizer));
  }
  const std::string* only = nullptr;  // the one function that is called
  if (demands.forced_call) {
    only = &demands.forced_call->function_name;
    rules.begin = only->empty() ? Rules::Begin::kAnyCall : Rules::Begin::kFirstCall;
  }
  for (const api::FunctionTool& tool : demands.tools) {
    const bool forced = only != nullptr && (only->empty() || *only == tool.name);
    TRY_ASSIGN(Rules::Function function, rules_of(tool, forced, model, grammars));
    if (only == nullptr || forced) rules.functions.push_back(std::move(function));
  }
  const std::shared_ptr<const grammar::TokenTrie> trie = grammars.trie(model.tokenizer);
  if (trie == nullptr) return Error{ErrorCode::kNotFound, "no vocabulary yet", ""};
  TRY_ASSIGN(auto network, chat::harmony_network(rules, model.harmony, trie));
  return std::optional(grammar::TokenGuide(std::move(network)));
}

Result<std::optional<grammar::TokenGuide>> text_guide(const std::optional<OutputFormat>& format,
                                                      const ServedModel& model,
                                                      const GrammarStore::Shelf& grammars) {
  if (!format) return std::optional<grammar::TokenGuide>();
  TRY_ASSIGN(auto compiled, grammars.grammar(*format, model.tokenizer));
  return std::optional(
      grammar::TokenGuide(chat::text_network(std::move(compiled), model.all_stop_tokens())));
}

}  // namespace pelton::server
