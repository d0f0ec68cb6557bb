#include "server/chat_prompt.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "base/check.h"

namespace pelton::server {
namespace {

TurnCache::Words words_of(const api::ChatMessage& message) {
  TurnCache::Words words{.content = message.content, .reasoning = message.reasoning, .call = {}};
  if (!message.tool_calls.empty()) {
    words.call.emplace(message.tool_calls[0].name, message.tool_calls[0].arguments);
  }
  return words;
}

// What an answer must look like says how it begins, and this one has begun.
std::optional<Error> not_continued(const api::ChatRequest& request) {
  std::string field;
  if (request.generation.format) field = request.generation.format->field;
  if (request.forced_call) field = "tool_choice";
  for (const api::FunctionTool& tool : request.tools) {
    if (tool.strict) field = tool.field.substr(0, tool.field.rfind('.')) + ".strict";
  }
  if (field.empty()) return std::nullopt;
  return Error{.code = ErrorCode::kInvalidArgument,
               .message = "'" + field + "' is not supported for an answer that goes on with the " +
                          "last message; leave it away, or end with a user's message",
               .field = field};
}

}  // namespace

Result<ChatPrompt> chat_prompt(chat::Conversation conversation,
                               const std::vector<api::ChatMessage>& messages,
                               const ServedModel& model, TurnCache& turns, std::string_view salt) {
  return prompt_of(std::move(conversation), model, turns.history(salt),
                   [&](int turn, const RollingHash& history) {
                     return turns.find(history, words_of(messages[static_cast<size_t>(turn)]));
                   });
}

Result<ChatPrompt> prompt_of(chat::Conversation conversation, const ServedModel& model,
                             RollingHash history, FindTurn find_turn) {
  const chat::ChatFormat& format = *model.chat;
  TRY_ASSIGN(const std::unique_ptr<chat::PromptPieces> written,
             format.pieces(std::move(conversation)));
  const std::vector<chat::PromptPieces::Piece>& pieces = written->pieces();
  history.add(model.serial);  // another model's turns are other tokens
  ChatPrompt prompt{.tokens = {}, .history = history};
  const auto add = [&](const std::vector<TokenId>& tokens) {
    prompt.tokens.insert(prompt.tokens.end(), tokens.begin(), tokens.end());
  };
  size_t named = 0;  // tokens that the history's name knows
  for (size_t i = 0; i < pieces.size(); ++i) {
    std::optional<std::vector<TokenId>> sampled;
    if (pieces[i].turn >= 0) {
      prompt.history.add_tokens(std::span(prompt.tokens).subspan(named));
      named = prompt.tokens.size();
      sampled = find_turn(pieces[i].turn, prompt.history);
      if (sampled && !pieces[i].shows_reasoning && format.has_reasoning(*sampled)) sampled.reset();
    }
    if (sampled) {
      prompt.has_sampled_turns = true;
      add(format.turn_start());
      add(*sampled);
    } else {
      written->append(i, prompt.tokens);
    }
  }
  prompt.history.add_tokens(std::span(prompt.tokens).subspan(named));
  add(format.turn_start());
  prompt.opening = written->opening();
  prompt.reasoning = written->reasoning();
  return prompt;
}

void begin_turn(const ServedModel& model, ChatPrompt& prompt, std::vector<TokenId>& opening) {
  std::vector<TokenId> all = std::move(prompt.opening);
  // What the model is made to say does not stand in its reasoning.
  if (prompt.reasoning == chat::PromptReasoning::kOpen && !opening.empty()) {
    const std::vector<TokenId> end = model.chat->reasoning_end(chat::AfterReasoning::kFinalAnswer);
    all.insert(all.end(), end.begin(), end.end());
    prompt.reasoning = chat::PromptReasoning::kOver;
  }
  all.insert(all.end(), opening.begin(), opening.end());
  prompt.tokens.insert(prompt.tokens.end(), all.begin(), all.end());
  prompt.opening.clear();
  opening = std::move(all);
}

std::optional<Error> not_in_prompts(const api::ChatRequest& request,
                                    const chat::ChatFormat& format) {
  const auto refused = [&](std::string_view field, std::string_view argument) {
    return Error{.code = ErrorCode::kInvalidArgument,
                 .message = "'" + std::string(field) + "': this model's chat format has no place " +
                            "for " + std::string(argument),
                 .field = std::string(field)};
  };
  if (!request.documents.is_null() && !format.reads_argument("documents")) {
    return refused("documents", "documents");
  }
  if (request.continues_last) {
    if (std::optional<Error> error = not_continued(request)) return error;
  }
  for (const Json::Member& argument : request.template_arguments) {
    if (argument.key == "builtin_tools" && !format.reads_argument(argument.key)) {
      return refused("chat_template_kwargs.builtin_tools", "built-in tools");
    }
  }
  return std::nullopt;
}

void drop_turn_start(const ServedModel& model, std::vector<TokenId>& prompt) {
  const std::vector<TokenId>& start = model.chat->turn_start();
  CHECK(prompt.size() >= start.size() &&
            std::equal(start.begin(), start.end(), prompt.end() - std::ssize(start)),
        "every prompt ends so");
  prompt.resize(prompt.size() - start.size());
}

}  // namespace pelton::server
