#include "server/chat_turn_options.h"

#include "chat/call_opening.h"

namespace pelton::server {

ChatTurn::Options turn_options(const api::ChatRequest& request, const ServedModel& model) {
  ChatTurn::Options options{.stop = stop_strings(request.generation)};
  // Content is what the format says and nothing else.
  if (request.generation.format) {
    options.preamble = chat::ReplyBuilder::Options::Preamble::kReasoning;
  }
  options.one_call = !request.parallel_calls;
  options.may_call = !request.tools.empty();
  if (request.forced_call) {
    options.opening =
        chat::call_opening(model.tokenizer, model.harmony, request.forced_call->function_name);
  }
  return options;
}

}  // namespace pelton::server
