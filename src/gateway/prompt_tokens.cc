#include "gateway/prompt_tokens.h"

#include <utility>
#include <variant>

#include "api/chat_request.h"
#include "api/completion_request.h"
#include "api/generate_request.h"
#include "api/messages_request.h"
#include "api/response_request.h"
#include "base/json.h"
#include "prompt/chat_conversation.h"
#include "prompt/response_opening.h"

namespace pelton::gateway {
namespace {

using Tokens = std::optional<PromptTokens>;

api::RequestLimits limits_of(const ModelText& text) {
  return {.vocab_size = text.tokenizer->vocab_size()};
}

PromptTokens asked(const api::GenerationFields& generation) {
  return {.tokens = {},
          .cache_salt = generation.cache_salt,
          .answers = generation.n,
          .output_max = generation.max_tokens,
          .may_move = !generation.prompt_logprobs && generation.mirostat_tau == 0};
}

Tokens chat_tokens(const ModelText& text, const api::ChatRequest& request,
                   const std::string& date) {
  if (text.chat == nullptr) return std::nullopt;
  Result<chat::RenderedPrompt> rendered = text.chat->render(prompt::conversation_of(request, date));
  if (!rendered.ok()) return std::nullopt;
  PromptTokens known = asked(request.generation);
  known.tokens = std::move(rendered->tokens);
  return known;
}

Tokens of_chat(const ModelText& text, const PromptSource& source) {
  const auto request = api::parse_chat_request(source.body, limits_of(text));
  return request.ok() ? chat_tokens(text, *request, source.date) : std::nullopt;
}

Tokens of_messages(const ModelText& text, const PromptSource& source) {
  const auto request =
      api::parse_messages_request(source.body, limits_of(text), api::MessagesUse::kGenerate);
  return request.ok() ? chat_tokens(text, request->chat, source.date) : std::nullopt;
}

// Of words of its client's only: what the model has said before, and where it goes on from a stored
// response, is a matter of the worker that has that.
Tokens of_response(const ModelText& text, const PromptSource& source) {
  using Item = api::ResponseItem;
  if (text.chat == nullptr) return std::nullopt;
  const Result<Json> body = Json::parse(source.body);
  if (!body.ok()) return std::nullopt;
  const auto request = api::parse_response_request(*body, limits_of(text));
  if (!request.ok() || !request->previous_response_id.empty()) return std::nullopt;
  chat::Conversation conversation = prompt::response_opening(*request, {}, source.date);
  for (const Item& item : request->items) {
    if (item.kind != Item::Kind::kMessage || item.is_models()) return std::nullopt;
    if (item.role != api::ChatRole::kUser) continue;
    conversation.messages.push_back({.kind = chat::Message::Kind::kUser, .text = item.text});
  }
  Result<chat::RenderedPrompt> rendered = text.chat->render(conversation);
  if (!rendered.ok()) return std::nullopt;
  PromptTokens known = asked(request->generation);
  if (request->background) known.may_move = false;
  known.tokens = std::move(rendered->tokens);
  return known;
}

Tokens of_completion(const ModelText& text, const PromptSource& source) {
  const auto request = api::parse_completion_request(source.body, limits_of(text));
  const bool has_one = request.ok() && request->prompts.size() == 1 && request->suffix.empty();
  if (!has_one) return std::nullopt;
  const api::Prompt& prompt = request->prompts.front();
  PromptTokens known = asked(request->generation);
  if (request->echo) known.may_move = false;
  if (const auto* words = std::get_if<std::string>(&prompt)) {
    known.tokens = request->adds_special ? text.tokenizer->encode_prompt(*words)
                                         : text.tokenizer->encode(*words);
  } else {
    known.tokens = std::get<std::vector<TokenId>>(prompt);
  }
  return known;
}

Tokens of_generate(const ModelText& text, const PromptSource& source) {
  auto request = api::parse_generate_request(source.body, limits_of(text));
  if (!request.ok()) return std::nullopt;
  PromptTokens known = asked(request->generation);
  known.tokens = std::move(request->tokens);
  return known;
}

}  // namespace

Tokens prompt_tokens(const ModelText& text, const PromptSource& source) {
  if (source.path == "/v1/chat/completions") return of_chat(text, source);
  if (source.path == "/v1/messages") return of_messages(text, source);
  if (source.path == "/v1/responses") return of_response(text, source);
  if (source.path == "/v1/completions") return of_completion(text, source);
  if (source.path == "/inference/v1/generate") return of_generate(text, source);
  return std::nullopt;
}

}  // namespace pelton::gateway
