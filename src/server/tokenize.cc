// POST /tokenize and /detokenize: what a request would cost, without asking the engine.
#include <memory>
#include <optional>
#include <utility>

#include "api/tokenize_request.h"
#include "server/chat_prompt.h"
#include "server/chat_turn_options.h"
#include "server/endpoints.h"
#include "server/reply.h"
#include "server/request_pipeline.h"

namespace pelton::server {
namespace {

class Tokenization final : public ModelRequest {
 public:
  std::optional<api::ApiError> read(const std::string& body, const Scope& scope) override {
    return keep(api::parse_tokenize_request(body, scope.model.request_limits()), request_);
  }
  Fields fields(const ServedModel& model) const override {
    return {.model = request_.model,
            .warnings = request_.chat ? warnings_of(*request_.chat, model) : request_.warnings};
  }
  std::optional<api::ApiError> refusal(const Call&, const Scope& scope) const override {
    const std::optional<Error> error = request_.chat
                                           ? scope.model.no_chat()
                                           : scope.model.no_text("prompt", TextUse::kTokenization);
    return error ? std::optional(api::api_error(*error)) : std::nullopt;
  }

  std::optional<api::ApiError> prepare(Prepared, const Scope& scope) override {
    const ServedModel& model = scope.model;
    std::vector<TokenId> tokens;
    if (request_.chat) {
      std::vector<TokenId> opening;
      if (request_.chat->begins_answer) opening = turn_options(*request_.chat, model).opening;
      Result<ChatPrompt> prompt = scope.services.chat_prompt_of(*request_.chat, model, scope.tenant,
                                                                scope.identity, opening);
      if (!prompt.ok()) return api::api_error(prompt.error());
      tokens = std::move(prompt->tokens);
      if (!request_.chat->begins_answer) drop_turn_start(model, tokens);
    } else {
      tokens = request_.adds_special ? model.tokenizer.encode_prompt(request_.prompt)
                                     : model.tokenizer.encode(request_.prompt);
    }
    api::Tokenized tokenized{
        .tokens = tokens, .context_max = model.context_limit(), .texts = std::nullopt};
    if (request_.token_texts) {
      tokenized.texts.emplace();
      for (const TokenId token : tokens) {
        tokenized.texts->emplace_back(model.tokenizer.bytes(token));
      }
    }
    answer_ =
        request_.is_llama ? api::llama_tokenize_body(tokenized) : api::tokenize_body(tokenized);
    return std::nullopt;
  }

  void start(Call call, Services&) override { call.send(json_reply(std::move(answer_))); }

 private:
  api::TokenizeRequest request_;
  std::string answer_;
};

class Detokenization final : public ModelRequest {
 public:
  std::optional<api::ApiError> read(const std::string& body, const Scope& scope) override {
    return keep(api::parse_detokenize_request(body, scope.model.request_limits()), request_);
  }
  Fields fields(const ServedModel&) const override {
    return {.model = request_.model, .warnings = request_.warnings};
  }
  std::optional<api::ApiError> refusal(const Call&, const Scope& scope) const override {
    const std::optional<Error> error = scope.model.no_text("tokens", TextUse::kTokenization);
    return error ? std::optional(api::api_error(*error)) : std::nullopt;
  }
  std::optional<api::ApiError> prepare(Prepared, const Scope& scope) override {
    answer_ = api::detokenize_body(scope.model.tokenizer.decode(request_.tokens));
    return std::nullopt;
  }
  void start(Call call, Services&) override { call.send(json_reply(std::move(answer_))); }

 private:
  api::DetokenizeRequest request_;
  std::string answer_;
};

}  // namespace

void tokenize(Call call, Services& services) {
  run_request(std::move(call), services, std::make_unique<Tokenization>(), std::nullopt);
}

void detokenize(Call call, Services& services) {
  run_request(std::move(call), services, std::make_unique<Detokenization>(), std::nullopt);
}

}  // namespace pelton::server
