// POST /v1/embeddings, /v2/embed, /v1/rerank and /v1/score: texts -> tokens -> one vector each ->
// the answer.
#include <algorithm>
#include <memory>
#include <utility>

#include "api/embedding_request.h"
#include "api/embedding_response.h"
#include "prompt/chat_conversation.h"
#include "server/chat_prompt.h"
#include "server/completion_prompt.h"
#include "server/embedding_request.h"
#include "server/endpoints.h"
#include "server/pair_scores.h"
#include "server/pooled_work.h"
#include "server/random_id.h"
#include "server/request_pipeline.h"
#include "server/reranking.h"

namespace pelton::server {
namespace {

ModelRequest::Fields embedding_fields_of(const api::EmbeddingFields& fields,
                                         std::optional<int> dimensions = {}) {
  return {.model = fields.model,
          .warnings = fields.warnings,
          .timeout_s = fields.timeout_s,
          .user = fields.user,
          .keep_alive_ns = fields.keep_alive_ns,
          .asked = {.dimensions = dimensions}};
}

api::EmbeddingAnswer head_of(std::string_view prefix, const api::EmbeddingFields& fields,
                             const ModelRequest::Scope& scope) {
  return {.id = random_id(prefix, {.seed = scope.identity.draw(), .counter = 0}),
          .model = scope.model.shown_name(fields.model),
          .created = scope.identity.created_s()};
}

// The words alone: a turn of ours is not looked up as it was sampled.
Result<std::vector<TokenId>> chat_to_embed(const api::EmbeddingRequest& request,
                                           const ServedModel& model, const std::string& date,
                                           const TurnCache& turns) {
  api::ChatRequest chat;
  chat.messages = request.messages;
  const auto unknown = [](int, const RollingHash&) -> std::optional<std::vector<TokenId>> {
    return std::nullopt;
  };
  chat.begins_answer = request.begins_answer;
  TRY_ASSIGN(ChatPrompt prompt,
             prompt_of(prompt::conversation_of(chat, date), model, turns.history({}), unknown));
  std::vector<TokenId> opening;
  begin_turn(model, prompt, opening);
  if (!request.begins_answer) drop_turn_start(model, prompt.tokens);
  return std::move(prompt.tokens);
}

// The text gets shorter, not what stands around it: a vector may be the last token's.
void truncate(std::vector<TokenId>& tokens, int64_t tokens_max, api::EmbedRequest::Truncate how,
              const tokenizer::Tokenizer& tokenizer) {
  using Cut = tokenizer::Tokenizer::Cut;
  if (how == api::EmbedRequest::Truncate::kNone) return;
  tokenizer.cut_prompt(tokens, static_cast<size_t>(tokens_max),
                       how == api::EmbedRequest::Truncate::kStart ? Cut::kBegin : Cut::kEnd);
}

std::optional<api::ApiError> needs_text(const ServedModel& model, std::string_view field) {
  const std::optional<Error> error = model.no_text(field, TextUse::kEmbeddedText);
  return error ? std::optional(api::api_error(*error)) : std::nullopt;
}

// vLLM's "task" says what is made of the pooled vector: here the vector itself.
Result<api::EmbeddingRequest> read_pooling(const std::string& body,
                                           const api::RequestLimits& limits) {
  Result<Json> json = Json::parse(body);
  const Json* const task = json.ok() && json->is_object() ? json->find("task") : nullptr;
  if (task == nullptr) return api::parse_embedding_request(body, limits);
  if (!task->is_null() && !(task->is_string() && task->as_string() == "embed")) {
    return Error{ErrorCode::kInvalidArgument,
                 "'task' must be 'embed'; classes are /classify's, scores are /score's", "task"};
  }
  std::erase_if(json->as_object(), [](const Json::Member& member) { return member.key == "task"; });
  return api::read_embedding_request(*json, limits);
}

class OpenAiEmbeddings final : public ModelRequest {
 public:
  explicit OpenAiEmbeddings(bool is_pooling) : is_pooling_(is_pooling) {}

  std::optional<api::ApiError> read(const std::string& body, const Scope& scope) override {
    const api::RequestLimits limits = scope.model.request_limits();
    return is_pooling_ ? keep(read_pooling(body, limits), request_)
                       : keep(api::parse_embedding_request(body, limits), request_);
  }
  Fields fields(const ServedModel&) const override {
    return embedding_fields_of(request_.fields, request_.dimensions);
  }
  std::optional<api::ApiError> refusal(const Call&, const Scope& scope) const override {
    if (auto error = dimensions_error(scope.model, request_.dimensions, "dimensions")) return error;
    if (auto error = pooling_error(scope.model, request_.fields)) return error;
    const std::optional<Error> error = request_.messages.empty()
                                           ? no_text_inputs(scope.model, request_.inputs, "input")
                                           : scope.model.no_chat();
    return error ? std::optional(api::api_error(*error)) : std::nullopt;
  }

  std::optional<api::ApiError> prepare(Prepared with, const Scope& scope) override {
    head_ = head_of(is_pooling_ ? "pool-" : "embd-", request_.fields, scope);
    head_.is_pooling = is_pooling_;
    PooledPrompts prompts;
    if (!request_.messages.empty()) {
      const std::string date = scope.model.current_date.value_or(scope.identity.prompt_date());
      auto tokens = chat_to_embed(request_, scope.model, date, scope.services.turn_cache);
      if (!tokens.ok()) return api::api_error(tokens.error());
      prompts.add("messages", *std::move(tokens));
    }
    const Result<std::string> ahead = prompt_ahead(scope.model, request_.fields);
    if (!ahead.ok()) return api::api_error(ahead.error());
    for (size_t i = 0; i < request_.inputs.size(); ++i) {
      put_ahead(*ahead, request_.inputs[i]);
      auto tokens =
          completion_prompt(request_.inputs[i], scope.model, "input", request_.adds_special);
      if (!tokens.ok()) return api::api_error(tokens.error());
      prompts.add(api::item_path("input", i), *std::move(tokens));
    }
    return keep(std::move(prompts).work(head_.id, request_.fields, with, scope), work_);
  }

  void start(Call call, Services& services) override {
    start_pooling(
        std::move(call), services, std::move(work_),
        [head = std::move(head_), dimensions = request_.dimensions,
         normalises = request_.normalises,
         format = request_.base64 ? api::EmbeddingFormat::kBase64
                                  : api::EmbeddingFormat::kFloat](Embeddings made) mutable {
          finish_vectors(made.vectors, {.dimensions = dimensions, .normalises = normalises});
          head.prompt_tokens = made.prompt_tokens;
          return api::embedding_body(head, made.vectors, format);
        });
  }

 private:
  const bool is_pooling_;  // vLLM's route
  api::EmbeddingRequest request_;
  api::EmbeddingAnswer head_;
  PooledWork work_;
};

class CohereEmbeddings final : public ModelRequest {
 public:
  std::optional<api::ApiError> read(const std::string& body, const Scope& scope) override {
    return keep(api::parse_embed_request(body, scope.model.request_limits()), request_);
  }
  Fields fields(const ServedModel&) const override {
    return embedding_fields_of(request_.fields, request_.dimensions);
  }
  std::optional<api::ApiError> refusal(const Call&, const Scope& scope) const override {
    if (auto error = needs_text(scope.model, "texts")) return error;
    if (auto error = pooling_error(scope.model, request_.fields)) return error;
    return dimensions_error(scope.model, request_.dimensions, "output_dimension");
  }

  std::optional<api::ApiError> prepare(Prepared with, const Scope& scope) override {
    head_ = head_of("embd-", request_.fields, scope);
    const Result<std::string> ahead = prompt_ahead(scope.model, request_.fields);
    if (!ahead.ok()) return api::api_error(ahead.error());
    PooledPrompts prompts;
    for (size_t i = 0; i < request_.texts.size(); ++i) {
      prompts.add(api::item_path("texts", i),
                  scope.model.tokenizer.encode_prompt(*ahead + request_.texts[i]));
    }
    const int64_t tokens_max =
        std::min(text_tokens_max(scope.model), request_.max_tokens.value_or(INT64_MAX));
    for (std::vector<TokenId>& tokens : prompts.tokens()) {
      truncate(tokens, tokens_max, request_.truncate, scope.model.tokenizer);
    }
    return keep(std::move(prompts).work(head_.id, request_.fields, with, scope), work_);
  }

  void start(Call call, Services& services) override {
    start_pooling(
        std::move(call), services, std::move(work_),
        [head = std::move(head_), request = std::move(request_)](Embeddings made) mutable {
          normalise(made.vectors, request.dimensions);
          head.prompt_tokens = made.prompt_tokens;
          return api::embed_body(
              head, {.texts = request.texts, .floats = request.floats, .base64 = request.base64},
              made.vectors);
        });
  }

 private:
  api::EmbedRequest request_;
  api::EmbeddingAnswer head_;
  PooledWork work_;
};

class Reranking final : public ModelRequest {
 public:
  // "1", or "2" on the routes that begin so.
  explicit Reranking(std::string_view api_version) : api_version_(api_version) {}

  std::optional<api::ApiError> read(const std::string& body, const Scope& scope) override {
    return keep(api::parse_rerank_request(body, scope.model.request_limits()), request_);
  }
  Fields fields(const ServedModel&) const override { return embedding_fields_of(request_.fields); }
  std::optional<api::ApiError> refusal(const Call&, const Scope& scope) const override {
    return PairScores::refusal(scope.model, request_.fields, "query", request_.instruction);
  }

  // A document that is longer than the context loses its end.
  std::optional<api::ApiError> prepare(Prepared with, const Scope& scope) override {
    head_ = head_of("rerank-", request_.fields, scope);
    auto pairs = PairScores::of({.query_field = "query",
                                 .queries = {&request_.query, 1},
                                 .document_field = "documents",
                                 .documents = request_.documents,
                                 .instruction = request_.instruction,
                                 .document_tokens_max = request_.tokens_per_document_max,
                                 .raw_scores = request_.raw_scores},
                                scope.model);
    if (!pairs.ok()) return api::api_error(pairs.error());
    pairs_.emplace(*std::move(pairs));
    return keep(pairs_->take_prompts().work(head_.id, request_.fields, with, scope), work_);
  }

  void start(Call call, Services& services) override {
    start_pooling(
        std::move(call), services, std::move(work_),
        [head = std::move(head_), request = std::move(request_), pairs = *std::move(pairs_),
         api_version = api_version_](Embeddings made) mutable {
          head.prompt_tokens = made.prompt_tokens;
          return ranking(head, request, pairs.scores(made), api_version);
        });
  }

 private:
  static std::string ranking(const api::EmbeddingAnswer& head, const api::RerankRequest& request,
                             const std::vector<double>& scores, std::string_view api_version) {
    std::vector<api::RankedDocument> ranked = ranked_by(scores);
    for (api::RankedDocument& one : ranked) {
      if (request.return_documents) one.text = &request.documents[one.index];
    }
    ranked.resize(std::min(ranked.size(), static_cast<size_t>(request.top_n.value_or(INT32_MAX))));
    return api::rerank_body(head, {.documents = ranked,
                                   .documents_compared = request.documents.size(),
                                   .api_version = api_version});
  }

  const std::string_view api_version_;
  api::RerankRequest request_;
  std::optional<PairScores> pairs_;
  api::EmbeddingAnswer head_;
  PooledWork work_;
};

class Scoring final : public ModelRequest {
 public:
  std::optional<api::ApiError> read(const std::string& body, const Scope& scope) override {
    return keep(api::parse_score_request(body, scope.model.request_limits()), request_);
  }
  Fields fields(const ServedModel&) const override { return embedding_fields_of(request_.fields); }
  std::optional<api::ApiError> refusal(const Call&, const Scope& scope) const override {
    return PairScores::refusal(scope.model, request_.fields, request_.first_field,
                               request_.instruction);
  }

  std::optional<api::ApiError> prepare(Prepared with, const Scope& scope) override {
    head_ = head_of("score-", request_.fields, scope);
    auto pairs = PairScores::of({.query_field = request_.first_field,
                                 .queries = request_.first,
                                 .document_field = request_.second_field,
                                 .documents = request_.second,
                                 .instruction = request_.instruction,
                                 .cut = {},
                                 .raw_scores = request_.raw_scores},
                                scope.model);
    if (!pairs.ok()) return api::api_error(pairs.error());
    pairs_.emplace(*std::move(pairs));
    return keep(pairs_->take_prompts().work(head_.id, request_.fields, with, scope), work_);
  }

  void start(Call call, Services& services) override {
    start_pooling(std::move(call), services, std::move(work_),
                  [head = std::move(head_), pairs = *std::move(pairs_)](Embeddings made) mutable {
                    head.prompt_tokens = made.prompt_tokens;
                    return api::score_body(head, pairs.scores(made));
                  });
  }

 private:
  api::ScoreRequest request_;
  std::optional<PairScores> pairs_;
  api::EmbeddingAnswer head_;
  PooledWork work_;
};

}  // namespace

void embeddings(Call call, Services& services) {
  run_request(std::move(call), services, std::make_unique<OpenAiEmbeddings>(false), Work::kPooled);
}

void pooling(Call call, Services& services) {
  run_request(std::move(call), services, std::make_unique<OpenAiEmbeddings>(true), Work::kPooled);
}

void embed(Call call, Services& services) {
  run_request(std::move(call), services, std::make_unique<CohereEmbeddings>(), Work::kPooled);
}

std::unique_ptr<ModelRequest> documents_reranking(std::string_view api_version) {
  return std::make_unique<Reranking>(api_version);
}

void rerank(Call call, Services& services) {
  auto request = documents_reranking(call.request.path.starts_with("/v2/") ? "2" : "1");
  run_request(std::move(call), services, std::move(request), Work::kPooled);
}

void score(Call call, Services& services) {
  run_request(std::move(call), services, std::make_unique<Scoring>(), Work::kPooled);
}

}  // namespace pelton::server
