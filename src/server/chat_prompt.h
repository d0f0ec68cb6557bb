// A Harmony conversation as the tokens of a prompt, the model's own turns as it sampled them where
// they are still known.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "api/chat_message.h"
#include "base/function_ref.h"
#include "chat/conversation.h"
#include "server/sampled_turns.h"
#include "server/served_model.h"

namespace pelton::server {

struct ChatPrompt {
  std::vector<TokenId> tokens;  // up to "<|start|>assistant"
  SequenceName history;         // of all before that
};

// `messages`: those that the `turn`s in `conversation` are indices of; the conversation's past
// analysis is dropped already. It stays dropped: a turn that lies before the last answer is only
// taken as it was sampled if it had none.
ChatPrompt chat_prompt(const chat::Conversation& conversation,
                       const std::vector<api::ChatMessage>& messages, const ServedModel& model,
                       SampledTurns& turns, std::string_view salt);

// The same for any protocol: `find_turn` gives the tokens that a turn was sampled as, by its number
// and all that stands before it, or nothing.
using FindTurn =
    base::FunctionRef<std::optional<std::vector<TokenId>>(int turn, const SequenceName& history)>;
ChatPrompt prompt_of(const chat::Conversation& conversation, const ServedModel& model,
                     SequenceName history, FindTurn find_turn);

// Takes the "<|start|>assistant" off a prompt's end.
void drop_turn_start(const ServedModel& model, std::vector<TokenId>& prompt);

// The turn that was sampled after `opening`, as a later prompt should hold it; empty if none
// should: cut short, not in the model's own format, or such that its reasoning is not shown again.
std::vector<TokenId> turn_to_keep(const ServedModel& model, std::vector<TokenId> turn);

}  // namespace pelton::server
