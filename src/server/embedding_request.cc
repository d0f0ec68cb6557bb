#include "server/embedding_request.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "server/generation_request.h"

namespace pelton::server {

std::optional<api::ApiError> dimensions_error(const ServedModel& model,
                                              std::optional<int> dimensions,
                                              std::string_view field) {
  const int size = model.engine.capacity().embedding_size;
  if (dimensions.value_or(0) <= size) return std::nullopt;
  return api::api_error(
      {ErrorCode::kInvalidArgument,
       fmt::format("'{}' is {}; this model's embeddings have {}", field, *dimensions, size),
       std::string(field)});
}

std::optional<Error> no_text_inputs(const ServedModel& model, std::span<const api::Prompt> inputs,
                                    std::string_view field) {
  const bool has_texts = std::ranges::any_of(
      inputs, [](const api::Prompt& input) { return std::holds_alternative<std::string>(input); });
  return has_texts ? model.no_text(field, TextUse::kEmbeddedInput) : std::nullopt;
}

std::variant<request::GenerationRequest, api::ApiError> embedding_request(
    const ServedModel& model, const api::EmbeddingFields& fields, const EmbeddingSource& source,
    std::vector<TokenId> prompt, std::string_view prompt_field) {
  const auto prompt_tokens = static_cast<int64_t>(prompt.size());
  if (prompt_tokens > model.context_limit()) {
    return api::context_length_exceeded({.prompt = api::ContextLength::Prompt::kText,
                                         .prompt_tokens = prompt_tokens,
                                         .context_max = model.context_limit()},
                                        prompt_field);
  }
  request::GenerationRequest request;
  request.id = source.id;
  request.prompt = std::move(prompt);
  request.priority = fields.priority;
  request.tenant = access::billing_account(source.caller.tenant, fields.user);
  request.weight = source.caller.weight;
  request.deadline_ns = source.deadline_ns;
  request.cache_salt = source.cache_salt;
  request.pooling = model.pooling;
  if (fields.pooling) {
    request.pooling = *fields.pooling == api::EmbeddingPooling::kMean ? request::Pooling::kMean
                                                                      : request::Pooling::kLast;
  }
  return request;
}

}  // namespace pelton::server
