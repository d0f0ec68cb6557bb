// POST /v1/completions: the body as plain values, everything in it checked.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "api/generation_fields.h"
#include "base/result.h"

namespace pelton::api {

// Ordinary text, or the caller's own tokens.
using Prompt = std::variant<std::string, std::vector<TokenId>>;

// "use_beam_search", as vLLM has it: generation.n of so many beams are shown.
struct BeamFields {
  int width = 1;
  double length_penalty = 1.0;
  bool early_stopping = false;
};

struct CompletionRequest {
  std::string model;            // empty: the only one there is
  std::vector<Prompt> prompts;  // at least one; one choice each
  int logprobs = -1;            // alternatives per token; -1: no logprobs
  bool shows_marks = false;     // control tokens are text too (skip_special_tokens: false)
  bool echo = false;            // the text begins with the prompt's
  bool adds_special = true;     // a text begins with the model's bos token, if it has one
  std::string suffix;           // the answer stands before it; empty: none
  int choices_shown = 1;        // of each prompt's generation.n, those with the likeliest tokens
  std::optional<BeamFields> beams;  // none: tokens are sampled
  GenerationFields generation;
  std::vector<std::string> warnings;  // what was ignored, for a response header
};

inline constexpr size_t kPromptsMax = 1024;
inline constexpr size_t kSuffixBytesMax = size_t{16} << 20;
inline constexpr size_t kCompletionChoicesMax = 1024;  // of all prompts together
inline constexpr int kBestOfMax = 20;
inline constexpr int kBeamWidthMax = 16;
inline constexpr int64_t kCompletionTokensDefault = 16;  // OpenAI's

// string | [string, …] | [id, …] | [[id, …], …]; none of them empty.
std::vector<Prompt> read_prompts(const Fields& body, std::string_view key, size_t prompts_max,
                                 const RequestLimits& limits);

// Errors: kInvalidArgument with the field's path.
Result<CompletionRequest> parse_completion_request(std::string_view body,
                                                   const RequestLimits& limits);
// Of a body that has been read and checked (api/json_object.h).
Result<CompletionRequest> read_completion_request(const Json& json, const RequestLimits& limits);

}  // namespace pelton::api
