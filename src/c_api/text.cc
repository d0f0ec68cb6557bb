// Text to tokens and back, and texts' vectors.
#include <fmt/format.h>

#include "c_api/model.h"
#include "c_api/status.h"
#include "checkpoint/sentence_config.h"
#include "models/pooled_texts.h"

namespace pelton::c_api {
namespace {

Result<std::vector<TokenId>> tokens_of(const Model& model, std::string_view text, int how) {
  TRY_ASSIGN(const tokenizer::Tokenizer* tokenizer, model.loaded->tokenizer());
  if (how == PELTON_TOKENIZE_PLAIN) return tokenizer->encode(text);
  if (how == PELTON_TOKENIZE_PROMPT) return tokenizer->encode_prompt(text);
  if (how == PELTON_TOKENIZE_SPECIAL) return tokenizer->encode_with_special(text);
  return Error{ErrorCode::kInvalidArgument, fmt::format("'how' is 0, 1 or 2, not {}", how), "how"};
}

Result<request::Pooling> pooling_of(const Model& model, const char* asked) {
  const bool is_encoder = model.loaded->config().is_encoder();
  std::string_view name = is_encoder ? "mean" : "last";
  if (asked != nullptr) {
    name = asked;
  } else {
    TRY_ASSIGN(const checkpoint::SentenceConfig sentences,
               checkpoint::read_sentence_config(model.loaded->checkpoint().folder()));
    if (sentences.pooling) name = checkpoint::pooling_name(*sentences.pooling);
  }
  if (name == "mean") return request::Pooling::kMean;
  if (name == "last") return request::Pooling::kLast;
  if (name == "cls" && is_encoder) return request::Pooling::kFirst;
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("'pooling' is mean, last or, of an encoder, cls, not '{}'", name),
               "pooling"};
}

Result<std::vector<float>> vector_of(Model& model, std::string_view text, const char* pooling) {
  if (model.loaded->engine().capacity().embedding_size == 0) {
    return Error{ErrorCode::kUnsupported, "this model makes no vectors of texts", ""};
  }
  request::GenerationRequest request{.id = "embed"};
  TRY_ASSIGN(request.prompt, tokens_of(model, text, PELTON_TOKENIZE_PROMPT));
  TRY_ASSIGN(request.pooling, pooling_of(model, pooling));
  TRY_ASSIGN(engine::TokenStream stream, model.loaded->engine().submit(std::move(request)));
  while (true) {
    engine::TokenStream::Batch batch = stream.wait();
    if (!batch.end) continue;
    if (batch.end->error) return *batch.end->error;
    models::normalise(batch.end->embedding);
    return std::move(batch.end->embedding);
  }
}

}  // namespace
}  // namespace pelton::c_api

using namespace pelton::c_api;  // NOLINT: of the functions below, which stand in no namespace

pelton_status pelton_tokenize(const pelton_model* model, const char* text, size_t bytes, int how,
                              int32_t* tokens, size_t* count) {
  return guarded([&]() -> pelton::Result<pelton_status> {
    TRY(check_given(model, "model"));
    if (bytes > 0) TRY(check_given(text, "text"));
    TRY(check_given(count, "count"));
    TRY_ASSIGN(const std::vector<pelton::TokenId> made,
               tokens_of(*model->shared, {text, bytes}, how));
    return fill(std::span<const int32_t>(made), tokens, count);
  });
}

pelton_status pelton_detokenize(const pelton_model* model, const int32_t* tokens, size_t count,
                                char* text, size_t* bytes) {
  return guarded([&]() -> pelton::Result<pelton_status> {
    TRY(check_given(model, "model"));
    TRY(check_given(bytes, "bytes"));
    if (count > 0) TRY(check_given(tokens, "tokens"));
    TRY_ASSIGN(const pelton::tokenizer::Tokenizer* tokenizer, model->shared->loaded->tokenizer());
    for (const int32_t token : std::span(tokens, count)) {
      if (token >= 0 && token < model->shared->loaded->config().vocab_size) continue;
      return pelton::Error{pelton::ErrorCode::kInvalidArgument,
                           fmt::format("'tokens': {} is none of the vocabulary's", token),
                           "tokens"};
    }
    const std::string made = tokenizer->decode(std::span(tokens, count));
    return fill(std::span<const char>(made), text, bytes);
  });
}

pelton_status pelton_embed(pelton_model* model, const char* text, const char* pooling,
                           float* vector, size_t* count) {
  return guarded([&]() -> pelton::Result<pelton_status> {
    TRY(check_given(model, "model"));
    TRY(check_given(text, "text"));
    TRY(check_given(count, "count"));
    TRY_ASSIGN(const std::vector<float> made, vector_of(*model->shared, text, pooling));
    return fill(std::span<const float>(made), vector, count);
  });
}
