#include "api/tokenize_request.h"

#include <utility>

#include "api/documented_fields.h"
#include "api/json_object.h"
#include "api/token_ids.h"
#include "base/json_writer.h"
#include "base/utf8.h"

namespace pelton::api {
namespace {

constexpr size_t kModelBytesMax = 512;

// A token may end amid a character: its bytes, then.
void write_piece(base::JsonWriter& writer, const std::string& piece) {
  if (base::is_valid_utf8(piece)) {
    writer.string(piece);
    return;
  }
  writer.begin_array();
  for (const char byte : piece) writer.integer(static_cast<unsigned char>(byte));
  writer.end_array();
}

}  // namespace

Result<TokenizeRequest> read_tokenize_request(const Json& json, const RequestLimits& limits) {
  std::optional<Error> complaint;
  const Fields fields(json, "", complaint, Fields::Reads::kKept, limits.fields_read);
  TokenizeRequest request;
  if (const std::string* model = fields.text("model", kModelBytesMax)) request.model = *model;
  request.token_texts = fields.boolean("return_token_strs").value_or(false);
  const bool has_messages = fields.find("messages") != nullptr;
  const std::string* prompt = fields.text("prompt", kTokenizeBytesMax);
  const std::string* content = fields.text("content", kTokenizeBytesMax);
  request.is_llama = content != nullptr && prompt == nullptr && !has_messages;
  if (content != nullptr && !request.is_llama) {
    fields.refuse("content", "of 'content', 'prompt' and 'messages' one may be given");
  }
  if (request.is_llama) prompt = content;
  if (prompt != nullptr) request.prompt = *prompt;
  if (request.is_llama) {
    request.adds_special = fields.boolean("add_special").value_or(false);
    static_cast<void>(fields.boolean("parse_special"));  // text is never a control token here
    request.token_texts = fields.boolean("with_pieces").value_or(false);
    check_unread_fields(fields, BodyKind::kText, limits.unknown_fields, request.warnings);
    if (complaint) return std::move(*complaint);
    return request;
  }
  if (has_messages == (fields.find("prompt") != nullptr)) {
    fields.refuse(has_messages ? "messages" : "prompt",
                  "either 'prompt' or 'messages' must be given, and not both");
  }
  if (!has_messages) {
    request.adds_special = fields.boolean("add_special_tokens").value_or(true);
    check_unread_fields(fields, BodyKind::kText, limits.unknown_fields, request.warnings);
  }
  if (complaint) return std::move(*complaint);
  if (has_messages) {
    RequestLimits alone = limits;
    alone.prompt_alone = true;
    TRY_ASSIGN(request.chat, read_chat_request(json, alone));
    request.warnings = request.chat->warnings;
  }
  return request;
}

Result<TokenizeRequest> parse_tokenize_request(std::string_view body, const RequestLimits& limits) {
  TRY_ASSIGN(const Json json, parse_object(body));
  return read_tokenize_request(json, limits);
}

Result<DetokenizeRequest> parse_detokenize_request(std::string_view body,
                                                   const RequestLimits& limits) {
  TRY_ASSIGN(const Json json, parse_object(body));
  std::optional<Error> complaint;
  const Fields fields(json, "", complaint, Fields::Reads::kKept, limits.fields_read);
  DetokenizeRequest request;
  if (const std::string* model = fields.text("model", kModelBytesMax)) request.model = *model;
  const Json* tokens = fields.array("tokens", kDetokenizeTokensMax);
  if (tokens == nullptr) {
    fields.refuse("tokens", "'tokens' is missing");
    return std::move(*complaint);
  }
  auto ids = read_token_ids(tokens->as_array(), "tokens", fields, limits);
  check_unread_fields(fields, BodyKind::kText, limits.unknown_fields, request.warnings);
  if (complaint) return std::move(*complaint);
  request.tokens = std::move(*ids);
  return request;
}

std::string tokenize_body(const Tokenized& tokenized) {
  std::string body;
  base::JsonWriter writer(body);
  writer.begin_object().key("count").integer(static_cast<int64_t>(tokenized.tokens.size()));
  writer.key("max_model_len").integer(tokenized.context_max);
  writer.key("tokens").begin_array();
  for (const TokenId token : tokenized.tokens) writer.integer(token);
  writer.end_array().key("token_strs");
  if (tokenized.texts) {
    writer.begin_array();
    for (const std::string& text : *tokenized.texts) writer.string(text);
    writer.end_array();
  } else {
    writer.null();
  }
  writer.end_object();
  return body;
}

std::string llama_tokenize_body(const Tokenized& tokenized) {
  std::string body;
  base::JsonWriter writer(body);
  writer.begin_object().key("tokens").begin_array();
  for (size_t i = 0; i < tokenized.tokens.size(); ++i) {
    if (!tokenized.texts) {
      writer.integer(tokenized.tokens[i]);
      continue;
    }
    writer.begin_object().key("id").integer(tokenized.tokens[i]);
    writer.key("piece");
    write_piece(writer, (*tokenized.texts)[i]);
    writer.end_object();
  }
  writer.end_array().end_object();
  return body;
}

std::string detokenize_body(std::string_view text) {
  std::string body;
  base::JsonWriter(body).begin_object().key("prompt").string(text).end_object();
  return body;
}

std::string input_tokens_body(int64_t count) {
  std::string body;
  base::JsonWriter writer(body);
  writer.begin_object().key("object").string("response.input_tokens");
  writer.key("input_tokens").integer(count).end_object();
  return body;
}

}  // namespace pelton::api
