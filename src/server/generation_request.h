// What both endpoints do to make an engine's request of validated fields.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "api/error.h"
#include "api/generation_fields.h"
#include "request/generation_request.h"
#include "server/served_model.h"

namespace pelton::server {

struct GenerationSource {
  std::string id;
  std::vector<TokenId> prompt;
  std::string_view prompt_field;  // for errors: "messages", "prompt"
  api::ContextLength::Prompt prompt_kind = api::ContextLength::Prompt::kText;
  std::string_view tenant;  // by its key; may be empty
  std::string cache_salt;   // AccessControl::cache_salt
  std::optional<int64_t> deadline_ns;
  int logprobs = -1;
  int prompt_logprobs = -1;
  std::optional<grammar::GrammarState> guide;
  std::vector<TokenId> prediction;  // what the caller expects the answer to be
  uint64_t seed_if_none = 0;
  bool may_call = false;  // functions are offered: after its reasoning the model may call one
  chat::PromptReasoning reasoning = chat::PromptReasoning::kNotBegun;
};

// Where a prompt of tokens leaves the reasoning of the turn it ends in: open behind the marker that
// begins it, until one that ends it. As chat::PromptPieces::reasoning() says of one that we write.
chat::PromptReasoning reasoning_at_end(const ServedModel& model, std::span<const TokenId> prompt);

// Of all of a request's prompts: what is held for them, and written, is bounded.
std::optional<Error> too_many_prompt_logprobs(int64_t count, const api::GenerationFields& fields);

// The answer if the prompt does not fit.
std::variant<request::GenerationRequest, api::ApiError> generation_request(
    const ServedModel& model, const api::GenerationFields& fields, GenerationSource source);

}  // namespace pelton::server
