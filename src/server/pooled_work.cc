#include "server/pooled_work.h"

#include <memory>
#include <optional>
#include <utility>

#include "server/embedding_request.h"
#include "server/reply.h"

namespace pelton::server {
namespace {

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
    const EmbeddingBatch::Counted counted{.meter = call_.model->state->meter,
                                          .arrived_ns = call_.arrived_ns};
    batch_.emplace(engine, std::move(requests), counted, [&exchange, weak] {
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
    if (!result->ok()) return call_.send(call_.reported(result->error()));
    call_.ticket->note_output((*result)->prompt_tokens);
    call_.send(json_reply(body_of_(std::move(*result).value())));
  }

  Call call_;
  const BodyOf body_of_;
  std::optional<EmbeddingBatch> batch_;  // destroyed before call_'s exchange
};

}  // namespace

void PooledPrompts::add(std::string field, std::vector<TokenId> tokens, int second_text) {
  tokens_.push_back(std::move(tokens));
  second_texts_.push_back(second_text);
  fields_.push_back(std::move(field));
}

void PooledPrompts::add_texts(std::string_view field, const std::vector<std::string>& texts,
                              const tokenizer::Tokenizer& tokenizer) {
  for (size_t i = 0; i < texts.size(); ++i) {
    add(api::item_path(field, i), tokenizer.encode_prompt(texts[i]));
  }
}

std::variant<PooledWork, api::ApiError> PooledPrompts::work(const std::string& id,
                                                            const api::EmbeddingFields& fields,
                                                            const ModelRequest::Prepared& with,
                                                            const ModelRequest::Scope& scope) && {
  const EmbeddingSource source{
      .id = id,
      .caller = with.principal,
      .cache_salt = scope.services.access_control.cache_salt(scope.tenant, fields.cache_salt),
      .deadline_ns = with.deadline_ns};
  PooledWork work;
  for (size_t i = 0; i < tokens_.size(); ++i) {
    auto made = embedding_request(scope.model, fields, source, std::move(tokens_[i]), fields_[i]);
    if (auto* error = std::get_if<api::ApiError>(&made)) return std::move(*error);
    work.requests.push_back(std::get<request::GenerationRequest>(std::move(made)));
    request::GenerationRequest& request = work.requests.back();
    request.second_text = second_texts_[i];
    if (head_) {
      request.pooling = head_->pooling;
      request.label_tokens = head_->label_tokens;
    }
    work.prompt_tokens += static_cast<int64_t>(work.requests.back().prompt.size());
  }
  return work;
}

void start_pooling(Call call, Services& services, PooledWork work, BodyOf body_of) {
  const auto refused = services.access_control.reserve(*call.ticket, work.prompt_tokens,
                                                       *call.model->state->refusals);
  services.access_control.add_limits(call.caller, call.headers);
  if (refused) return call.send(*refused);
  engine::Engine& engine = call.model->engine;
  std::make_shared<EmbeddingCall>(std::move(call), std::move(body_of))
      ->start(engine, std::move(work.requests));
}

}  // namespace pelton::server
