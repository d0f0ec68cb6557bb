// POST /v1/chat/completions/render and /v1/completions/render: the prompt that the same request
// would be answered from, as text and as a body for /inference/v1/generate. Nothing is computed.
#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "api/chat_request.h"
#include "api/completion_request.h"
#include "api/generate_response.h"
#include "server/chat_prompt.h"
#include "server/chat_turn_options.h"
#include "server/completion_prompt.h"
#include "server/endpoints.h"
#include "server/random_id.h"
#include "server/reply.h"
#include "server/request_pipeline.h"

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

class ChatRendering final : public ModelRequest {
 public:
  std::optional<api::ApiError> read(const std::string& body, const Scope& scope) override {
    auto error = keep(api::parse_chat_request(body, scope.model.request_limits()), request_);
    if (error) return error;
    const std::optional<Error> not_possible = chat_not_rendered(request_);
    return not_possible ? std::optional(api::api_error(*not_possible)) : std::nullopt;
  }
  Fields fields(const ServedModel& model) const override {
    return {.model = request_.model, .warnings = warnings_of(request_, model)};
  }

  std::optional<api::ApiError> prepare(Prepared, const Scope& scope) override {
    const ServedModel& model = scope.model;
    std::vector<TokenId> opening = turn_options(request_, model).opening;
    const Result<ChatPrompt> prompt =
        scope.services.chat_prompt_of(request_, model, scope.tenant, scope.identity, opening);
    if (!prompt.ok()) return api::api_error(prompt.error());
    const std::vector<TokenId>& tokens = prompt->tokens;
    api::append_rendered(
        {.id = answer_id("chatcmpl-", request_.generation.request_id, scope.identity.draw()),
         .model = model.shown_name(request_.model),
         .tokens = tokens,
         .text = model.tokenizer.decode(tokens),
         .logprobs = request_.top_logprobs,
         .generation = request_.generation},
        answer_);
    return std::nullopt;
  }

  void start(Call call, Services&) override { call.send(json_reply(std::move(answer_))); }

 private:
  api::ChatRequest request_;
  std::string answer_;
};

// As many as there are prompts.
class CompletionRendering final : public ModelRequest {
 public:
  std::optional<api::ApiError> read(const std::string& body, const Scope& scope) override {
    auto error = keep(api::parse_completion_request(body, scope.model.request_limits()), request_);
    if (error) return error;
    std::optional<Error> not_possible = not_rendered(request_.generation);
    if (!not_possible && request_.echo) not_possible = not_rendered("echo", "an echo");
    if (!not_possible && !request_.suffix.empty()) {
      not_possible = not_rendered("suffix", "a text behind the answer");
    }
    if (!not_possible && request_.choices_shown < request_.generation.n) {
      not_possible = not_rendered("best_of", "the best of several answers");
    }
    return not_possible ? std::optional(api::api_error(*not_possible)) : std::nullopt;
  }
  Fields fields(const ServedModel&) const override {
    return {.model = request_.model, .warnings = request_.warnings};
  }

  std::optional<api::ApiError> prepare(Prepared, const Scope& scope) override {
    answer_ = "[";
    for (size_t i = 0; i < request_.prompts.size(); ++i) {
      const auto tokens =
          completion_prompt(request_.prompts[i], scope.model, "prompt", request_.adds_special);
      if (!tokens.ok()) return api::api_error(tokens.error());
      if (i > 0) answer_ += ',';
      std::string id = answer_id("cmpl-", request_.generation.request_id, scope.identity.draw());
      if (request_.prompts.size() > 1) id += "-" + std::to_string(i);
      api::append_rendered({.id = std::move(id),
                            .model = scope.model.shown_name(request_.model),
                            .tokens = *tokens,
                            .text = scope.model.tokenizer.decode(*tokens),
                            .logprobs = request_.logprobs,
                            .generation = request_.generation},
                           answer_);
    }
    answer_ += ']';
    return std::nullopt;
  }

  void start(Call call, Services&) override { call.send(json_reply(std::move(answer_))); }

 private:
  api::CompletionRequest request_;
  std::string answer_;
};

}  // namespace

void render_chat(Call call, Services& services) {
  run_request(std::move(call), services, std::make_unique<ChatRendering>(), std::nullopt);
}

void render_completion(Call call, Services& services) {
  run_request(std::move(call), services, std::make_unique<CompletionRendering>(), std::nullopt);
}

}  // namespace pelton::server
