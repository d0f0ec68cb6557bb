#include "api/tei_request.h"

#include <limits>
#include <utility>

#include <fmt/format.h>

#include "api/documented_fields.h"
#include "api/json_object.h"

namespace pelton::api {
namespace {

// The body's own limit (net/) bounds texts.
constexpr size_t kTextBytesMax = std::numeric_limits<size_t>::max();
constexpr int kDimensionsMax = 1 << 20;

EmbeddingFields read_caller(const Fields& body, const RequestLimits& limits) {
  EmbeddingFields fields;
  if (const std::string* model = body.text("model", 512)) fields.model = *model;
  GenerationFields common;
  read_caller_fields(body, limits, common);
  if (common.stream) body.refuse_unsupported("stream", "streaming vectors");
  refuse_bare_tokens(body);
  fields.priority = common.priority;
  fields.user = std::move(common.user);
  fields.cache_salt = std::move(common.cache_salt);
  fields.timeout_s = common.timeout_s;
  fields.keep_alive_ns = common.keep_alive_ns;
  return fields;
}

TeiTruncate read_truncate(const Fields& body) {
  const bool cuts = body.boolean("truncate").value_or(false);
  const std::string* side = body.text("truncation_direction", 64);
  const bool at_start = side != nullptr && (*side == "Left" || *side == "left");
  if (side != nullptr && !at_start && *side != "Right" && *side != "right") {
    body.refuse("truncation_direction", "'truncation_direction' must be 'Left' or 'Right'");
  }
  if (!cuts) return TeiTruncate::kRefused;
  return at_start ? TeiTruncate::kStart : TeiTruncate::kEnd;
}

std::string read_text(const Fields& body, std::string_view key) {
  const std::string* text = body.text(key, kTextBytesMax);
  if (text != nullptr && !text->empty()) return *text;
  body.refuse(key, text == nullptr ? fmt::format("'{}' is missing", key)
                                   : fmt::format("'{}' must not be empty", key));
  return "";
}

// Whether it is one; `path` is its place, for errors.
bool check_text(const Fields& body, const Json& value, const std::string& path) {
  if (!value.is_string()) {
    body.refuse(path, fmt::format("'{}' must be a string, not {}", path, value.kind_name()));
  } else if (value.as_string().empty()) {
    body.refuse(path, fmt::format("'{}' must not be empty", path));
  } else {
    return true;
  }
  return false;
}

std::vector<std::string> read_list(const Fields& body, std::string_view key) {
  std::vector<std::string> texts;
  if (body.find(key) == nullptr) body.refuse(key, fmt::format("'{}' is missing", key));
  const Json* list = body.array(key, kEmbeddingInputsMax);
  if (list == nullptr) return texts;
  if (list->as_array().empty()) body.refuse(key, fmt::format("'{}' must not be empty", key));
  for (size_t i = 0; i < list->as_array().size() && !body.failed(); ++i) {
    const Json& item = list->as_array()[i];
    if (check_text(body, item, item_path(key, i))) texts.push_back(item.as_string());
  }
  return texts;
}

// "text", or of a list ["text"], ["text", "its pair"].
void add_classified(const Fields& body, const Json& item, const std::string& path,
                    std::vector<ClassifiedText>& to) {
  if (!item.is_array()) {
    if (check_text(body, item, path)) to.push_back({.first = item.as_string()});
    return;
  }
  const Json::Array& parts = item.as_array();
  if (parts.empty() || parts.size() > 2) {
    body.refuse(
        path, fmt::format("'{}' must be a text or a pair of texts; it has {}", path, parts.size()));
    return;
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!check_text(body, parts[i], item_path(path, i))) return;
  }
  to.push_back({.first = parts[0].as_string()});
  if (parts.size() == 2) to.back().second = parts[1].as_string();
}

enum class Numbers : uint8_t { kOfTexts, kOfTokens };

Result<TeiEmbedRequest> parse_inputs(std::string_view body, const RequestLimits& limits,
                                     Numbers numbers) {
  TRY_ASSIGN(const Json json, parse_object(body));
  std::optional<Error> complaint;
  const Fields fields(json, "", complaint, Fields::Reads::kKept, limits.fields_read);
  TeiEmbedRequest request;
  request.fields = read_caller(fields, limits);
  request.inputs = read_prompts(fields, "inputs", kEmbeddingInputsMax, limits);
  request.truncate = read_truncate(fields);
  const std::optional<bool> normalises = fields.boolean("normalize");
  request.normalises = normalises.value_or(numbers == Numbers::kOfTexts);
  if (const std::string* name = fields.text("prompt_name", 256)) request.fields.prompt_name = *name;
  const auto dimensions = fields.integer("dimensions", {.low = 1, .high = kDimensionsMax});
  if (dimensions) request.dimensions = static_cast<int>(*dimensions);
  if (numbers == Numbers::kOfTokens) {
    if (request.normalises) fields.refuse_unsupported("normalize", "normalising tokens' numbers");
    if (dimensions) fields.refuse_unsupported("dimensions", "cutting tokens' numbers");
  }
  check_unread_fields(fields, BodyKind::kVectors, limits.unknown_fields, request.fields.warnings);
  if (complaint) return std::move(*complaint);
  return request;
}

}  // namespace

Result<TeiEmbedRequest> parse_tei_embed_request(std::string_view body,
                                                const RequestLimits& limits) {
  return parse_inputs(body, limits, Numbers::kOfTexts);
}

Result<TeiEmbedRequest> parse_tei_tokens_request(std::string_view body,
                                                 const RequestLimits& limits) {
  return parse_inputs(body, limits, Numbers::kOfTokens);
}

Result<TeiSimilarityRequest> parse_tei_similarity_request(std::string_view body,
                                                          const RequestLimits& limits) {
  TRY_ASSIGN(const Json json, parse_object(body));
  std::optional<Error> complaint;
  const Fields fields(json, "", complaint, Fields::Reads::kKept, limits.fields_read);
  TeiSimilarityRequest request;
  request.fields = read_caller(fields, limits);
  if (fields.find("inputs") == nullptr) fields.refuse("inputs", "'inputs' is missing");
  if (const Json* inputs = fields.object("inputs")) {
    const Fields inner(*inputs, "inputs", complaint, Fields::Reads::kKept);
    request.source = read_text(inner, "source_sentence");
    request.sentences = read_list(inner, "sentences");
    inner.refuse_unread({});
  }
  if (const Json* parameters = fields.object("parameters")) {
    const Fields inner(*parameters, "parameters", complaint, Fields::Reads::kKept);
    request.truncate = read_truncate(inner);
    if (const std::string* name = inner.text("prompt_name", 256)) {
      request.fields.prompt_name = *name;
    }
    inner.refuse_unread({});
  }
  check_unread_fields(fields, BodyKind::kVectors, limits.unknown_fields, request.fields.warnings);
  if (complaint) return std::move(*complaint);
  return request;
}

Result<TeiRerankRequest> parse_tei_rerank_request(std::string_view body,
                                                  const RequestLimits& limits) {
  TRY_ASSIGN(const Json json, parse_object(body));
  std::optional<Error> complaint;
  const Fields fields(json, "", complaint, Fields::Reads::kKept, limits.fields_read);
  TeiRerankRequest request;
  request.fields = read_caller(fields, limits);
  request.query = read_text(fields, "query");
  request.texts = read_list(fields, "texts");
  request.raw_scores = read_raw_scores(fields);
  request.return_text = fields.boolean("return_text").value_or(false);
  request.truncate = read_truncate(fields);
  check_unread_fields(fields, BodyKind::kVectors, limits.unknown_fields, request.fields.warnings);
  if (complaint) return std::move(*complaint);
  return request;
}

Result<ClassifyRequest> parse_predict_request(std::string_view body, const RequestLimits& limits) {
  TRY_ASSIGN(const Json json, parse_object(body));
  std::optional<Error> complaint;
  const Fields fields(json, "", complaint, Fields::Reads::kKept, limits.fields_read);
  ClassifyRequest request;
  request.fields = read_caller(fields, limits);
  const Json* inputs = fields.find("inputs");
  const bool is_batch = inputs != nullptr && inputs->is_array() && !inputs->as_array().empty() &&
                        inputs->as_array()[0].is_array();
  if (inputs == nullptr) {
    fields.refuse("inputs", "'inputs' is missing");
  } else if (!is_batch) {
    request.is_single = true;
    add_classified(fields, *inputs, "inputs", request.inputs);
  } else if (const Json* items = fields.array("inputs", kEmbeddingInputsMax)) {
    for (size_t i = 0; i < items->as_array().size() && !fields.failed(); ++i) {
      add_classified(fields, items->as_array()[i], item_path("inputs", i), request.inputs);
    }
  }
  request.raw_scores = read_raw_scores(fields);
  request.truncate = read_truncate(fields);
  check_unread_fields(fields, BodyKind::kVectors, limits.unknown_fields, request.fields.warnings);
  if (complaint) return std::move(*complaint);
  return request;
}

Result<ClassifyRequest> parse_classify_request(std::string_view body, const RequestLimits& limits) {
  TRY_ASSIGN(const Json json, parse_object(body));
  std::optional<Error> complaint;
  const Fields fields(json, "", complaint, Fields::Reads::kKept, limits.fields_read);
  ClassifyRequest request;
  request.fields = read_caller(fields, limits);
  const Json* input = fields.find("input");
  if (input != nullptr && input->is_string()) {
    if (check_text(fields, *input, "input"))
      request.inputs.push_back({.first = input->as_string()});
  } else {
    for (std::string& text : read_list(fields, "input")) {
      request.inputs.push_back({.first = std::move(text)});
    }
  }
  request.raw_scores = read_raw_scores(fields);
  check_unread_fields(fields, BodyKind::kVectors, limits.unknown_fields, request.fields.warnings);
  if (complaint) return std::move(*complaint);
  return request;
}

bool is_tei_rerank(std::string_view body) {
  const Result<Json> json = parse_object(body);
  return json.ok() && json->find("texts") != nullptr && json->find("documents") == nullptr;
}

}  // namespace pelton::api
