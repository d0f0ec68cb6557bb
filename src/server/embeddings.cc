// POST /v1/embeddings, /v2/embed, /v1/rerank and /v1/score: texts -> tokens -> one vector each ->
// the answer.
#include <algorithm>
#include <functional>
#include <memory>
#include <utility>
#include <variant>

#include "access/request_record.h"
#include "api/embedding_request.h"
#include "api/embedding_response.h"
#include "server/chat_conversation.h"
#include "server/chat_prompt.h"
#include "server/completion_prompt.h"
#include "server/embedding_batch.h"
#include "server/embedding_request.h"
#include "server/random_id.h"
#include "server/reply.h"
#include "server/server.h"

namespace pelton::server {
namespace {

using BodyOf = std::function<std::string(Embeddings)>;

// One call's batch. Lives on its exchange's net thread, kept by the exchange until it is answered
// or its client gone.
class EmbeddingCall : public std::enable_shared_from_this<EmbeddingCall> {
 public:
  EmbeddingCall(Call call, BodyOf body_of) : call_(std::move(call)), body_of_(std::move(body_of)) {}

  void start(engine::Engine& engine, std::vector<request::GenerationRequest> requests) {
    net::Exchange& exchange = *call_.exchange;
    exchange.on_closed([self = shared_from_this()] { self->batch_.reset(); });
    const std::weak_ptr<EmbeddingCall> weak = weak_from_this();
    // A stream calls this only while it lives, and the exchange outlives it.
    batch_.emplace(engine, std::move(requests), [&exchange, weak] {
      exchange.post([weak] {
        if (const auto self = weak.lock()) self->pump();
      });
    });
    pump();
  }

 private:
  void pump() {
    const std::shared_ptr<EmbeddingCall> alive = shared_from_this();
    if (!batch_) return;
    std::optional<Result<Embeddings>> result = batch_->pump();
    if (!result) return;
    if (access::RequestRecord* const record =
            call_.entry == nullptr ? nullptr : call_.entry->record()) {
      record->generation = batch_->facts();
    }
    batch_.reset();
    if (!result->ok()) return call_.send(call_.told(result->error()));
    call_.ticket->note_output((*result)->prompt_tokens);
    call_.send(json_reply(body_of_(std::move(*result).value())));
  }

  Call call_;
  const BodyOf body_of_;
  std::optional<EmbeddingBatch> batch_;  // destroyed before call_'s exchange
};

struct Wanted {
  const api::EmbeddingFields& fields;
  std::optional<int> dimensions = {};
  std::string id;
  std::vector<std::vector<TokenId>> prompts;
  std::vector<std::string> names;  // of the field that each came from
};

void run(Call call, const ServedModel& model, access::AccessControl& control, Wanted wanted,
         BodyOf body_of) {
  const Result<std::optional<int64_t>> deadline_ns =
      call.deadline_ns(wanted.fields.timeout_s, Call::Whole::kYes);
  if (!deadline_ns.ok()) return call.send(api::api_error(deadline_ns.error()));
  std::vector<request::GenerationRequest> requests;
  for (size_t i = 0; i < wanted.prompts.size(); ++i) {
    auto made =
        embedding_request(model, wanted.fields,
                          {.id = wanted.id,
                           .caller = call.caller,
                           .cache_salt = control.cache_salt(call.tenant, wanted.fields.cache_salt),
                           .deadline_ns = *deadline_ns},
                          std::move(wanted.prompts[i]), wanted.names[i]);
    if (const auto* error = std::get_if<api::ApiError>(&made)) return call.send(*error);
    requests.push_back(std::get<request::GenerationRequest>(std::move(made)));
  }
  int64_t prompt_tokens = 0;
  for (const request::GenerationRequest& one : requests) {
    prompt_tokens += static_cast<int64_t>(one.prompt.size());
  }
  call.note_asked({.dimensions = wanted.dimensions});
  const std::optional<api::ApiError> refused = control.reserve(*call.ticket, prompt_tokens);
  control.add_limits(call.caller, call.headers);
  if (refused) return call.send(*refused);
  std::string().swap(call.request.body);  // it may be large, and is said
  std::make_shared<EmbeddingCall>(std::move(call), std::move(body_of))
      ->start(model.engine, std::move(requests));
}

void add_texts(const std::vector<std::string>& texts, std::string_view field,
               const ServedModel& model, Wanted& wanted) {
  for (size_t i = 0; i < texts.size(); ++i) {
    wanted.prompts.push_back(model.tokenizer.encode(texts[i]));
    wanted.names.push_back(api::item_path(field, i));
  }
}

// The words alone: a turn of ours is not looked up as it was sampled.
std::vector<TokenId> chat_to_embed(const api::EmbeddingRequest& request, const ServedModel& model,
                                   const std::string& date, const SampledTurns& turns) {
  api::ChatRequest chat;
  chat.messages = request.messages;
  const auto unknown = [](int, const SequenceName&) -> std::optional<std::vector<TokenId>> {
    return std::nullopt;
  };
  std::vector<TokenId> tokens =
      prompt_of(conversation_of(chat, date), model, turns.history({}), unknown).tokens;
  if (!request.begins_answer) drop_turn_start(model, tokens);
  return tokens;
}

void truncate(std::vector<TokenId>& tokens, int64_t tokens_max, api::EmbedRequest::Truncate how) {
  const auto over = static_cast<int64_t>(tokens.size()) - tokens_max;
  if (over <= 0 || how == api::EmbedRequest::Truncate::kNone) return;
  if (how == api::EmbedRequest::Truncate::kStart) {
    tokens.erase(tokens.begin(), tokens.begin() + over);
  } else {
    tokens.resize(static_cast<size_t>(tokens_max));
  }
}

}  // namespace

void Server::answer_embeddings(Call call) {
  const ServedModel* model = model_at_work_for(call, Work::kPooled);
  if (model == nullptr) return;
  const auto parsed =
      api::parse_embedding_request(call.request.body, {.vocab_size = model->vocab_size});
  if (!parsed.ok()) return call.send(api::api_error(parsed.error()));
  if (model_named(call, parsed->fields.model) == nullptr) return;
  call.add_warnings(parsed->fields.warnings);
  if (const auto error = dimensions_error(*model, parsed->dimensions, "dimensions")) {
    return call.send(*error);
  }
  api::EmbeddingAnswer answer{.id = random_id("embd-", {.seed = draw(), .counter = 0}),
                              .model = model->shown_name(parsed->fields.model),
                              .created = clock_.unix_ms() / 1000};
  Wanted wanted{.fields = parsed->fields,
                .dimensions = parsed->dimensions,
                .id = answer.id,
                .prompts = {},
                .names = {}};
  if (!parsed->messages.empty()) {
    if (const auto error = model->no_chat()) return call.send(api::api_error(*error));
    const std::string date = model->current_date.value_or(base::local_date(clock_.unix_ms()));
    wanted.prompts.push_back(chat_to_embed(*parsed, *model, date, sampled_turns_));
    wanted.names.emplace_back("messages");
  }
  for (size_t i = 0; i < parsed->inputs.size(); ++i) {
    Result<std::vector<TokenId>> tokens = completion_prompt(parsed->inputs[i], *model, "input");
    if (!tokens.ok()) return call.send(api::api_error(tokens.error()));
    wanted.prompts.push_back(std::move(tokens).value());
    wanted.names.push_back(api::item_path("input", i));
  }
  run(std::move(call), *model, access_, std::move(wanted),
      [answer, dimensions = parsed->dimensions, base64 = parsed->base64](Embeddings made) mutable {
        normalise(made.vectors, dimensions);
        answer.prompt_tokens = made.prompt_tokens;
        return api::embedding_body(
            answer, made.vectors,
            base64 ? api::EmbeddingFormat::kBase64 : api::EmbeddingFormat::kFloat);
      });
}

void Server::answer_embed(Call call) {
  const ServedModel* model = model_at_work_for(call, Work::kPooled);
  if (model == nullptr) return;
  auto parsed = api::parse_embed_request(call.request.body, {.vocab_size = model->vocab_size});
  if (!parsed.ok()) return call.send(api::api_error(parsed.error()));
  if (model_named(call, parsed->fields.model) == nullptr) return;
  if (const auto error = model->no_text("texts")) return call.send(api::api_error(*error));
  call.add_warnings(parsed->fields.warnings);
  if (const auto error = dimensions_error(*model, parsed->dimensions, "output_dimension")) {
    return call.send(*error);
  }
  api::EmbeddingAnswer answer{.id = random_id("embd-", {.seed = draw(), .counter = 0}),
                              .model = model->shown_name(parsed->fields.model),
                              .created = clock_.unix_ms() / 1000};
  Wanted wanted{.fields = parsed->fields,
                .dimensions = parsed->dimensions,
                .id = answer.id,
                .prompts = {},
                .names = {}};
  add_texts(parsed->texts, "texts", *model, wanted);
  for (std::vector<TokenId>& tokens : wanted.prompts) {
    truncate(tokens, std::min(model->context_limit(), parsed->max_tokens.value_or(INT64_MAX)),
             parsed->truncate);
  }
  run(std::move(call), *model, access_, std::move(wanted),
      [answer, request = *std::move(parsed)](Embeddings made) mutable {
        normalise(made.vectors, request.dimensions);
        answer.prompt_tokens = made.prompt_tokens;
        return api::embed_body(
            answer, {.texts = request.texts, .floats = request.floats, .base64 = request.base64},
            made.vectors);
      });
}

void Server::answer_rerank(Call call) {
  const ServedModel* model = model_at_work_for(call, Work::kPooled);
  if (model == nullptr) return;
  auto parsed = api::parse_rerank_request(call.request.body, {.vocab_size = model->vocab_size});
  if (!parsed.ok()) return call.send(api::api_error(parsed.error()));
  if (model_named(call, parsed->fields.model) == nullptr) return;
  if (const auto error = model->no_text("query")) return call.send(api::api_error(*error));
  call.add_warnings(parsed->fields.warnings);
  api::EmbeddingAnswer answer{.id = random_id("rerank-", {.seed = draw(), .counter = 0}),
                              .model = model->shown_name(parsed->fields.model),
                              .created = clock_.unix_ms() / 1000};
  Wanted wanted{.fields = parsed->fields, .id = answer.id, .prompts = {}, .names = {"query"}};
  wanted.prompts.push_back(model->tokenizer.encode(parsed->query));
  add_texts(parsed->documents, "documents", *model, wanted);
  const int64_t document_tokens_max = parsed->tokens_per_document_max.value_or(INT64_MAX);
  for (size_t i = 0; i < wanted.prompts.size(); ++i) {
    truncate(wanted.prompts[i],
             std::min(model->context_limit(), i == 0 ? INT64_MAX : document_tokens_max),
             api::EmbedRequest::Truncate::kEnd);
  }
  const bool second = call.request.path.starts_with("/v2/");
  run(std::move(call), *model, access_, std::move(wanted),
      [answer, second, top_n = parsed->top_n, shown = parsed->return_documents,
       documents = parsed->documents](Embeddings made) mutable {
        normalise(made.vectors, std::nullopt);
        answer.prompt_tokens = made.prompt_tokens;
        std::vector<api::RankedDocument> ranked;
        for (size_t i = 0; i < documents.size(); ++i) {
          ranked.push_back({.index = i,
                            .score = cosine(made.vectors[0], made.vectors[i + 1]),
                            .text = shown ? &documents[i] : nullptr});
        }
        std::stable_sort(ranked.begin(), ranked.end(),
                         [](const auto& a, const auto& b) { return a.score > b.score; });
        ranked.resize(std::min(ranked.size(), static_cast<size_t>(top_n.value_or(INT32_MAX))));
        return api::rerank_body(answer, {.documents = ranked,
                                         .documents_compared = documents.size(),
                                         .api_version = second ? "2" : "1"});
      });
}

void Server::answer_score(Call call) {
  const ServedModel* model = model_at_work_for(call, Work::kPooled);
  if (model == nullptr) return;
  auto parsed = api::parse_score_request(call.request.body, {.vocab_size = model->vocab_size});
  if (!parsed.ok()) return call.send(api::api_error(parsed.error()));
  if (model_named(call, parsed->fields.model) == nullptr) return;
  if (const auto error = model->no_text("text_1")) return call.send(api::api_error(*error));
  call.add_warnings(parsed->fields.warnings);
  api::EmbeddingAnswer answer{.id = random_id("score-", {.seed = draw(), .counter = 0}),
                              .model = model->shown_name(parsed->fields.model),
                              .created = clock_.unix_ms() / 1000};
  Wanted wanted{.fields = parsed->fields, .id = answer.id, .prompts = {}, .names = {}};
  add_texts(parsed->first, "text_1", *model, wanted);
  add_texts(parsed->second, "text_2", *model, wanted);
  run(std::move(call), *model, access_, std::move(wanted),
      [answer, first = parsed->first.size(),
       second = parsed->second.size()](Embeddings made) mutable {
        normalise(made.vectors, std::nullopt);
        answer.prompt_tokens = made.prompt_tokens;
        std::vector<double> scores;
        for (size_t i = 0; i < second; ++i) {
          const size_t other = first == 1 ? 0 : i;
          scores.push_back(cosine(made.vectors[other], made.vectors[first + i]));
        }
        return api::score_body(answer, scores);
      });
}

}  // namespace pelton::server
