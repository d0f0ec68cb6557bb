// Requests for vectors: their prompts as the engine's requests, and the batch that is computed of
// them (server/embedding_batch.h) until its call is answered.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "api/embedding_request.h"
#include "request/generation_request.h"
#include "server/embedding_batch.h"
#include "server/request_pipeline.h"
#include "tokenizer/tokenizer.h"

namespace pelton::server {

struct PooledWork {
  std::vector<request::GenerationRequest> requests;  // one for each vector, in their order
  int64_t prompt_tokens = 0;                         // of all
};

class PooledPrompts {
 public:
  // `field`: where it stands in the body, for errors. second_text: as GenerationRequest's.
  void add(std::string field, std::vector<TokenId> tokens, int second_text = 0);
  void add_texts(std::string_view field, const std::vector<std::string>& texts,
                 const tokenizer::Tokenizer& tokenizer);

  std::vector<std::vector<TokenId>>& tokens() { return tokens_; }

  // What is made of all of them, whatever request and model say of embeddings.
  struct Head {
    request::Pooling pooling = request::Pooling::kLast;
    std::vector<TokenId> label_tokens;
  };
  void pool_by(Head head) { head_ = std::move(head); }

  // Or the answer if one of them is too long for the model.
  std::variant<PooledWork, api::ApiError> work(const std::string& id,
                                               const api::EmbeddingFields& fields,
                                               const ModelRequest::Prepared& with,
                                               const ModelRequest::Scope& scope) &&;

 private:
  std::vector<std::vector<TokenId>> tokens_;
  std::vector<std::string> fields_;
  std::vector<int> second_texts_;
  std::optional<Head> head_;
};

// Has them computed; the call is answered with the body that `body_of` makes of the vectors. On the
// call's net thread, where the batch lives until it is answered or its client gone.
using BodyOf = std::function<std::string(Embeddings)>;
void start_pooling(Call call, Services& services, PooledWork work, BodyOf body_of);

}  // namespace pelton::server
