// POST /v1/chat/completions: the body as plain values, everything in it checked. What we would have
// to obey and cannot is refused by name; a key that nobody documents is reported in a warning.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "api/chat_message.h"
#include "api/generation_fields.h"
#include "api/thinking.h"
#include "api/tool.h"
#include "base/result.h"

namespace pelton::api {

// Where the model reads system and developer messages that come after others: at the beginning with
// the rest of the instructions, or where they were said, so that the beginning stays the same.
enum class InstructionsPlace { kBeginning, kWhereSaid };

struct ChatRequest {
  std::string model;  // empty: the only one there is
  std::vector<ChatMessage> messages;
  InstructionsPlace instructions = InstructionsPlace::kBeginning;
  std::vector<FunctionTool> tools;
  std::vector<std::string> declared_functions;  // in history, also what may not be called now
  std::optional<ForcedCall> forced_call;
  bool parallel_calls = true;  // false: at most one in an answer
  bool legacy_calls = false;   // "functions": a call is reported as a message's "function_call"
  std::optional<ReasoningEffort> reasoning_effort;
  // "enable_thinking" of the template's arguments, or the field below; none: not said.
  std::optional<bool> thinks;
  std::string_view thinks_field = "chat_template_kwargs.enable_thinking";
  bool include_reasoning = true;
  int top_logprobs = -1;  // -1: no logprobs
  // "prediction": what the caller expects the answer to be, or to have parts of; none: not said.
  std::optional<std::string> prediction;
  bool begins_answer = true;    // the prompt ends within the model's turn, behind its opening
  bool continues_last = false;  // that turn is the last message, and the answer goes on with it
  bool echoes_last = false;     // and shows it, too
  // For a model's chat template: its other arguments by name; documents
  // (null: none).
  Json::Object template_arguments;
  Json documents;
  GenerationFields generation;
  std::vector<std::string> warnings;  // what was ignored, for a response header
};

// A field that says how much to think, by whatever name.
std::optional<ReasoningEffort> read_effort(const Fields& fields, std::string_view key);

// Whether a "reasoning" object asks for a summary; none: it does not say.
std::optional<bool> read_reasoning_summary(const Fields& reasoning);
// Refuses what is left of a "reasoning" object, but for defaults.
void refuse_other_reasoning(const Fields& reasoning);

// "verbosity", which this model has not.
void check_verbosity(const Fields& fields, std::vector<std::string>& warnings);

// Errors: kInvalidArgument with the field's path.
Result<ChatRequest> parse_chat_request(std::string_view body, const RequestLimits& limits);
// Of a body that has been read and checked (api/json_object.h).
Result<ChatRequest> read_chat_request(const Json& json, const RequestLimits& limits);

}  // namespace pelton::api
