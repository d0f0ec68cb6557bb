// Whether the tokens that a server counts of an answer can be what it has sent: by what everybody
// sees, without its tokenizer. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/json.h"
#include "eval/task.h"

namespace pelton::eval {

// Of a request, as far as tokens are bounded by it.
struct AskedTokens {
  int64_t text_bytes = 0;                 // of its messages
  std::optional<int64_t> completion_max;  // of the answer, reasoning included
};
// `request`: the body that was sent.
AskedTokens asked_tokens(const Json& request);

// Why the member `usage` of an answer cannot be true; empty: it can, or nothing is counted in it.
std::string usage_fault(const Json& usage, const Answer& answer, const AskedTokens& asked);

}  // namespace pelton::eval
