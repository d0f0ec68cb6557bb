// A conversation as the tokens of a prompt, the model's own turns as it sampled them where
// they are still known.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "api/chat_message.h"
#include "api/chat_request.h"
#include "base/function_ref.h"
#include "chat/conversation.h"
#include "chat/format.h"
#include "server/served_model.h"
#include "server/turn_cache.h"

namespace pelton::server {

struct ChatPrompt {
  std::vector<TokenId> tokens;  // up to where the model's turn begins
  RollingHash history;          // of all before that
  // A past turn stands in it as this server sampled it: another one might write it otherwise.
  bool has_sampled_turns = false;
  // What the prompt writes of that turn ("<think>\n"): in `tokens` from begin_turn() on.
  std::vector<TokenId> opening = {};
  chat::PromptReasoning reasoning = chat::PromptReasoning::kNotBegun;
};

// `messages`: those that the `turn`s in `conversation` are indices of. Past reasoning is left out:
// a turn of the past is only taken as it was sampled if it had none.
// Error kInvalidArgument: the model's chat template does not take the conversation.
Result<ChatPrompt> chat_prompt(chat::Conversation conversation,
                               const std::vector<api::ChatMessage>& messages,
                               const ServedModel& model, TurnCache& turns, std::string_view salt);

// The same for any protocol: `find_turn` gives the tokens that a turn was sampled as, by its number
// and all that stands before it, or nothing.
using FindTurn =
    base::FunctionRef<std::optional<std::vector<TokenId>>(int turn, const RollingHash& history)>;
Result<ChatPrompt> prompt_of(chat::Conversation conversation, const ServedModel& model,
                             RollingHash history, FindTurn find_turn);

// Ends the prompt with the model's turn as far as it is given: the prompt's own opening, then
// `opening` (the beginning of a call, say). Afterwards `opening` is all of that.
void begin_turn(const ServedModel& model, ChatPrompt& prompt, std::vector<TokenId>& opening);

// Fields that a prompt would have to hold and that this model's format has no place for.
std::optional<Error> not_in_prompts(const api::ChatRequest& request,
                                    const chat::ChatFormat& format);

// Takes the beginning of the model's turn off a prompt's end.
void drop_turn_start(const ServedModel& model, std::vector<TokenId>& prompt);

}  // namespace pelton::server
