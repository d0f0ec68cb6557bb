// POST /v1/chat/completions/render and /v1/completions/render: the prompt that the same request
// would be answered from, as text and as a body for /inference/v1/generate. Nothing is computed.
#include <utility>

#include "api/chat_request.h"
#include "api/completion_request.h"
#include "api/generate_response.h"
#include "server/chat_prompt.h"
#include "server/chat_turn_options.h"
#include "server/completion_prompt.h"
#include "server/random_id.h"
#include "server/reply.h"
#include "server/server.h"

namespace pelton::server {

void Server::answer_chat_render(Call call) {
  const ServedModel* model = model_for(call);
  if (model == nullptr) return;
  const auto parsed = api::parse_chat_request(call.request.body, {.vocab_size = model->vocab_size});
  if (!parsed.ok()) return call.send(api::api_error(parsed.error()));
  if (model_named(call, parsed->model) == nullptr) return;
  call.add_warnings(parsed->warnings);
  std::vector<TokenId> tokens = chat_prompt_of(*parsed, *model, call.tenant).tokens;
  const ChatTurn::Options turn = turn_options(*parsed, *model);
  tokens.insert(tokens.end(), turn.opening.begin(), turn.opening.end());
  std::string body;
  api::append_rendered({.id = random_id("chatcmpl-", {.seed = draw(), .counter = 0}),
                        .model = parsed->model.empty() ? model->id : parsed->model,
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
  if (model_named(call, parsed->model) == nullptr) return;
  std::string body = "[";
  for (size_t i = 0; i < parsed->prompts.size(); ++i) {
    const Result<std::vector<TokenId>> tokens =
        completion_prompt(parsed->prompts[i], *model, "prompt");
    if (!tokens.ok()) return call.send(api::api_error(tokens.error()));
    if (i > 0) body += ',';
    api::append_rendered({.id = random_id("cmpl-", {.seed = draw(), .counter = 0}),
                          .model = parsed->model.empty() ? model->id : parsed->model,
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
