#include "server/chat_turn_options.h"

#include <memory>
#include <utility>

#include "api/documented_fields.h"

namespace pelton::server {
namespace {

constexpr std::string_view kUnnamed = "the model's chat template does not name it";

}  // namespace

std::shared_ptr<const std::vector<chat::FunctionTool>> parsed_functions(
    const std::vector<api::FunctionTool>& tools, const chat::ChatFormat& format) {
  if (!format.types_by_schema()) return nullptr;
  std::vector<chat::FunctionTool> functions;
  for (const api::FunctionTool& tool : tools) {
    functions.push_back({.name = tool.name, .description = {}, .parameters = tool.parameters});
  }
  return std::make_shared<const std::vector<chat::FunctionTool>>(std::move(functions));
}

ChatTurn::Options turn_options(const api::ChatRequest& request, const ServedModel& model) {
  ChatTurn::Options options{.stop = stop_strings(request.generation)};
  // Content is what the format says and nothing else.
  if (request.generation.format) {
    options.preamble = chat::ReplyBuilder::Options::Preamble::kReasoning;
  }
  options.one_call = !request.parallel_calls;
  options.may_call = !request.tools.empty();
  options.shows_opening = !request.continues_last || request.echoes_last;
  // A message that goes on is the prompt's own opening.
  if (!request.continues_last) {
    options.opening = model.chat->turn_opening(
        request.thinks.value_or(true) ? chat::Thinking::kOn : chat::Thinking::kOff);
  }
  options.functions = parsed_functions(request.tools, *model.chat);
  if (request.forced_call) {
    const std::vector<TokenId> call = model.chat->call_opening(request.forced_call->function_name);
    options.opening.insert(options.opening.end(), call.begin(), call.end());
  }
  return options;
}

std::vector<std::string> warnings_of(const api::ChatRequest& request, const ServedModel& model) {
  std::vector<std::string> warnings = request.warnings;
  if (model.chat == nullptr) return warnings;
  const chat::ChatFormat& format = *model.chat;
  size_t warned = 0;
  const auto warn = [&](std::string_view field, std::string_view why) {
    if (++warned <= api::kFieldWarningsMax) warnings.push_back(api::unread_warning(field, why));
  };
  constexpr std::string_view kNoName = "the template has no such name";
  const bool reads_effort = format.reads_argument("reasoning_effort");
  // What switches it off also asks for the least effort; a budget asks for one beside it.
  const bool has_switch =
      format.reads_argument("enable_thinking") || format.reads_argument("thinking");
  const bool is_least = reads_effort && request.reasoning_effort.has_value();
  if (request.thinks && !has_switch && !is_least) warn(request.thinks_field, kNoName);
  const bool is_beside = request.thinks == false || request.generation.thinking_budget.has_value();
  if (request.reasoning_effort && !reads_effort && !is_beside) warn("reasoning_effort", kUnnamed);
  if (!request.tools.empty() && !format.reads_argument("tools")) warn("tools", kUnnamed);
  for (const Json::Member& argument : request.template_arguments) {
    if (format.reads_argument(argument.key)) continue;
    warn("chat_template_kwargs." + argument.key, kNoName);
    if (warned >= api::kFieldWarningsMax) break;
  }
  return warnings;
}

std::vector<std::string> warnings_of(const api::ResponseRequest& request,
                                     const ServedModel& model) {
  std::vector<std::string> warnings = request.warnings;
  if (model.chat == nullptr) return warnings;
  if (request.reasoning_effort && !model.chat->reads_argument("reasoning_effort")) {
    warnings.push_back(api::unread_warning("reasoning.effort", kUnnamed));
  }
  if (!request.tools.empty() && !model.chat->reads_argument("tools")) {
    warnings.push_back(api::unread_warning("tools", kUnnamed));
  }
  return warnings;
}

}  // namespace pelton::server
