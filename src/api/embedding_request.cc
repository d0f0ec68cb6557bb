#include "api/embedding_request.h"

#include <limits>
#include <utility>

#include <fmt/format.h>

#include "api/documented_fields.h"
#include "api/json_object.h"

namespace pelton::api {
namespace {

// The body's own limit (net/) bounds texts; no need for a second one.
constexpr size_t kTextBytesMax = std::numeric_limits<size_t>::max();
constexpr int kDimensionsMax = 1 << 20;
constexpr size_t kPromptNameMax = 256;

EmbeddingFields read_fields(const Fields& body, const RequestLimits& limits) {
  EmbeddingFields fields;
  if (const std::string* model = body.text("model", 512)) fields.model = *model;
  GenerationFields common;
  read_caller_fields(body, limits, common);
  fields.priority = common.priority;
  fields.user = std::move(common.user);
  fields.cache_salt = std::move(common.cache_salt);
  fields.timeout_s = common.timeout_s;
  fields.keep_alive_ns = common.keep_alive_ns;
  if (common.stream) body.refuse_unsupported("stream", "streaming embeddings");
  if (const std::string* word = body.text("pooling", 64)) {
    if (*word == "last" || *word == "mean" || *word == "cls") {
      fields.pooling = *word == "last"   ? EmbeddingPooling::kLast
                       : *word == "mean" ? EmbeddingPooling::kMean
                                         : EmbeddingPooling::kFirst;
    } else {
      body.refuse("pooling", "'pooling' must be 'last', 'mean' or 'cls'");
    }
  }
  return fields;
}

// Which prompt goes ahead of a text: by its name, or by what the text is for, as Cohere's clients
// and others say it.
void read_prompt_choice(const Fields& body, EmbeddingFields& fields) {
  static constexpr std::string_view kKinds[] = {
      "query",           "document",       "passage",    "search_query",
      "search_document", "classification", "clustering", "image"};
  check_word(body, "input_type", kKinds);
  if (const std::string* kind = body.text("input_type", 64)) fields.input_type = *kind;
  if (const std::string* name = body.text("prompt_name", kPromptNameMax)) {
    fields.prompt_name = *name;
  }
  if (!fields.prompt_name.empty() && !fields.input_type.empty()) {
    body.refuse("prompt_name", "either 'prompt_name' or 'input_type' may be given, and not both");
  }
}

// Of models that score; instructions are Qwen3-Reranker's.
template <typename Request>
void read_scoring(const Fields& body, Request& request) {
  request.raw_scores = read_raw_scores(body);
  refuse_bare_tokens(body);
  if (const std::string* text = body.text("instruction", kTextBytesMax)) {
    request.instruction = *text;
  }
}

void read_encoding(const Fields& body, EmbeddingRequest& request) {
  const std::string* format = body.text("encoding_format", 64);
  if (format == nullptr || *format == "float") return;
  request.base64 = *format == "base64";
  if (!request.base64) body.refuse("encoding_format", "'encoding_format' must be float or base64");
}

// As vLLM has it: a chat in place of texts.
void read_chat(const Fields& body, EmbeddingRequest& request) {
  if (body.find("input") != nullptr) {
    body.refuse("messages", "either 'input' or 'messages' must be given, and not both");
  }
  request.messages = read_messages(body);
  warn_of_replaced(request.messages, request.fields.warnings);
  request.begins_answer = body.boolean("add_generation_prompt").value_or(false);
  if (body.boolean("continue_final_message").value_or(false)) {
    body.refuse_unsupported("continue_final_message", "continuing a message");
  }
}

// Cohere's "embedding_types": one or several; without it floats.
void read_embedding_types(const Fields& body, EmbedRequest& request) {
  constexpr size_t kTypesMax = 8;
  const Json* types = body.array("embedding_types", kTypesMax);
  if (types == nullptr || types->as_array().empty()) return;
  request.floats = false;
  for (size_t i = 0; i < types->as_array().size(); ++i) {
    const Json& type = types->as_array()[i];
    if (type.is_string() && type.as_string() == "float") {
      request.floats = true;
    } else if (type.is_string() && type.as_string() == "base64") {
      request.base64 = true;
    } else {
      const std::string path = item_path("embedding_types", i);
      body.refuse(path, fmt::format("'{}' must be 'float' or 'base64'", path));
    }
  }
}

void read_truncate(const Fields& body, EmbedRequest& request) {
  const std::string* word = body.text("truncate", 64);
  if (word == nullptr || *word == "END") return;
  if (*word != "NONE" && *word != "START") {
    body.refuse("truncate", "'truncate' must be 'NONE', 'START' or 'END'");
  }
  request.truncate =
      *word == "NONE" ? EmbedRequest::Truncate::kNone : EmbedRequest::Truncate::kStart;
}

// A text, or {"text": …}.
void add_text(const Json& item, const std::string& path, const Fields& body,
              std::vector<std::string>& texts) {
  const Json* text = item.is_object() ? item.find("text") : &item;
  if (text == nullptr || !text->is_string()) {
    body.refuse(path, fmt::format("'{}' must be a string, not {}", path, item.kind_name()));
  } else if (text->as_string().empty()) {
    body.refuse(path, fmt::format("'{}' must not be empty", path));
  } else {
    texts.push_back(text->as_string());
  }
}

// One text or several.
std::vector<std::string> read_texts(const Fields& body, std::string_view key) {
  std::vector<std::string> texts;
  const Json* found = body.find(key);
  if (found == nullptr) {
    body.refuse(key, fmt::format("'{}' is missing", key));
  } else if (!found->is_array()) {
    add_text(*found, std::string(key), body, texts);
  } else if (found->as_array().empty()) {
    body.refuse(key, fmt::format("'{}' must not be empty", key));
  } else if (const Json* items = body.array(key, kEmbeddingInputsMax)) {
    for (size_t i = 0; i < items->as_array().size() && !body.failed(); ++i) {
      add_text(items->as_array()[i], item_path(key, i), body, texts);
    }
  }
  return texts;
}

}  // namespace

bool read_raw_scores(const Fields& body) {
  std::optional<bool> raw = body.boolean("raw_scores");
  for (const std::string_view name : {"activation", "use_activation", "softmax"}) {
    const std::optional<bool> activates = body.boolean(name);
    if (!activates) continue;
    if (raw && *raw == *activates) {
      body.refuse(name,
                  fmt::format("'{}' says otherwise than the field beside it: logits are asked "
                              "for by 'raw_scores': true or '{}': false",
                              name, name));
    }
    raw = !*activates;
  }
  return raw.value_or(false);
}

void refuse_bare_tokens(const Fields& body) {
  if (body.boolean("add_special_tokens").value_or(true)) return;
  body.refuse_unsupported("add_special_tokens", "texts without the model's own tokens");
}

Result<EmbeddingRequest> read_embedding_request(const Json& json, const RequestLimits& limits) {
  std::optional<Error> complaint;
  const Fields fields(json, "", complaint, Fields::Reads::kKept, limits.fields_read);
  EmbeddingRequest request;
  request.fields = read_fields(fields, limits);
  if (fields.find("messages") != nullptr) {
    read_chat(fields, request);
  } else {
    request.inputs = read_prompts(fields, "input", kEmbeddingInputsMax, limits);
    request.adds_special = fields.boolean("add_special_tokens").value_or(true);
  }
  const auto dimensions = fields.integer("dimensions", {.low = 1, .high = kDimensionsMax});
  if (dimensions) request.dimensions = static_cast<int>(*dimensions);
  read_prompt_choice(fields, request.fields);
  request.normalises = fields.boolean("normalize").value_or(true);
  read_encoding(fields, request);
  check_unread_fields(fields, BodyKind::kVectors, limits.unknown_fields, request.fields.warnings);
  if (complaint) return std::move(*complaint);
  return request;
}

Result<EmbeddingRequest> parse_embedding_request(std::string_view body,
                                                 const RequestLimits& limits) {
  TRY_ASSIGN(const Json json, parse_object(body));
  return read_embedding_request(json, limits);
}

Result<EmbedRequest> parse_embed_request(std::string_view body, const RequestLimits& limits) {
  TRY_ASSIGN(const Json json, parse_object(body));
  std::optional<Error> complaint;
  const Fields fields(json, "", complaint, Fields::Reads::kKept, limits.fields_read);
  EmbedRequest request;
  request.fields = read_fields(fields, limits);
  for (const std::string_view key : {"images", "inputs"}) {
    if (fields.find(key) != nullptr) fields.refuse_unsupported(key, "anything but 'texts'");
  }
  if (fields.find("texts") != nullptr) fields.array("texts", kEmbeddingInputsMax);
  request.texts = read_texts(fields, "texts");
  refuse_bare_tokens(fields);
  read_prompt_choice(fields, request.fields);
  read_embedding_types(fields, request);
  read_truncate(fields, request);
  request.max_tokens = fields.integer("max_tokens", {.low = 1});
  const auto dimensions = fields.integer("output_dimension", {.low = 1, .high = kDimensionsMax});
  if (dimensions) request.dimensions = static_cast<int>(*dimensions);
  check_unread_fields(fields, BodyKind::kVectors, limits.unknown_fields, request.fields.warnings);
  if (complaint) return std::move(*complaint);
  return request;
}

Result<RerankRequest> parse_rerank_request(std::string_view body, const RequestLimits& limits) {
  TRY_ASSIGN(const Json json, parse_object(body));
  std::optional<Error> complaint;
  const Fields fields(json, "", complaint, Fields::Reads::kKept, limits.fields_read);
  RerankRequest request;
  request.fields = read_fields(fields, limits);
  const std::string* query = fields.text("query", kTextBytesMax);
  if (query == nullptr || query->empty()) {
    fields.refuse("query", query == nullptr ? "'query' is missing" : "'query' must not be empty");
  } else {
    request.query = *query;
  }
  request.documents = read_texts(fields, "documents");
  const auto top = fields.integer("top_n", {.low = 0, .high = kEmbeddingInputsMax});
  if (top && *top > 0) request.top_n = static_cast<int>(*top);
  request.tokens_per_document_max = fields.integer("max_tokens_per_doc", {.low = 1});
  request.return_documents = fields.boolean("return_documents").value_or(true);
  read_scoring(fields, request);
  check_unread_fields(fields, BodyKind::kVectors, limits.unknown_fields, request.fields.warnings);
  if (complaint) return std::move(*complaint);
  return request;
}

Result<ScoreRequest> parse_score_request(std::string_view body, const RequestLimits& limits) {
  TRY_ASSIGN(const Json json, parse_object(body));
  std::optional<Error> complaint;
  const Fields fields(json, "", complaint, Fields::Reads::kKept, limits.fields_read);
  ScoreRequest request;
  request.fields = read_fields(fields, limits);
  const bool newer = fields.find("queries") != nullptr;  // vLLM's other names
  if (newer) request.first_field = "queries";
  if (newer) request.second_field = "documents";
  request.first = read_texts(fields, request.first_field);
  request.second = read_texts(fields, request.second_field);
  read_scoring(fields, request);
  const size_t first = request.first.size();
  const size_t second = request.second.size();
  if (first != 1 && first != second) {
    fields.refuse(request.first_field,
                  fmt::format("{} texts cannot be compared with {}: one with many, or as many",
                              first, second));
  }
  check_unread_fields(fields, BodyKind::kVectors, limits.unknown_fields, request.fields.warnings);
  if (complaint) return std::move(*complaint);
  return request;
}

}  // namespace pelton::api
