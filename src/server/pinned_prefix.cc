#include "server/pinned_prefix.h"

#include <span>

#include <fmt/format.h>

#include "api/chat_request.h"
#include "base/json.h"
#include "base/utf8.h"
#include "prompt/chat_conversation.h"

namespace pelton::server {
namespace {

Error bad_file(const PrefixFile& file, std::string_view what) {
  return Error{ErrorCode::kBadConfig, fmt::format("{}: {}", file.name, what), "pin-prefix"};
}

Result<std::vector<TokenId>> chat_prefix(const PrefixFile& file, const ServedModel& model,
                                         const std::string& current_date) {
  if (const auto error = model.no_chat()) return bad_file(file, error->message);
  Result<Json> parsed = Json::parse(file.text);
  if (!parsed.ok()) return bad_file(file, parsed.error().message);
  Json body = *std::move(parsed);
  if (body.is_array()) {
    Json messages = std::move(body);
    body = Json(Json::Object{});
    body.set("messages", std::move(messages));
  }
  const auto request = api::parse_chat_request(body.dump(), model.request_limits());
  if (!request.ok()) return bad_file(file, request.error().message);
  chat::Conversation conversation = prompt::conversation_of(*request, current_date);
  conversation.begins_turn = false;
  const auto made = model.chat->pieces(std::move(conversation));
  if (!made.ok()) return bad_file(file, made.error().message);
  const std::unique_ptr<chat::PromptPieces>& prompt = *made;
  std::vector<TokenId> tokens;
  // Without the model's turn: where these messages end, others may follow.
  for (size_t i = 0; i < prompt->pieces().size(); ++i) prompt->append(i, tokens);
  return tokens;
}

}  // namespace

Result<std::vector<TokenId>> pinned_prefix(const PrefixFile& file, const ServedModel& model,
                                           const std::string& current_date) {
  if (file.name.ends_with(".json")) return chat_prefix(file, model, current_date);
  if (!base::is_valid_utf8(file.text)) return bad_file(file, "the text is not valid UTF-8");
  if (file.text.empty()) return bad_file(file, "the file is empty");
  if (const auto error = model.no_text(file.name, TextUse::kOption))
    return bad_file(file, error->message);
  // As prompts that begin with this text do, which then go on.
  const std::span<const TokenId> begin = model.tokenizer.prompt_begin();
  const std::vector<TokenId> text = model.tokenizer.encode(file.text);
  std::vector<TokenId> tokens(begin.begin(), begin.end());
  tokens.insert(tokens.end(), text.begin(), text.end());
  return tokens;
}

}  // namespace pelton::server
