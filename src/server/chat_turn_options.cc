#include "server/chat_turn_options.h"

#include <memory>
#include <utility>

#include "api/documented_fields.h"

namespace pelton::server {

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
  size_t warned = 0;
  if (request.thinks && !model.chat->reads_argument("enable_thinking")) {
    ++warned;
    warnings.push_back(api::unread_warning(request.thinks_field, "the template has no such name"));
  }
  constexpr std::string_view kUnnamed = "the model's chat template does not name it";
  if (!request.tools.empty() && !model.chat->reads_argument("tools")) {
    ++warned;
    warnings.push_back(api::unread_warning("tools", kUnnamed));
  }
  if (request.reasoning_effort && !model.chat->reads_argument("reasoning_effort")) {
    ++warned;
    warnings.push_back(api::unread_warning("reasoning_effort", kUnnamed));
  }
  for (const Json::Member& argument : request.template_arguments) {
    if (model.chat->reads_argument(argument.key)) continue;
    if (++warned > api::kFieldWarningsMax) break;
    warnings.push_back(api::unread_warning("chat_template_kwargs." + argument.key,
                                           "the template has no such name"));
  }
  return warnings;
}

}  // namespace pelton::server
