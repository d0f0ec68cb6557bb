// What is known of one request (HTTP, gRPC, a WebSocket's turn) when it is over: for the access
// log, the trace, and the timings that a client may ask for. Numbers and ids; never a word of a
// prompt or an answer. Filled on the thread of its listener: a net thread, or gRPC's loop.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "telemetry/trace_context.h"

namespace pelton::access {

// When a generation came how far, on its engine's clock; 0: never.
struct GenerationTimes {
  int64_t queued_ns = 0;
  int64_t scheduled_ns = 0;
  int64_t first_token_ns = 0;
  int64_t last_token_ns = 0;
};

// Over all answers of one generation: the first beginning, the last end.
struct GenerationFacts {
  int answers = 0;
  int cut_answers = 0;  // of them: ended by their length
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;  // of the answer that found least: that one had it computed
  int64_t output_tokens = 0;
  // Speculation: guesses, those that were right, and rows with guesses by how many were.
  int64_t draft_tokens = 0;
  int64_t accepted_draft_tokens = 0;
  std::vector<int64_t> drafts;
  GenerationTimes times;
};

// http.request.method of a request whose method is none that is known.
inline constexpr std::string_view kOtherMethod = "_OTHER";

// What a request asked of its sampling, as far as OpenTelemetry's conventions name it: numbers
// only, as stop strings are the caller's words.
struct SamplingAsked {
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<int> top_k;
  std::optional<int64_t> max_tokens;
  std::optional<uint64_t> seed;
  double frequency_penalty = 0;
  double presence_penalty = 0;
  int choices = 1;
  bool json = false;              // the answer must be JSON
  std::optional<int> dimensions;  // of embeddings
};

struct RequestRecord {
  std::string_view method;   // constants: a route's
  std::string_view handler;  // "/v1/models/*"; "none" where nothing fits
  // By HTTP: "GET"; "_OTHER" where it is none that is known. Empty: it came otherwise.
  std::string_view http_method;
  std::string path;  // as asked for, at most 200 bytes, without the query
  std::string remote;
  std::string request_id;
  std::string tenant;
  std::string model;    // that was served; empty: none was asked
  std::string adapter;  // the digest of its LoRA adapter; empty: the model itself
  int64_t request_bytes = 0;
  int64_t arrived_ns = 0;
  int64_t arrived_unix_ms = 0;
  int64_t ended_ns = 0;
  int status = 0;
  int64_t compile_began_ns =
      0;  // of its output format, from being queued on; 0: nothing to compile
  int64_t compile_ended_ns = 0;
  SamplingAsked asked;
  GenerationFacts generation;
  telemetry::TraceContext trace;  // span_id: this request's own
  uint64_t trace_parent = 0;      // the caller's span; 0: none
  bool traced = false;
};

}  // namespace pelton::access
