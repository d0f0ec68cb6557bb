#include "server/pair_scores.h"

#include <algorithm>
#include <cmath>
#include <span>
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

std::string query_field(const PairTexts& texts, size_t query) {
  return texts.queries.size() > 1 ? api::item_path(texts.query_field, query)
                                  : std::string(texts.query_field);
}

TextPair pair_of(const PairTexts& texts, size_t document) {
  const size_t query = texts.queries.size() == 1 ? 0 : document;
  return {.first = texts.queries[query],
          .second = texts.documents[document],
          .first_field = query_field(texts, query),
          .second_field = api::item_path(texts.document_field, document)};
}

// `around`: tokens of the prompt that are neither text's.
Error no_room(const std::string& field, size_t tokens, size_t around, int64_t most) {
  return Error{ErrorCode::kDoesNotFit,
               fmt::format("'{}' has {} tokens and leaves no room for a text beside it: this model "
                           "takes at most {} tokens, {} of them its own",
                           field, tokens, most, around),
               field};
}

Error too_long(const TextPair& pair, size_t tokens, int64_t most) {
  return Error{ErrorCode::kDoesNotFit,
               fmt::format("'{}' and '{}' make {} tokens; this model takes at most {}",
                           pair.second_field, pair.first_field, tokens, most),
               pair.second_field};
}

// Each text by itself. A query that is too long is refused where it becomes a request.
Result<void> add_apart(const PairTexts& texts, const ServedModel& model, PooledPrompts& prompts) {
  const tokenizer::Tokenizer& tokenizer = model.tokenizer;
  for (size_t i = 0; i < texts.queries.size(); ++i) {
    prompts.add(query_field(texts, i), tokenizer.encode_prompt(texts.queries[i]));
  }
  const int64_t most =
      std::min(text_tokens_max(model), texts.document_tokens_max.value_or(INT64_MAX));
  for (size_t i = 0; i < texts.documents.size(); ++i) {
    std::vector<TokenId> tokens = tokenizer.encode_prompt(texts.documents[i]);
    if (texts.cut) tokenizer.cut_prompt(tokens, static_cast<size_t>(most), *texts.cut);
    prompts.add(api::item_path(texts.document_field, i), std::move(tokens));
  }
  return {};
}

// [CLS] query [SEP] document [SEP]
Result<void> add_pairs(const PairTexts& texts, const ServedModel& model, PooledPrompts& prompts) {
  for (size_t i = 0; i < texts.documents.size(); ++i) {
    TextPair pair = pair_of(texts, i);
    TRY_ASSIGN(auto prompt, pair_prompt(pair, model, texts.cut, texts.document_tokens_max));
    prompts.add(std::move(pair.second_field), std::move(prompt.tokens), prompt.second_text);
  }
  return {};
}

// What stands around a query and a document of a model that answers yes or no.
struct Question {
  const ServedModel& model;
  std::vector<TokenId> before;
  std::vector<TokenId> behind;
  int64_t most = 0;  // tokens of all
};

// Of a query that leaves no room for a token of a document.
Error no_room_in(const Question& question, const PairTexts& texts, const TextPair& pair) {
  const tokenizer::Tokenizer& tokenizer = question.model.tokenizer;
  const size_t fixed = question.before.size() + question.behind.size();
  const size_t bare =
      fixed + tokenizer.encode(chat::RerankPrompt::ahead(texts.instruction, "")).size();
  if (!texts.instruction.empty() && bare >= static_cast<size_t>(question.most)) {
    const size_t without = fixed + tokenizer.encode(chat::RerankPrompt::ahead(" ", "")).size();
    return no_room("instruction", tokenizer.encode(texts.instruction).size(), without,
                   question.most);
  }
  return no_room(pair.first_field, tokenizer.encode(pair.first).size(), bare, question.most);
}

// The document loses what is too much, and nothing else does.
Result<std::vector<TokenId>> question_prompt(const Question& question, const PairTexts& texts,
                                             const TextPair& pair) {
  const tokenizer::Tokenizer& tokenizer = question.model.tokenizer;
  const auto most = static_cast<size_t>(question.most);
  const auto document_most =
      static_cast<size_t>(std::max<int64_t>(texts.document_tokens_max.value_or(INT64_MAX), 1));
  // One text: its tokens do not end where the document begins.
  std::vector<TokenId> tokens = question.before;
  tokenizer.encode(chat::RerankPrompt::between(texts.instruction, pair.first, pair.second), tokens);
  tokens.insert(tokens.end(), question.behind.begin(), question.behind.end());
  const bool is_bounded = document_most < tokens.size();
  if (tokens.size() <= most && !is_bounded) return tokens;

  const std::vector<TokenId> ahead =
      tokenizer.encode(chat::RerankPrompt::ahead(texts.instruction, pair.first));
  const size_t kept = question.before.size() + ahead.size() + question.behind.size();
  if (kept >= most) return no_room_in(question, texts, pair);
  std::vector<TokenId> document = tokenizer.encode(" " + pair.second);
  const size_t room = std::min(most - kept, document_most);
  if (tokens.size() <= most && document.size() <= document_most) return tokens;
  if (!texts.cut) return too_long(pair, tokens.size(), question.most);
  const auto over =
      static_cast<std::ptrdiff_t>(document.size() > room ? document.size() - room : 0);
  if (*texts.cut == Cut::kBegin) {
    document.erase(document.begin(), document.begin() + over);
  } else {
    document.erase(document.end() - over, document.end());
  }
  tokens = question.before;
  for (const std::span<const TokenId> part :
       {std::span(ahead), std::span<const TokenId>(document), std::span(question.behind)}) {
    tokens.insert(tokens.end(), part.begin(), part.end());
  }
  return tokens;
}

Result<void> add_questions(const PairTexts& texts, const ServedModel& model,
                           PooledPrompts& prompts) {
  const Question question{
      .model = model,
      .before = model.tokenizer.encode_with_special(chat::RerankPrompt::kBefore),
      .behind = model.tokenizer.encode_with_special(chat::RerankPrompt::kBehind),
      .most = text_tokens_max(model)};
  for (size_t i = 0; i < texts.documents.size(); ++i) {
    TextPair pair = pair_of(texts, i);
    TRY_ASSIGN(std::vector<TokenId> tokens, question_prompt(question, texts, pair));
    prompts.add(std::move(pair.second_field), std::move(tokens));
  }
  return {};
}

}  // namespace

Result<tokenizer::Tokenizer::PairPrompt> pair_prompt(const TextPair& pair, const ServedModel& model,
                                                     std::optional<Cut> cut,
                                                     std::optional<int64_t> second_tokens_max) {
  const int64_t most = text_tokens_max(model);
  auto prompt = model.tokenizer.encode_pair(
      pair.first, pair.second,
      {.tokens_max = static_cast<size_t>(most),
       .second_tokens_max = static_cast<size_t>(second_tokens_max.value_or(INT64_MAX)),
       .cut = cut.value_or(Cut::kEnd)});
  if (!prompt) {
    return Error{ErrorCode::kUnsupported,
                 fmt::format("the tokenizer of '{}' says nothing of pairs of texts", model.id),
                 "model"};
  }
  if (prompt->tokens.size() > static_cast<size_t>(most)) {
    return no_room(pair.first_field, prompt->first_tokens, prompt->framing_tokens, most);
  }
  if (prompt->is_cut() && !cut) return too_long(pair, prompt->whole_tokens, most);
  return *std::move(prompt);
}

std::optional<api::ApiError> PairScores::refusal(const ServedModel& model,
                                                 const api::EmbeddingFields& asked,
                                                 std::string_view field,
                                                 std::string_view instruction) {
  if (const auto error = model.no_text(field, TextUse::kEmbeddedText)) {
    return api::api_error(*error);
  }
  const VectorUse& use = model.vectors;
  if (use.score_by == ScoreBy::kCosine) {
    if (auto error = pooling_error(model, asked)) return error;
  } else if (asked.pooling) {
    return api::api_error(
        {ErrorCode::kUnsupported,
         fmt::format("'pooling' is not supported: '{}' scores by {}, and not by "
                     "embeddings",
                     model.id,
                     use.score_by == ScoreBy::kLabel ? "its classification head" : "its answer"),
         "pooling"});
  }
  if (use.score_by == ScoreBy::kLabel && use.labels.size() > 1) {
    return api::api_error(
        {ErrorCode::kUnsupported,
         fmt::format("'{}' sorts texts into {} labels and has no score for a pair: "
                     "ask /predict or /classify",
                     model.id, use.labels.size()),
         "model"});
  }
  if (instruction.empty() || use.score_by == ScoreBy::kTokens) return std::nullopt;
  return api::api_error(
      {ErrorCode::kUnsupported,
       fmt::format("'instruction' is not supported: '{}' scores without one (--rerank-by yes-no)",
                   model.id),
       "instruction"});
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
