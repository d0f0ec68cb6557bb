// Log-probabilities of sampled tokens, as both endpoints report them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/json_writer.h"
#include "base/token_id.h"

namespace pelton::api {

// OpenAI's floor for what is as good as impossible; JSON has no infinity.
inline constexpr float kLogprobMin = -9999.0f;

struct ScoredToken {
  std::string bytes;  // as the vocabulary has them, perhaps half a code point
  float logprob = 0.0f;
  TokenId id = -1;  // at least 0: it is named by its number, "token_id:7"
};

struct TokenLogprobs {
  ScoredToken token;
  std::vector<ScoredToken> top;
};

// Chat: {"content":[{"token":…,"logprob":…,"bytes":[…],"top_logprobs":[…]}],"refusal":null}
void write_chat_logprobs(base::JsonWriter& writer, std::span<const TokenLogprobs> tokens);

// Responses: [{"token":…,"logprob":…,"bytes":[…],"top_logprobs":[…]}]
void write_token_logprobs(base::JsonWriter& writer, std::span<const TokenLogprobs> tokens);

// Completions: {"tokens":[…],"token_logprobs":[…],"top_logprobs":[{…}],"text_offset":[…]}.
// `first_offset`: where in the choice's text the first of these tokens begins.
void write_completion_logprobs(base::JsonWriter& writer, std::span<const TokenLogprobs> tokens,
                               size_t first_offset);

}  // namespace pelton::api
