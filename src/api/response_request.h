// POST /v1/responses: the body as plain values, everything in it checked. Unknown keys are ignored;
// what we would have to obey and cannot is refused by name.
#pragma once

#include <string>
#include <vector>

#include "api/chat_request.h"
#include "api/generation_fields.h"
#include "api/response_item.h"
#include "api/tool.h"
#include "base/result.h"

namespace pelton::api {

struct ResponseRequest {
  std::string model;  // empty: the only one there is
  std::string instructions;
  std::vector<ResponseItem> items;
  std::vector<FunctionTool> tools;
  BuiltinTools builtins;                        // that the server runs for it
  bool code_outputs = false;                    // of its Python, in the items
  std::optional<int64_t> tool_calls_max;        // of those; none: as many as the server lets it
  std::vector<std::string> declared_functions;  // in history, also what may not be called now
  std::optional<ForcedCall> forced_call;
  bool parallel_calls = true;  // false: at most one in an answer
  std::optional<ReasoningEffort> reasoning_effort;
  bool reasoning_summary = false;    // of whatever length: what the model thought is its summary
  bool encrypted_reasoning = false;  // comes with the reasoning, to be sent back
  int top_logprobs = -1;             // -1: no logprobs
  std::string previous_response_id;
  bool store = true;
  bool background = false;      // made though nobody waits for it
  bool may_drop_items = false;  // truncation "auto": the oldest, as many as must go
  GenerationFields generation;
  std::vector<std::string> warnings;  // what was ignored, for a response header
};

// Errors: kInvalidArgument with the field's path.
Result<ResponseRequest> parse_response_request(const Json& body, const RequestLimits& limits);

struct SamplingShown {
  double temperature;
  double top_p;
};
// The members of a response object that repeat its request, without braces:
// "\"background\":false,…". `body` has been validated.
std::string response_echo(const Json& body, const SamplingShown& sampling);

}  // namespace pelton::api
