#include "chat/reasoning_end.h"

#include "chat/conversation.h"

namespace pelton::chat {

std::vector<TokenId> reasoning_end(const tokenizer::Tokenizer& tokenizer,
                                   const HarmonyTokens& tokens, AfterReasoning after) {
  std::vector<TokenId> end = {tokens.end, tokens.start};
  tokenizer.encode(role_name(Role::kAssistant), end);
  if (after == AfterReasoning::kFreeMessage) return end;
  end.push_back(tokens.channel);
  tokenizer.encode(kFinal, end);
  end.push_back(tokens.message);
  return end;
}

}  // namespace pelton::chat
