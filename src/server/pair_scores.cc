#include "server/pair_scores.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "chat/rerank_prompt.h"
#include "server/embedding_request.h"

namespace pelton::server {

namespace {

using Cut = tokenizer::Tokenizer::Cut;

double sigmoid(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}

Error too_long(std::string_view field, size_t tokens, int64_t most) {
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("'{}' and its query make {} tokens; this model takes at most {}", field,
                           tokens, most),
               std::string(field)};
}

const std::string& query_of(const PairTexts& texts, size_t document) {
  return texts.queries[texts.queries.size() == 1 ? 0 : document];
}

// Each text by itself.
Result<void> add_apart(const PairTexts& texts, const ServedModel& model, PooledPrompts& prompts) {
  const tokenizer::Tokenizer& tokenizer = model.tokenizer;
  const auto add = [&](const std::string& text, const std::string& field, int64_t most) {
    std::vector<TokenId> tokens = tokenizer.encode_prompt(text);
    if (texts.cuts) tokenizer.cut_prompt(tokens, static_cast<size_t>(most), Cut::kEnd);
    prompts.add(field, std::move(tokens));
  };
  const int64_t most = text_tokens_max(model);
  for (size_t i = 0; i < texts.queries.size(); ++i) {
    const bool is_list = texts.queries.size() > 1;
    add(texts.queries[i],
        is_list ? api::item_path(texts.query_field, i) : std::string(texts.query_field), most);
  }
  for (size_t i = 0; i < texts.documents.size(); ++i) {
    add(texts.documents[i], api::item_path(texts.document_field, i),
        std::min(most, texts.document_tokens_max.value_or(INT64_MAX)));
  }
  return {};
}

// [CLS] query [SEP] document [SEP]
Result<void> add_pairs(const PairTexts& texts, const ServedModel& model, PooledPrompts& prompts) {
  const auto most = static_cast<size_t>(text_tokens_max(model));
  for (size_t i = 0; i < texts.documents.size(); ++i) {
    const std::string field = api::item_path(texts.document_field, i);
    std::string document = texts.documents[i];
    auto pair = model.tokenizer.encode_pair(query_of(texts, i), document, most);
    if (!pair) {
      return Error{ErrorCode::kUnsupported,
                   fmt::format("the tokenizer of '{}' says nothing of pairs of texts", model.id),
                   "model"};
    }
    if (pair->is_cut && !texts.cuts) {
      const auto whole = model.tokenizer.encode_pair(query_of(texts, i), document, INT32_MAX);
      return too_long(field, whole->tokens.size(), static_cast<int64_t>(most));
    }
    prompts.add(field, std::move(pair->tokens), pair->second_text);
  }
  return {};
}

Result<void> add_questions(const PairTexts& texts, const ServedModel& model,
                           PooledPrompts& prompts) {
  const tokenizer::Tokenizer& tokenizer = model.tokenizer;
  const std::vector<TokenId> before = tokenizer.encode_with_special(chat::RerankPrompt::kBefore);
  const std::vector<TokenId> behind = tokenizer.encode_with_special(chat::RerankPrompt::kBehind);
  const int64_t most = text_tokens_max(model);
  for (size_t i = 0; i < texts.documents.size(); ++i) {
    const std::string field = api::item_path(texts.document_field, i);
    std::vector<TokenId> tokens = before;
    // One text: its tokens do not end where the document begins.
    tokenizer.encode(
        chat::RerankPrompt::between(texts.instruction, query_of(texts, i), texts.documents[i]),
        tokens);
    const size_t whole = tokens.size() + behind.size();
    if (whole > static_cast<size_t>(most)) {
      const bool can_be_cut = behind.size() + before.size() < static_cast<size_t>(most);
      if (!texts.cuts || !can_be_cut) return too_long(field, whole, most);
      tokens.resize(static_cast<size_t>(most) - behind.size());
    }
    tokens.insert(tokens.end(), behind.begin(), behind.end());
    prompts.add(field, std::move(tokens));
  }
  return {};
}

}  // namespace

std::optional<api::ApiError> PairScores::refusal(const ServedModel& model, std::string_view field) {
  if (const auto error = model.no_text(field, TextUse::kEmbeddedText)) {
    return api::api_error(*error);
  }
  if (model.vectors.labels.size() < 2 || model.vectors.score_by != ScoreBy::kLabel) {
    return std::nullopt;
  }
  return api::api_error({ErrorCode::kUnsupported,
                         fmt::format("'{}' sorts texts into {} labels and has no score for a pair: "
                                     "ask /predict or /classify",
                                     model.id, model.vectors.labels.size()),
                         "model"});
}

Result<PairScores> PairScores::of(const PairTexts& texts, const ServedModel& model) {
  PairScores made;
  made.by_ = model.vectors.score_by;
  made.query_count_ = texts.queries.size();
  made.document_count_ = texts.documents.size();
  made.raw_scores_ = texts.raw_scores;
  switch (made.by_) {
    case ScoreBy::kCosine:
      TRY(add_apart(texts, model, made.prompts_));
      break;
    case ScoreBy::kLabel:
      TRY(add_pairs(texts, model, made.prompts_));
      made.prompts_.pool_by({.pooling = request::Pooling::kLabels, .label_tokens = {}});
      break;
    case ScoreBy::kTokens:
      TRY(add_questions(texts, model, made.prompts_));
      made.prompts_.pool_by({.pooling = request::Pooling::kTokens,
                             .label_tokens = {model.vectors.no_token, model.vectors.yes_token}});
      break;
  }
  return made;
}

std::vector<double> PairScores::scores(Embeddings& made) const {
  std::vector<double> scores;
  if (by_ == ScoreBy::kCosine) normalise(made.vectors, std::nullopt);
  for (size_t i = 0; i < document_count_; ++i) {
    if (by_ == ScoreBy::kCosine) {
      const size_t query = query_count_ == 1 ? 0 : i;
      scores.push_back(cosine(made.vectors[query], made.vectors[query_count_ + i]));
      continue;
    }
    const std::vector<float>& logits = made.vectors[i];
    const double logit =
        by_ == ScoreBy::kLabel ? double{logits[0]} : double{logits[1]} - double{logits[0]};
    scores.push_back(raw_scores_ ? logit : sigmoid(logit));
  }
  return scores;
}

std::vector<api::RankedDocument> ranked_by(const std::vector<double>& scores) {
  std::vector<api::RankedDocument> ranked;
  for (size_t i = 0; i < scores.size(); ++i) ranked.push_back({.index = i, .score = scores[i]});
  std::ranges::stable_sort(ranked, std::ranges::greater{}, &api::RankedDocument::score);
  return ranked;
}

}  // namespace pelton::server
