// Answers of /inference/v1/generate, whole and in chunks, and of /v1/.../render: what is in and out
// are token ids. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/generation_fields.h"
#include "api/logprobs.h"
#include "api/usage.h"
#include "base/token_id.h"

namespace pelton::api {

struct GeneratedToken {
  TokenId token = 0;
  float logprob = 0.0f;
  std::vector<std::pair<TokenId, float>> top;
};

struct GeneratedChoice {
  int index = 0;
  std::vector<GeneratedToken> tokens;
  bool logprobs = false;
  std::string_view finish_reason;  // empty: it goes on
};

// `prompt`: null: not reported.
std::string generate_body(std::string_view id, std::span<const GeneratedChoice> choices,
                          const std::vector<PromptTokenLogprobs>* prompt, const Usage& usage);
// A chunk of a stream, appended to `out`: of one choice, or the usage at the end.
void append_generate_chunk(std::string_view id, const GeneratedChoice& choice, std::string& out);
void append_generate_usage(std::string_view id, const Usage& usage, std::string& out);

// A body for /inference/v1/generate, with the prompt's text beside it. Numbers that the request
// left to the model are left out here too.
struct RenderedPrompt {
  std::string id;
  std::string model;
  std::span<const TokenId> tokens;
  std::string text;
  int logprobs = -1;
  const GenerationFields& generation;
};
void append_rendered(const RenderedPrompt& prompt, std::string& out);

}  // namespace pelton::api
