// A prompt as callers of completions write it, as tokens.
#pragma once

#include <string_view>
#include <vector>

#include "api/completion_request.h"
#include "server/served_model.h"

namespace pelton::server {

// Text never yields control tokens, but begins with the model's bos token where its files say so
// and `adds_special` does (add_special_tokens); a caller's own ids may have control tokens only
// where the operator allows it, or at their beginning, where a text would have them. Errors:
// kInvalidArgument.
Result<std::vector<TokenId>> completion_prompt(const api::Prompt& prompt, const ServedModel& model,
                                               std::string_view field, bool adds_special = true);

}  // namespace pelton::server
