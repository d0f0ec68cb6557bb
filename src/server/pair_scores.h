// Scores of a query and documents, by whatever the model scores with (VectorUse::score_by): the
// prompts that it takes, and the scores in what comes back. Pure.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/embedding_response.h"
#include "api/error.h"
#include "server/pooled_work.h"
#include "server/served_model.h"

namespace pelton::server {

struct PairTexts {
  std::string_view query_field;  // where they stand in the body
  std::span<const std::string> queries;
  std::string_view document_field;
  std::span<const std::string> documents;
  std::string_view instruction = {};  // empty: chat::RerankPrompt::kTask
  std::optional<int64_t> document_tokens_max = {};
  // What a document that is too long loses; nothing: it is refused. A query is never cut.
  std::optional<tokenizer::Tokenizer::Cut> cut = tokenizer::Tokenizer::Cut::kEnd;
  bool raw_scores = false;
};

// Two texts that are one prompt, each with where it stands in the body.
struct TextPair {
  const std::string& first;
  const std::string& second;
  std::string first_field;
  std::string second_field;
};
// Errors: the first text leaves no room for a token of the second one, or they are too long
// together and `cut` is nothing (kDoesNotFit with the field); the model's tokenizer says
// nothing of pairs (kUnsupported).
Result<tokenizer::Tokenizer::PairPrompt> pair_prompt(const TextPair& pair, const ServedModel& model,
                                                     std::optional<tokenizer::Tokenizer::Cut> cut,
                                                     std::optional<int64_t> second_tokens_max = {});

class PairScores {
 public:
  // Why this model scores nothing, or not by the pooling or the instruction that are asked for;
  // nothing if it does. `field`: where texts stand, for errors.
  static std::optional<api::ApiError> refusal(const ServedModel& model,
                                              const api::EmbeddingFields& asked,
                                              std::string_view field,
                                              std::string_view instruction = {});

  // One query beside each document, or as many queries as documents. Errors: what is too long.
  static Result<PairScores> of(const PairTexts& texts, const ServedModel& model);

  PooledPrompts take_prompts() { return std::move(prompts_); }

  // One for each document, of all vectors in their order.
  std::vector<double> scores(Embeddings& made) const;

 private:
  PairScores() = default;

  PooledPrompts prompts_;
  ScoreBy by_ = ScoreBy::kCosine;
  size_t query_count_ = 0;
  size_t document_count_ = 0;
  bool raw_scores_ = false;
};

// Best first, the earlier one among equals.
std::vector<api::RankedDocument> ranked_by(const std::vector<double>& scores);

}  // namespace pelton::server
