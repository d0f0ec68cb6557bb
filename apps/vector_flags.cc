#include "apps/vector_flags.h"

#include <optional>
#include <string>

#include <fmt/format.h>

#include "checkpoint/sentence_config.h"

namespace pelton::apps {
namespace {

using cli::Flag;
using server::ScoreBy;

// By flag, by the files of sentence-transformers, or as sentence-transformers has it without them.
Result<request::Pooling> pooling_of(const std::string& asked,
                                    const checkpoint::SentenceConfig& sentences, bool is_encoder,
                                    std::string& name) {
  name = asked;
  if (asked == "auto") {
    name = sentences.pooling ? std::string(checkpoint::pooling_name(*sentences.pooling))
           : is_encoder      ? "mean"
                             : "last";
  }
  if (name == "mean") return request::Pooling::kMean;
  if (name == "last") return request::Pooling::kLast;
  if (is_encoder) return request::Pooling::kFirst;
  return Error{ErrorCode::kInvalidArgument,
               "--pooling cls is an encoder's: a decoder's first token sees nothing but itself",
               "pooling"};
}

std::vector<std::string> labels_of(const families::ModelConfig& config) {
  std::vector<std::string> labels = config.labels;
  for (int i = static_cast<int>(labels.size()); i < config.label_count; ++i) {
    labels.push_back(fmt::format("LABEL_{}", i));
  }
  return labels;
}

// The one token that `word` is.
Result<TokenId> token_of(const node::LoadedModel& model, const char* word) {
  TRY_ASSIGN(const tokenizer::Tokenizer* tokenizer, model.tokenizer());
  const std::vector<TokenId> tokens = tokenizer->encode(word);
  if (tokens.size() == 1) return tokens[0];
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("--rerank-by yes-no: '{}' is {} tokens of this model's tokenizer, not "
                           "one",
                           word, tokens.size()),
               "rerank-by"};
}

Result<void> read_score_by(const std::string& asked, const node::LoadedModel& model,
                           server::VectorUse& use) {
  const bool is_encoder = model.config().is_encoder();
  if (asked == "labels" && use.labels.empty()) {
    return Error{ErrorCode::kInvalidArgument,
                 "--rerank-by labels: the model has no classification head", "rerank-by"};
  }
  use.score_by = ScoreBy::kCosine;
  if (asked == "labels" || (asked == "auto" && !use.labels.empty())) {
    use.score_by = ScoreBy::kLabel;
  }
  if (asked != "yes-no") return {};
  if (!is_encoder && !use.labels.empty()) {
    return Error{ErrorCode::kInvalidArgument,
                 "--rerank-by yes-no asks for a model that answers, and this one has a "
                 "classification head in place of its output head",
                 "rerank-by"};
  }
  if (is_encoder) {
    return Error{ErrorCode::kInvalidArgument,
                 "--rerank-by yes-no asks for a model that answers, and this is an encoder",
                 "rerank-by"};
  }
  use.score_by = ScoreBy::kTokens;
  TRY_ASSIGN(use.no_token, token_of(model, "no"));
  TRY_ASSIGN(use.yes_token, token_of(model, "yes"));
  return {};
}

}  // namespace

std::vector<Flag> vector_flags() {
  return {{.name = "--pooling",
           .value = "NAME",
           .help = "which final states embeddings are made of, unless a request says; auto: as "
                   "the model's 1_Pooling/config.json has it, without it an encoder's mean and a "
                   "decoder's last",
           .default_text = "auto",
           .choices = {"auto", "last", "mean", "cls"}},
          {.name = "--rerank-by",
           .value = "NAME",
           .help = "what makes a score of a query and a document: the cosine of their embeddings, "
                   "the model's classification head (labels), or its answer (yes-no: "
                   "Qwen3-Reranker); auto: labels where the model has them, else cosine",
           .default_text = "auto",
           .choices = {"auto", "cosine", "labels", "yes-no"}}};
}

Result<void> read_vector_use(const cli::Arguments& arguments, const node::LoadedModel& model,
                             server::ServedModel& served, base::Log& log) {
  const bool is_encoder = model.config().is_encoder();
  TRY_ASSIGN(checkpoint::SentenceConfig sentences,
             checkpoint::read_sentence_config(model.checkpoint().folder()));
  server::VectorUse& use = served.vectors;
  TRY_ASSIGN(served.pooling,
             pooling_of(arguments.text("--pooling"), sentences, is_encoder, use.pooling_name));
  use.prompts = std::move(sentences.prompts);
  use.default_prompt = std::move(sentences.default_prompt);
  // A sentence_bert_config.json says how long texts were in training: a decoder takes longer ones.
  if (is_encoder && sentences.tokens_max) use.tokens_max = *sentences.tokens_max;
  use.labels = labels_of(model.config());
  TRY(read_score_by(arguments.text("--rerank-by"), model, use));
  if (!is_encoder && use.labels.empty()) return {};
  std::string scores;
  if (!use.labels.empty()) scores = fmt::format("; {} labels", use.labels.size());
  log.info(fmt::format("vectors: {} of {} states{}{}; at most {} tokens a text",
                       served.engine.capacity().embedding_size, use.pooling_name,
                       sentences.pooling ? "" : " (no 1_Pooling says so)", scores,
                       std::min<int64_t>(served.context_limit(), use.tokens_max)));
  return {};
}

}  // namespace pelton::apps
