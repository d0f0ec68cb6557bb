// POST /v1/messages and /v1/messages/count_tokens: Anthropic's protocol, on the way of a chat
// request.
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "api/messages_request.h"
#include "api/messages_response.h"
#include "server/answer_guide.h"
#include "server/chat_prompt.h"
#include "server/chat_turn_options.h"
#include "server/endpoints.h"
#include "server/messages_answer.h"
#include "server/random_id.h"
#include "server/reply.h"
#include "server/request_pipeline.h"

namespace pelton::server {
namespace {

// Thinking that came back by its signature alone.
std::optional<api::ApiError> read_signatures(api::ChatRequest& request,
                                             const ModelRequest::Scope& scope) {
  for (api::ChatMessage& message : request.messages) {
    for (const api::SignedThinking& thinking : message.signed_thinking) {
      Result<std::string> read = scope.services.encrypted_reasoning.read_returned(
          {.token = thinking.signature, .tenant = scope.tenant, .field = thinking.path},
          request.warnings);
      if (!read.ok()) {
        Error error = read.error();
        // Anthropic's words, by which clients know to send the conversation without thinking.
        error.message = fmt::format("{}: Invalid `signature` in `thinking` block", thinking.path);
        return api::api_error(error);
      }
      message.reasoning += *read;
    }
    message.signed_thinking.clear();
  }
  return std::nullopt;
}

class Message final : public ModelRequest {
 public:
  std::optional<api::ApiError> read(const std::string& body, const Scope& scope) override {
    auto parsed = api::parse_messages_request(body, scope.model.request_limits(),
                                              api::MessagesUse::kGenerate);
    if (!parsed.ok()) return api::api_error(parsed.error());
    if (auto error = read_signatures(parsed->chat, scope)) return error;
    request_ = std::make_shared<const api::ChatRequest>(std::move(parsed->chat));
    options_.thinking = parsed->thinking;
    return std::nullopt;
  }

  Fields fields(const ServedModel& model) const override {
    return fields_of(request_->generation, request_->model, warnings_of(*request_, model));
  }

  FormatCompiler::MakeGuide guide(const ServedModel& model) const override {
    return chat_guide_of(request_, model);
  }

  std::optional<api::ApiError> prepare(Prepared with, const Scope& scope) override {
    options_.turn = turn_options(*request_, scope.model);
    Result<ChatPrompt> made = scope.services.chat_prompt_of(*request_, scope.model, scope.tenant,
                                                            scope.identity, options_.turn.opening);
    if (!made.ok()) return api::api_error(made.error());
    ChatPrompt prompt = *std::move(made);
    scope.use_known_prompt(prompt.tokens);
    if (!request_->continues_last) {
      options_.turn.place = {.turns = &scope.services.turn_cache, .history = prompt.history};
    }
    options_.prompt_tokens = static_cast<int64_t>(prompt.tokens.size());
    has_sampled_turns_ = prompt.has_sampled_turns;
    options_.head = {.id = random_id("msg_", {.seed = scope.identity.draw(), .counter = 0}),
                     .model = scope.model.shown_name(request_->model)};
    options_.timings = request_->generation.timings;
    options_.stream = request_->generation.stream;
    return keep(engine_work(scope, request_->generation,
                            {.id = options_.head.id,
                             .prompt = std::move(prompt.tokens),
                             .prompt_field = "messages",
                             .prompt_kind = api::ContextLength::Prompt::kMessages,
                             .deadline_ns = with.deadline_ns,
                             .guide = std::move(with.guide),
                             .seed_if_none = scope.identity.draw_seed(),
                             .may_call = !request_->tools.empty(),
                             .reasoning = prompt.reasoning}),
                work_);
  }

  void start(Call call, Services& services) override {
    const ServedModel& model = *call.model;  // which goes with the call
    options_.tool_id_seed = call.identity->draw();
    options_.sign = [&services, tenant = call.tenant](std::string_view thinking) {
      return services.encrypted_reasoning.encrypt(thinking, tenant);
    };
    work_.has_sampled_turns = has_sampled_turns_;
    start_generation(std::move(call), services, std::move(work_),
                     [&] { return std::make_unique<MessagesAnswer>(model, std::move(options_)); });
  }

 private:
  std::shared_ptr<const api::ChatRequest> request_;
  MessagesAnswer::Options options_;
  bool has_sampled_turns_ = false;
  EngineWork work_;
};

// The same prompt, and no more.
class MessageTokens final : public ModelRequest {
 public:
  std::optional<api::ApiError> read(const std::string& body, const Scope& scope) override {
    auto parsed =
        api::parse_messages_request(body, scope.model.request_limits(), api::MessagesUse::kCount);
    if (!parsed.ok()) return api::api_error(parsed.error());
    request_ = std::move(parsed->chat);
    return read_signatures(request_, scope);
  }
  Fields fields(const ServedModel& model) const override {
    return {.model = request_.model, .warnings = warnings_of(request_, model)};
  }
  std::optional<api::ApiError> prepare(Prepared, const Scope& scope) override {
    std::vector<TokenId> opening = turn_options(request_, scope.model).opening;
    const Result<ChatPrompt> prompt =
        scope.services.chat_prompt_of(request_, scope.model, scope.tenant, scope.identity, opening);
    if (!prompt.ok()) return api::api_error(prompt.error());
    count_ = prompt->tokens.size();
    return std::nullopt;
  }
  void start(Call call, Services&) override {
    call.send(json_reply(api::message_tokens_body(static_cast<int64_t>(count_))));
  }

 private:
  api::ChatRequest request_;
  size_t count_ = 0;
};

}  // namespace

void messages(Call call, Services& services) {
  run_request(std::move(call), services, std::make_unique<Message>(), Work::kSampled);
}

void count_message_tokens(Call call, Services& services) {
  run_request(std::move(call), services, std::make_unique<MessageTokens>(), std::nullopt);
}

}  // namespace pelton::server
