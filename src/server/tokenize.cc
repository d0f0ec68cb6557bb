// POST /tokenize, /detokenize and /v1/chat/completions/input_tokens: what a request would cost,
// without asking the engine.
#include <optional>
#include <utility>

#include "api/tokenize_request.h"
#include "server/chat_prompt.h"
#include "server/chat_turn_options.h"
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
  call.add_warnings(parsed->warnings);
  const auto refused = parsed->chat ? model->no_chat() : model->no_text("prompt");
  if (refused) return call.send(api::api_error(*refused));
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

// As llama.cpp has it: what the prompt of the same request to /v1/chat/completions would be.
void Server::answer_chat_tokens(Call call) {
  const ServedModel* model = model_for(call);
  if (model == nullptr) return;
  const auto parsed = api::parse_chat_request(call.request.body, {.vocab_size = model->vocab_size});
  if (!parsed.ok()) return call.send(api::api_error(parsed.error()));
  if (model_named(call, parsed->model) == nullptr) return;
  if (const auto error = model->no_chat()) return call.send(api::api_error(*error));
  call.add_warnings(warnings_of(*parsed, *model));
  const size_t count = chat_prompt_of(*parsed, *model, call.tenant).tokens.size() +
                       turn_options(*parsed, *model).opening.size();
  call.send(json_reply(api::input_tokens_body(static_cast<int64_t>(count))));
}

void Server::answer_detokenize(Call call) {
  const ServedModel* model = model_for(call);
  if (model == nullptr) return;
  const auto parsed =
      api::parse_detokenize_request(call.request.body, {.vocab_size = model->vocab_size});
  if (!parsed.ok()) return call.send(api::api_error(parsed.error()));
  if (model_named(call, parsed->model) == nullptr) return;
  if (const auto error = model->no_text("tokens")) return call.send(api::api_error(*error));
  call.add_warnings(parsed->warnings);
  call.send(json_reply(api::detokenize_body(model->tokenizer.decode(parsed->tokens))));
}

}  // namespace pelton::server
