// POST /tokenize and /detokenize: what a request would cost, without asking the engine.
#include <optional>
#include <utility>

#include "api/tokenize_request.h"
#include "server/chat_prompt.h"
#include "server/reply.h"
#include "server/server.h"

namespace pelton::server {

void Server::answer_tokenize(Call call) {
  const ServedModel* model = model_for(call);
  if (model == nullptr) return;
  const auto parsed =
      api::parse_tokenize_request(call.request.body, {.vocab_size = model->vocab_size});
  if (!parsed.ok()) return call.send(api::api_error(parsed.error()));
  if (model_named(call, parsed->model) == nullptr) return;
  std::vector<TokenId> tokens = parsed->chat
                                    ? chat_prompt_of(*parsed->chat, *model, call.tenant).tokens
                                    : model->tokenizer.encode(parsed->prompt);
  if (parsed->chat && !parsed->chat->begins_answer) drop_turn_start(*model, tokens);
  api::Tokenized tokenized{
      .tokens = tokens, .context_max = model->context_limit(), .texts = std::nullopt};
  if (parsed->token_texts) {
    tokenized.texts.emplace();
    for (const TokenId token : tokens) {
      tokenized.texts->emplace_back(model->tokenizer.bytes(token));
    }
  }
  call.send(json_reply(api::tokenize_body(tokenized)));
}

void Server::answer_detokenize(Call call) {
  const ServedModel* model = model_for(call);
  if (model == nullptr) return;
  const auto parsed =
      api::parse_detokenize_request(call.request.body, {.vocab_size = model->vocab_size});
  if (!parsed.ok()) return call.send(api::api_error(parsed.error()));
  if (model_named(call, parsed->model) == nullptr) return;
  call.send(json_reply(api::detokenize_body(model->tokenizer.decode(parsed->tokens))));
}

}  // namespace pelton::server
