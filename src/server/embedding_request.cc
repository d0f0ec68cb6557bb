#include "server/embedding_request.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "server/generation_request.h"

namespace pelton::server {

namespace {

request::Pooling pooling_of(api::EmbeddingPooling asked) {
  switch (asked) {
    case api::EmbeddingPooling::kMean:
      return request::Pooling::kMean;
    case api::EmbeddingPooling::kFirst:
      return request::Pooling::kFirst;
    case api::EmbeddingPooling::kLast:
      break;
  }
  return request::Pooling::kLast;
}

}  // namespace

Result<std::string> prompt_ahead(const ServedModel& model, const api::EmbeddingFields& fields) {
  const VectorUse& use = model.vectors;
  const auto find = [&](std::string_view name) -> const std::string* {
    for (const auto& [known, text] : use.prompts) {
      if (known == name) return &text;
    }
    return nullptr;
  };
  if (!fields.prompt_name.empty()) {
    if (const std::string* found = find(fields.prompt_name)) return *found;
    std::string known;
    for (const auto& [name, text] : use.prompts) known += (known.empty() ? "" : ", ") + name;
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("'prompt_name' is '{}'; '{}' has {}", fields.prompt_name, model.id,
                             known.empty() ? "no prompts" : "the prompts " + known),
                 "prompt_name"};
  }
  if (!fields.input_type.empty()) {
    // What sentence-transformers' models call theirs.
    const bool is_query = fields.input_type == "query" || fields.input_type == "search_query";
    const bool is_document = fields.input_type == "document" || fields.input_type == "passage" ||
                             fields.input_type == "search_document";
    std::vector<std::string_view> names = {fields.input_type};
    if (is_query) names.insert(names.end(), {"query", "search_query"});
    if (is_document) names.insert(names.end(), {"document", "passage", "search_document"});
    for (const std::string_view name : names) {
      if (const std::string* found = find(name)) return *found;
    }
    return std::string();  // the model has none for it
  }
  const std::string* found = use.default_prompt.empty() ? nullptr : find(use.default_prompt);
  return found == nullptr ? std::string() : *found;
}

void put_ahead(const std::string& prompt, api::Prompt& input) {
  if (auto* text = std::get_if<std::string>(&input)) *text = prompt + *text;
}

int64_t text_tokens_max(const ServedModel& model) {
  return std::min<int64_t>(model.context_limit(), model.vectors.tokens_max);
}

std::optional<api::ApiError> pooling_error(const ServedModel& model,
                                           const api::EmbeddingFields& fields) {
  const bool is_first = fields.pooling == api::EmbeddingPooling::kFirst;
  if (!is_first || model.engine.capacity().whole_prompts) return std::nullopt;
  return api::api_error({ErrorCode::kInvalidArgument,
                         fmt::format("'pooling' is 'cls', but the first token of '{}' sees nothing "
                                     "but itself: 'last' or 'mean'",
                                     model.id),
                         "pooling"});
}

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
  if (prompt_tokens > text_tokens_max(model)) {
    return api::context_length_exceeded({.prompt = api::ContextLength::Prompt::kText,
                                         .prompt_tokens = prompt_tokens,
                                         .context_max = text_tokens_max(model)},
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
  request.adapter = ref_of(model.adapter, request.prompt);
  request.pooling = model.pooling;
  if (fields.pooling) {
    request.pooling = pooling_of(*fields.pooling);
  }
  return request;
}

}  // namespace pelton::server
