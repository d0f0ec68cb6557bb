// Log-probabilities of sampled tokens, as both endpoints report them. Pure functions.
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
  size_t text_offset = 0;  // completions: where in the choice's whole text its own begins
  bool foretold = true;    // false: a prompt's first token, of which nothing can be said
};

// A token of a prompt. Its id and its alternatives' are always set.
struct PromptTokenLogprobs {
  ScoredToken token;
  int rank = 0;  // 1: nothing was likelier
  std::vector<ScoredToken> top;
};

// What one request may ask to have reported of its prompts: tokens, times the alternatives and one.
inline constexpr int64_t kPromptLogprobsMax = int64_t{1} << 18;

// Chat: {"content":[{"token":…,"logprob":…,"bytes":[…],"top_logprobs":[…]}],"refusal":null}
void write_chat_logprobs(base::JsonWriter& writer, std::span<const TokenLogprobs> tokens);

// Responses: [{"token":…,"logprob":…,"bytes":[…],"top_logprobs":[…]}]
void write_token_logprobs(base::JsonWriter& writer, std::span<const TokenLogprobs> tokens);

// vLLM's "prompt_logprobs": [null,{"17":{"logprob":…,"rank":3,"decoded_token":"…"},…},…]. The null
// is the prompt's first token; `tokens` are those after it.
void write_prompt_logprobs(base::JsonWriter& writer, std::span<const PromptTokenLogprobs> tokens);

// Completions: {"tokens":[…],"token_logprobs":[…],"top_logprobs":[{…}],"text_offset":[…]}.
void write_completion_logprobs(base::JsonWriter& writer, std::span<const TokenLogprobs> tokens);

}  // namespace pelton::api
