// What answers say beyond OpenAI's own fields, by vLLM's and llama.cpp's names. Pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "api/usage.h"
#include "base/json_writer.h"
#include "base/token_id.h"

namespace pelton::api {

// "stop_reason": the stop string, or the id of a token of stop_token_ids; null for all else.
using StopReason = std::variant<std::monostate, std::string, TokenId>;

void write_stop_reason(base::JsonWriter& writer, const StopReason& reason);
void write_token_ids(base::JsonWriter& writer, std::span<const TokenId> tokens);

// Milliseconds on the engine's clock, over all choices of the answer.
struct Timings {
  double queue_ms = 0;    // until it had a slot
  double prefill_ms = 0;  // from there to the first token
  double decode_ms = 0;   // from that to the last
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;  // of the prompt
  int64_t output_tokens = 0;
  // Speculation: tokens guessed, those that were right, and [i]: rows with guesses of which the
  // first i alone were.
  int64_t draft_tokens = 0;
  int64_t accepted_draft_tokens = 0;
  std::vector<int64_t> drafts;
};

// {"queue_ms","prefill_ms","decode_ms","cache_n","prompt_n","prompt_ms","prompt_per_token_ms",
// "prompt_per_second","predicted_n","predicted_ms","predicted_per_token_ms","predicted_per_second"}
// and, where something was guessed, {"draft_n","draft_n_accepted" (llama.cpp's names),
// "draft_mean_length" (tokens of a row with guesses),"draft_accepted_histogram"}
void write_timings(base::JsonWriter& writer, const Timings& timings);

// What a stream's last event says behind its empty list of choices, and the event's end; null: not
// asked for.
void end_last_event(std::string& out, const Usage* usage, const Timings* timings);

}  // namespace pelton::api
