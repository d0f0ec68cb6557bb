// POST /inference/v1/generate, tokens in and tokens out, for front ends that render and parse
// themselves: the body as plain values. What /v1/.../render answers is such a body.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "api/generation_fields.h"
#include "base/result.h"

namespace pelton::api {

inline constexpr size_t kGenerateTokensMax = 1'000'000;

struct GenerateRequest {
  std::string request_id;  // empty: the server finds one
  std::string model;       // empty: the only one there is
  std::vector<TokenId> tokens;
  int logprobs = -1;  // alternatives per token; -1: no logprobs
  GenerationFields generation;
  std::vector<std::string> warnings;  // what was ignored, for a response header
};

// Errors: kInvalidArgument with the field's path.
Result<GenerateRequest> parse_generate_request(std::string_view body, const RequestLimits& limits);
// Of a body that has been read and checked (api/json_object.h).
Result<GenerateRequest> read_generate_request(const Json& json, const RequestLimits& limits);

}  // namespace pelton::api
