// What callers want embedded, as the engine's requests: one for each text or token list.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "access/api_keys.h"
#include "api/embedding_request.h"
#include "api/error.h"
#include "request/generation_request.h"
#include "server/served_model.h"

namespace pelton::server {

struct EmbeddingSource {
  std::string id;
  const access::Principal& caller;
  std::string cache_salt;  // AccessControl::cache_salt
  std::optional<int64_t> deadline_ns;
};

// What is wrong with so many dimensions, if anything is.
std::optional<api::ApiError> dimensions_error(const ServedModel& model,
                                              std::optional<int> dimensions,
                                              std::string_view field);

// The text that goes ahead of each text of the request; empty: none does. Errors: a prompt that the
// model does not have.
Result<std::string> prompt_ahead(const ServedModel& model, const api::EmbeddingFields& fields);

// Before an input that is a text.
void put_ahead(const std::string& prompt, api::Prompt& input);

// The most tokens of a text: what the context takes, or less where the model's files say so.
int64_t text_tokens_max(const ServedModel& model);

// What is wrong with the pooling that is asked for, if anything is.
std::optional<api::ApiError> pooling_error(const ServedModel& model,
                                           const api::EmbeddingFields& fields);

// Why inputs that are texts cannot be embedded by a model without a tokenizer; nothing if they can.
std::optional<Error> no_text_inputs(const ServedModel& model, std::span<const api::Prompt> inputs,
                                    std::string_view field);

// One input's request, or the answer if it is too long.
std::variant<request::GenerationRequest, api::ApiError> embedding_request(
    const ServedModel& model, const api::EmbeddingFields& fields, const EmbeddingSource& source,
    std::vector<TokenId> prompt, std::string_view prompt_field);

}  // namespace pelton::server
