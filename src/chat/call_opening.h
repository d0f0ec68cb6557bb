// The beginning of a call that the model is made to make (tool_choice "required" or a function's
// name): tokens its turn is opened with, so that it can only go on with the call. It does not
// reason first. That the arguments follow a schema is the grammar's business, not this one's.
#pragma once

#include <string_view>
#include <vector>

#include "base/token_id.h"
#include "chat/harmony_tokens.h"
#include "tokenizer/tokenizer.h"

namespace pelton::chat {

// Stands right after a prompt's last "<|start|>assistant". With a name it goes up to the arguments;
// with none, up to where the model writes one.
std::vector<TokenId> call_opening(const tokenizer::Tokenizer& tokenizer,
                                  const HarmonyTokens& tokens, std::string_view function_name);

}  // namespace pelton::chat
