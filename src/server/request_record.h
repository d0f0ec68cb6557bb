// What is known of one request (HTTP, gRPC, a WebSocket's turn) when it is over: for the access
// log, the trace, and the timings that a client may ask for. Numbers and ids; never a word of a
// prompt or an answer. Filled on the thread of its door: a net thread, or gRPC's loop.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "api/answer_extras.h"
#include "api/generation_fields.h"
#include "engine/token_stream.h"
#include "telemetry/trace_context.h"

namespace pelton::server {

// Over all answers of one generation: the first beginning, the last end. Times are the engine's.
struct GenerationFacts {
  int answers = 0;
  int cut_answers = 0;  // of them: ended by their length
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;  // of the answer that found least: that one had it computed
  int64_t output_tokens = 0;
  engine::RequestTimes times;

  void add(const engine::StreamEnd& end) {
    const auto earlier = [](int64_t& time, int64_t other) {
      if (other != 0) time = time == 0 ? other : std::min(time, other);
    };
    cached_tokens =
        answers == 0 ? end.cached_tokens : std::min<int64_t>(cached_tokens, end.cached_tokens);
    ++answers;
    if (end.reason == engine::FinishReason::kLength) ++cut_answers;
    prompt_tokens = std::max<int64_t>(prompt_tokens, end.prompt_tokens);
    output_tokens += end.output_tokens;
    earlier(times.queued_ns, end.times.queued_ns);
    earlier(times.seated_ns, end.times.seated_ns);
    earlier(times.first_token_ns, end.times.first_token_ns);
    times.last_token_ns = std::max(times.last_token_ns, end.times.last_token_ns);
  }
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

SamplingAsked sampling_asked(const api::GenerationFields& fields);

api::Timings timings_of(const GenerationFacts& facts);

struct RequestRecord {
  std::string_view method;   // constants: a route's
  std::string_view handler;  // "/v1/models/*"; "none" where nothing fits
  // By HTTP: "GET"; "_OTHER" where it is none that is known. Empty: it came otherwise.
  std::string_view http_method;
  std::string path;  // as asked for, at most 200 bytes, without the query
  std::string remote;
  std::string request_id;
  std::string tenant;
  std::string model;  // that was served; empty: none was asked
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

}  // namespace pelton::server
