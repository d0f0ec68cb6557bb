// The routes of Hugging Face's text-embeddings-inference: POST /embed, /embed_all,
// /embed_sparse, /similarity, /rerank with "texts", /predict, GET /info; and vLLM's /classify.
#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "api/tei_request.h"
#include "api/tei_response.h"
#include "net/url.h"
#include "server/completion_prompt.h"
#include "server/embedding_request.h"
#include "server/endpoints.h"
#include "server/pair_scores.h"
#include "server/pooled_work.h"
#include "server/random_id.h"
#include "server/reply.h"
#include "server/request_pipeline.h"
#include "server/reranking.h"

namespace pelton::server {
namespace {

using Cut = tokenizer::Tokenizer::Cut;

// Numbers in an answer of /embed_all: some 40 MB of text.
constexpr int64_t kStatesMax = 1 << 22;

// In place of a control token.
constexpr TokenId kNotSearched = -1;

ModelRequest::Fields embedding_fields_of(const api::EmbeddingFields& fields,
                                         std::optional<int> dimensions = {}) {
  return {.model = fields.model,
          .warnings = fields.warnings,
          .timeout_s = fields.timeout_s,
          .user = fields.user,
          .keep_alive_ns = fields.keep_alive_ns,
          .asked = {.dimensions = dimensions}};
}

std::string id_of(std::string_view prefix, const ModelRequest::Scope& scope) {
  return random_id(prefix, {.seed = scope.identity.draw(), .counter = 0});
}

// Nothing: what is too long is refused.
std::optional<Cut> cut_of(api::TeiTruncate how) {
  if (how == api::TeiTruncate::kRefused) return std::nullopt;
  return how == api::TeiTruncate::kStart ? Cut::kBegin : Cut::kEnd;
}

void cut(std::vector<TokenId>& tokens, api::TeiTruncate how, const ServedModel& model) {
  const std::optional<Cut> side = cut_of(how);
  if (!side) return;
  model.tokenizer.cut_prompt(tokens, static_cast<size_t>(text_tokens_max(model)), *side);
}

// The heaviest of each token's weights that is any, by the tokens' ids.
api::SparseVector sparse_vector(std::span<const TokenId> tokens, std::span<const float> weights) {
  std::map<TokenId, float> heaviest;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] == kNotSearched || weights[i] <= 0.0f) continue;
    float& weight = heaviest[tokens[i]];
    weight = std::max(weight, weights[i]);
  }
  return {heaviest.begin(), heaviest.end()};
}

class TeiEmbedding final : public ModelRequest {
 public:
  enum class States { kPooled, kAll, kWeights };
  explicit TeiEmbedding(States states) : states_(states) {}

  std::optional<api::ApiError> read(const std::string& body, const Scope& scope) override {
    const api::RequestLimits limits = scope.model.request_limits();
    return keep(states_ == States::kPooled ? api::parse_tei_embed_request(body, limits)
                                           : api::parse_tei_tokens_request(body, limits),
                request_);
  }
  Fields fields(const ServedModel&) const override {
    return embedding_fields_of(request_.fields, request_.dimensions);
  }
  std::optional<api::ApiError> refusal(const Call&, const Scope& scope) const override {
    if (states_ == States::kWeights && !scope.model.engine.capacity().weighs_tokens) {
      return api::api_error(
          {ErrorCode::kUnsupported,
           fmt::format("'{}' has no sparse head (bge-m3's sparse_linear.pt)", scope.model.id),
           "model"});
    }
    if (auto error = dimensions_error(scope.model, request_.dimensions, "dimensions")) return error;
    const std::optional<Error> error = no_text_inputs(scope.model, request_.inputs, "inputs");
    return error ? std::optional(api::api_error(*error)) : std::nullopt;
  }

  std::optional<api::ApiError> prepare(Prepared with, const Scope& scope) override {
    const Result<std::string> ahead = prompt_ahead(scope.model, request_.fields);
    if (!ahead.ok()) return api::api_error(ahead.error());
    PooledPrompts prompts;
    for (size_t i = 0; i < request_.inputs.size(); ++i) {
      put_ahead(*ahead, request_.inputs[i]);
      auto tokens = completion_prompt(request_.inputs[i], scope.model, "inputs");
      if (!tokens.ok()) return api::api_error(tokens.error());
      cut(*tokens, request_.truncate, scope.model);
      prompts.add(api::item_path("inputs", i), *std::move(tokens));
    }
    size_ = scope.model.engine.capacity().embedding_size;
    if (states_ == States::kAll) {
      prompts.pool_by({.pooling = request::Pooling::kAll, .label_tokens = {}});
    } else if (states_ == States::kWeights) {
      prompts.pool_by({.pooling = request::Pooling::kWeights, .label_tokens = {}});
    }
    if (auto error = keep(
            std::move(prompts).work(id_of("embd-", scope), request_.fields, with, scope), work_)) {
      return error;
    }
    if (states_ == States::kWeights) keep_tokens(scope.model.tokenizer);
    const int64_t numbers = work_.prompt_tokens * size_;
    if (states_ != States::kAll || numbers <= kStatesMax) return std::nullopt;
    return api::api_error({ErrorCode::kInvalidArgument,
                           fmt::format("'inputs' have {} tokens of {} numbers each; at most {} "
                                       "numbers are sent in one answer",
                                       work_.prompt_tokens, size_, kStatesMax),
                           "inputs"});
  }

  void start(Call call, Services& services) override {
    if (states_ == States::kWeights) return start_weighing(std::move(call), services);
    start_pooling(std::move(call), services, std::move(work_),
                  [states = states_, size = static_cast<size_t>(size_),
                   form = VectorForm{.dimensions = request_.dimensions,
                                     .normalises = request_.normalises}](Embeddings made) {
                    if (states == States::kAll) return api::tei_states_body(made.vectors, size);
                    finish_vectors(made.vectors, form);
                    return api::tei_vectors_body(made.vectors);
                  });
  }

 private:
  // Control tokens stand for nothing that is searched.
  void keep_tokens(const tokenizer::Tokenizer& tokenizer) {
    for (const request::GenerationRequest& request : work_.requests) {
      std::vector<TokenId>& tokens = tokens_.emplace_back(request.prompt);
      for (TokenId& token : tokens) {
        if (tokenizer.is_special(token)) token = kNotSearched;
      }
    }
  }

  void start_weighing(Call call, Services& services) {
    start_pooling(std::move(call), services, std::move(work_),
                  [tokens = std::move(tokens_)](Embeddings made) {
                    std::vector<api::SparseVector> sparse;
                    for (size_t i = 0; i < made.vectors.size(); ++i) {
                      sparse.push_back(sparse_vector(tokens[i], made.vectors[i]));
                    }
                    return api::tei_sparse_body(sparse);
                  });
  }

  const States states_;
  api::TeiEmbedRequest request_;
  int size_ = 0;
  std::vector<std::vector<TokenId>>
      tokens_;  // of kWeights, each text's; kNotSearched: not searched
  PooledWork work_;
};

class TeiSimilarity final : public ModelRequest {
 public:
  std::optional<api::ApiError> read(const std::string& body, const Scope& scope) override {
    return keep(api::parse_tei_similarity_request(body, scope.model.request_limits()), request_);
  }
  Fields fields(const ServedModel&) const override { return embedding_fields_of(request_.fields); }
  std::optional<api::ApiError> refusal(const Call&, const Scope& scope) const override {
    const std::optional<Error> error = scope.model.no_text("inputs", TextUse::kEmbeddedText);
    return error ? std::optional(api::api_error(*error)) : std::nullopt;
  }

  std::optional<api::ApiError> prepare(Prepared with, const Scope& scope) override {
    const Result<std::string> ahead = prompt_ahead(scope.model, request_.fields);
    if (!ahead.ok()) return api::api_error(ahead.error());
    PooledPrompts prompts;
    const auto add = [&](const std::string& text, std::string field) {
      std::vector<TokenId> tokens = scope.model.tokenizer.encode_prompt(*ahead + text);
      cut(tokens, request_.truncate, scope.model);
      prompts.add(std::move(field), std::move(tokens));
    };
    add(request_.source, "inputs.source_sentence");
    for (size_t i = 0; i < request_.sentences.size(); ++i) {
      add(request_.sentences[i], api::item_path("inputs.sentences", i));
    }
    return keep(std::move(prompts).work(id_of("sim-", scope), request_.fields, with, scope), work_);
  }

  void start(Call call, Services& services) override {
    start_pooling(std::move(call), services, std::move(work_), [](Embeddings made) {
      normalise(made.vectors, std::nullopt);
      std::vector<double> scores;
      for (size_t i = 1; i < made.vectors.size(); ++i) {
        scores.push_back(cosine(made.vectors[0], made.vectors[i]));
      }
      return api::tei_similarity_body(scores);
    });
  }

 private:
  api::TeiSimilarityRequest request_;
  PooledWork work_;
};

class TeiReranking final : public ModelRequest {
 public:
  std::optional<api::ApiError> read(const std::string& body, const Scope& scope) override {
    return keep(api::parse_tei_rerank_request(body, scope.model.request_limits()), request_);
  }
  Fields fields(const ServedModel&) const override { return embedding_fields_of(request_.fields); }
  std::optional<api::ApiError> refusal(const Call&, const Scope& scope) const override {
    return PairScores::refusal(scope.model, request_.fields, "query");
  }

  std::optional<api::ApiError> prepare(Prepared with, const Scope& scope) override {
    auto pairs = PairScores::of({.query_field = "query",
                                 .queries = {&request_.query, 1},
                                 .document_field = "texts",
                                 .documents = request_.texts,
                                 .cut = cut_of(request_.truncate),
                                 .raw_scores = request_.raw_scores},
                                scope.model);
    if (!pairs.ok()) return api::api_error(pairs.error());
    pairs_.emplace(*std::move(pairs));
    return keep(pairs_->take_prompts().work(id_of("rerank-", scope), request_.fields, with, scope),
                work_);
  }

  void start(Call call, Services& services) override {
    start_pooling(std::move(call), services, std::move(work_),
                  [request = std::move(request_), pairs = *std::move(pairs_)](Embeddings made) {
                    std::vector<api::RankedDocument> ranked = ranked_by(pairs.scores(made));
                    for (api::RankedDocument& one : ranked) {
                      if (request.return_text) one.text = &request.texts[one.index];
                    }
                    return api::tei_ranking_body(ranked);
                  });
  }

 private:
  api::TeiRerankRequest request_;
  std::optional<PairScores> pairs_;
  PooledWork work_;
};

// One route for two protocols: whose it is the body says.
class EitherReranking final : public ModelRequest {
 public:
  std::optional<api::ApiError> read(const std::string& body, const Scope& scope) override {
    inner_ = api::is_tei_rerank(body) ? std::make_unique<TeiReranking>() : documents_reranking("1");
    return inner_->read(body, scope);
  }
  Fields fields(const ServedModel& model) const override { return inner_->fields(model); }
  std::optional<api::ApiError> refusal(const Call& call, const Scope& scope) const override {
    return inner_->refusal(call, scope);
  }
  std::optional<api::ApiError> prepare(Prepared with, const Scope& scope) override {
    return inner_->prepare(std::move(with), scope);
  }
  void start(Call call, Services& services) override { inner_->start(std::move(call), services); }

 private:
  std::unique_ptr<ModelRequest> inner_;
};

// What a classification head's logits come to: probabilities of one label by themselves, of several
// together.
std::vector<api::LabelScore> label_scores(const std::vector<float>& logits,
                                          const std::vector<std::string>& labels, bool raw) {
  const double highest = *std::ranges::max_element(logits);
  double total = 0.0;
  for (const float logit : logits) total += std::exp(logit - highest);
  std::vector<api::LabelScore> scores;
  for (size_t i = 0; i < logits.size(); ++i) {
    double score = logits[i];
    if (!raw && logits.size() == 1) score = 1.0 / (1.0 + std::exp(-score));
    if (!raw && logits.size() > 1) score = std::exp(score - highest) / total;
    scores.push_back({.label = labels[i], .score = score});
  }
  return scores;
}

class Classification final : public ModelRequest {
 public:
  enum class Form { kTei, kVllm };
  explicit Classification(Form form) : form_(form) {}

  std::optional<api::ApiError> read(const std::string& body, const Scope& scope) override {
    const api::RequestLimits limits = scope.model.request_limits();
    return keep(form_ == Form::kTei ? api::parse_predict_request(body, limits)
                                    : api::parse_classify_request(body, limits),
                request_);
  }
  Fields fields(const ServedModel&) const override { return embedding_fields_of(request_.fields); }
  std::optional<api::ApiError> refusal(const Call&, const Scope& scope) const override {
    if (scope.model.vectors.labels.empty()) {
      return api::api_error({ErrorCode::kUnsupported,
                             fmt::format("'{}' has no classification head", scope.model.id),
                             "model"});
    }
    const std::optional<Error> error =
        scope.model.no_text(form_ == Form::kTei ? "inputs" : "input", TextUse::kEmbeddedText);
    return error ? std::optional(api::api_error(*error)) : std::nullopt;
  }

  std::optional<api::ApiError> prepare(Prepared with, const Scope& scope) override {
    head_ = {.id = id_of("classify-", scope),
             .model = scope.model.shown_name(request_.fields.model),
             .created = scope.identity.created_s()};
    labels_ = scope.model.vectors.labels;
    PooledPrompts prompts;
    for (size_t i = 0; i < request_.inputs.size(); ++i) {
      if (auto error = add(i, scope.model, prompts)) return error;
    }
    prompts.pool_by({.pooling = request::Pooling::kLabels, .label_tokens = {}});
    return keep(std::move(prompts).work(head_.id, request_.fields, with, scope), work_);
  }

  void start(Call call, Services& services) override {
    start_pooling(
        std::move(call), services, std::move(work_),
        [form = form_, head = std::move(head_), labels = std::move(labels_),
         is_single = request_.is_single, raw = request_.raw_scores](Embeddings made) mutable {
          std::vector<std::vector<api::LabelScore>> texts;
          for (const std::vector<float>& logits : made.vectors) {
            texts.push_back(label_scores(logits, labels, raw));
          }
          head.prompt_tokens = made.prompt_tokens;
          if (form == Form::kVllm) return api::classify_body(head, texts);
          return api::tei_predictions_body({.texts = texts, .is_single = is_single});
        });
  }

 private:
  std::optional<api::ApiError> add(size_t index, const ServedModel& model, PooledPrompts& prompts) {
    const api::ClassifiedText& text = request_.inputs[index];
    const std::string_view list = form_ == Form::kTei ? "inputs" : "input";
    const std::string field = request_.is_single ? std::string(list) : api::item_path(list, index);
    if (!text.second) {
      std::vector<TokenId> tokens = model.tokenizer.encode_prompt(text.first);
      cut(tokens, request_.truncate, model);
      prompts.add(field, std::move(tokens));
      return std::nullopt;
    }
    auto pair = pair_prompt({.first = text.first,
                             .second = *text.second,
                             .first_field = api::item_path(field, 0),
                             .second_field = api::item_path(field, 1)},
                            model, cut_of(request_.truncate));
    if (!pair.ok()) return api::api_error(pair.error());
    prompts.add(field, std::move(pair->tokens), pair->second_text);
    return std::nullopt;
  }

  const Form form_;
  api::ClassifyRequest request_;
  api::EmbeddingAnswer head_;
  std::vector<std::string> labels_;
  PooledWork work_;
};

}  // namespace

void tei_embed(Call call, Services& services) {
  run_request(std::move(call), services,
              std::make_unique<TeiEmbedding>(TeiEmbedding::States::kPooled), Work::kPooled);
}

void tei_embed_all(Call call, Services& services) {
  run_request(std::move(call), services, std::make_unique<TeiEmbedding>(TeiEmbedding::States::kAll),
              Work::kPooled);
}

void tei_embed_sparse(Call call, Services& services) {
  run_request(std::move(call), services,
              std::make_unique<TeiEmbedding>(TeiEmbedding::States::kWeights), Work::kPooled);
}

void tei_similarity(Call call, Services& services) {
  run_request(std::move(call), services, std::make_unique<TeiSimilarity>(), Work::kPooled);
}

void rerank_any(Call call, Services& services) {
  run_request(std::move(call), services, std::make_unique<EitherReranking>(), Work::kPooled);
}

// Of the model that `?model=` names; without it of the first one that makes no text, or of the
// first of all.
void tei_info(Call call, Services& services) {
  const std::string name = net::query_value(call.request.query, "model").value_or("");
  std::shared_ptr<const ServedModel> found;
  if (!name.empty()) {
    const auto table = services.catalogue.table();
    const ModelCatalogue::Entry* entry = table->find(name);
    if (entry == nullptr) entry = table->find_adapters_of(name);
    if (entry != nullptr) found = entry->model;
  } else if (const auto models = services.catalogue.serving(); !models.empty()) {
    const auto makes_vectors = [](const auto& model) {
      return !model->engine.capacity().generates();
    };
    const auto first = std::ranges::find_if(models, makes_vectors);
    found = first == models.end() ? models.front() : *first;
  }
  if (found == nullptr) return call.send(services.no_model(name));
  const ServedModel& model = *found;
  std::string weights;
  if (model.runtime) {
    for (const auto& [fact, value] : model.runtime()) {
      if (fact == "weights") weights = value;
    }
  }
  call.send(json_reply(
      api::tei_info_body({.model_id = model.id,
                          .dtype = weights,
                          .pooling = model.vectors.pooling_name,
                          .labels = model.vectors.labels,
                          .max_input_length = text_tokens_max(model),
                          .max_batch_tokens = model.engine.capacity().batch_tokens_max,
                          .max_client_batch_size = static_cast<int64_t>(api::kEmbeddingInputsMax),
                          .version = services.options.version,
                          .is_reranker = model.vectors.labels.size() == 1})));
}

void predict(Call call, Services& services) {
  run_request(std::move(call), services,
              std::make_unique<Classification>(Classification::Form::kTei), Work::kPooled);
}

void classify(Call call, Services& services) {
  run_request(std::move(call), services,
              std::make_unique<Classification>(Classification::Form::kVllm), Work::kPooled);
}

}  // namespace pelton::server
