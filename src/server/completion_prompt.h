// A prompt as callers of completions write it, as tokens.
#pragma once

#include <string_view>
#include <vector>

#include "api/completion_request.h"
#include "server/served_model.h"

namespace pelton::server {

// Text never yields control tokens; a caller's own ids may only where the operator allows it.
// Errors: kInvalidArgument.
Result<std::vector<TokenId>> completion_prompt(const api::Prompt& prompt, const ServedModel& model,
                                               std::string_view field);

}  // namespace pelton::server
