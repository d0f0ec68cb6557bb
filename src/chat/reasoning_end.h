// How a message of reasoning is broken off: tokens that close it and open what comes after, to be
// put where the model would have gone on reasoning.
#pragma once

#include <vector>

#include "base/token_id.h"
#include "chat/harmony_tokens.h"
#include "tokenizer/tokenizer.h"

namespace pelton::chat {

enum class AfterReasoning {
  kFinalAnswer,  // nothing else may come
  kFreeMessage,  // the model chooses: the final answer, a call, or more reasoning
};

std::vector<TokenId> reasoning_end(const tokenizer::Tokenizer& tokenizer,
                                   const HarmonyTokens& tokens, AfterReasoning after);

}  // namespace pelton::chat
