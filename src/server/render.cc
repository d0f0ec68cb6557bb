// POST /v1/chat/completions/render and /v1/completions/render: the prompt that the same request
// would be answered from, as text and as a body for /inference/v1/generate. Nothing is computed.
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "api/chat_request.h"
#include "api/completion_request.h"
#include "api/generate_response.h"
#include "base/check.h"
#include "server/chat_prompt.h"
#include "server/chat_turn_options.h"
#include "server/completion_prompt.h"
#include "server/random_id.h"
#include "server/reply.h"
#include "server/server.h"

namespace pelton::server {
namespace {

Error not_rendered(const std::string& field, std::string_view what) {
  return {ErrorCode::kUnsupported,
          fmt::format("'{}': {} is not supported where tokens are rendered", field, what), field};
}

// What an answer has to obey and a body of tokens cannot say: it would be answered without.
std::optional<Error> not_rendered(const api::GenerationFields& fields) {
  if (fields.format) return not_rendered(fields.format->field, "an output format");
  if (!fields.stop.empty()) return not_rendered("stop", "a stop string");
  return std::nullopt;
}

std::optional<Error> chat_not_rendered(const api::ChatRequest& request) {
  for (const api::FunctionTool& tool : request.tools) {
    if (!tool.strict) continue;
    const std::string function = tool.field.substr(0, tool.field.rfind('.'));
    return not_rendered(function + ".strict", "a strict function");
  }
  // Behind its reasoning the model may choose to call one, which a plain prompt does not know.
  if (request.generation.thinking_budget && !request.tools.empty()) {
    return not_rendered("thinking_token_budget", "a budget of reasoning with functions");
  }
  if (request.forced_call && request.forced_call->function_name.empty()) {
    return not_rendered("tool_choice", "a call of one of several functions");
  }
  return not_rendered(request.generation);
}

}  // namespace

void Server::answer_chat_render(Call call) {
  const ServedModel* model = model_for(call);
  if (model == nullptr) return;
  const auto parsed = api::parse_chat_request(call.request.body, {.vocab_size = model->vocab_size});
  if (!parsed.ok()) return call.send(api::api_error(parsed.error()));
  if (const auto error = chat_not_rendered(*parsed)) {
    return call.send(api::api_error(*error));
  }
  if (model_named(call, parsed->model) == nullptr) return;
  if (const auto error = model->no_chat()) return call.send(api::api_error(*error));
  call.add_warnings(warnings_of(*parsed, *model));
  std::vector<TokenId> tokens = chat_prompt_of(*parsed, *model, call.tenant).tokens;
  const ChatTurn::Options turn = turn_options(*parsed, *model);
  tokens.insert(tokens.end(), turn.opening.begin(), turn.opening.end());
  std::string body;
  api::append_rendered({.id = answer_id("chatcmpl-", parsed->generation.request_id, draw()),
                        .model = model->shown_name(parsed->model),
                        .tokens = tokens,
                        .text = model->tokenizer.decode(tokens),
                        .logprobs = parsed->top_logprobs,
                        .generation = parsed->generation},
                       body);
  call.send(json_reply(std::move(body)));
}

// As many as there are prompts.
void Server::answer_completion_render(Call call) {
  const ServedModel* model = model_for(call);
  if (model == nullptr) return;
  const auto parsed =
      api::parse_completion_request(call.request.body, {.vocab_size = model->vocab_size});
  if (!parsed.ok()) return call.send(api::api_error(parsed.error()));
  std::optional<Error> error = not_rendered(parsed->generation);
  if (!error && parsed->echo) error = not_rendered("echo", "an echo");
  if (error) return call.send(api::api_error(*error));
  if (model_named(call, parsed->model) == nullptr) return;
  call.add_warnings(parsed->warnings);
  std::string body = "[";
  for (size_t i = 0; i < parsed->prompts.size(); ++i) {
    const Result<std::vector<TokenId>> tokens =
        completion_prompt(parsed->prompts[i], *model, "prompt");
    if (!tokens.ok()) return call.send(api::api_error(tokens.error()));
    if (i > 0) body += ',';
    std::string id = answer_id("cmpl-", parsed->generation.request_id, draw());
    if (parsed->prompts.size() > 1) id += "-" + std::to_string(i);
    api::append_rendered({.id = std::move(id),
                          .model = model->shown_name(parsed->model),
                          .tokens = *tokens,
                          .text = model->tokenizer.decode(*tokens),
                          .logprobs = parsed->logprobs,
                          .generation = parsed->generation},
                         body);
  }
  body += ']';
  call.send(json_reply(std::move(body)));
}

}  // namespace pelton::server
