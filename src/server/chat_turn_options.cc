#include "server/chat_turn_options.h"

#include "api/documented_fields.h"

namespace pelton::server {

ChatTurn::Options turn_options(const api::ChatRequest& request, const ServedModel& model) {
  ChatTurn::Options options{.stop = stop_strings(request.generation)};
  // Content is what the format says and nothing else.
  if (request.generation.format) {
    options.preamble = chat::ReplyBuilder::Options::Preamble::kReasoning;
  }
  options.one_call = !request.parallel_calls;
  options.may_call = !request.tools.empty();
  options.opening = model.chat->turn_opening(request.thinks.value_or(true) ? chat::Thinking::kOn
                                                                           : chat::Thinking::kOff);
  if (request.forced_call) {
    const std::vector<TokenId> call = model.chat->call_opening(request.forced_call->function_name);
    options.opening.insert(options.opening.end(), call.begin(), call.end());
  }
  return options;
}

std::vector<std::string> warnings_of(const api::ChatRequest& request, const ServedModel& model) {
  std::vector<std::string> warnings = request.warnings;
  const bool knows =
      model.chat == nullptr || !model.chat->turn_opening(chat::Thinking::kOff).empty();
  if (request.thinks && !knows && warnings.size() < api::kFieldWarningsMax) {
    warnings.push_back(api::unread_warning(request.thinks_field, "the template has no such name"));
  }
  return warnings;
}

}  // namespace pelton::server
