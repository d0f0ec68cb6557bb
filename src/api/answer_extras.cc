#include "api/answer_extras.h"

#include <numeric>

namespace pelton::api {
namespace {

double per_second(int64_t count, double ms) {
  return ms > 0 ? static_cast<double>(count) * 1000.0 / ms : 0.0;
}

double per_token_ms(int64_t count, double ms) {
  return count > 0 ? ms / static_cast<double>(count) : 0.0;
}

void write_drafts(base::JsonWriter& writer, const Timings& timings) {
  const int64_t rows = std::accumulate(timings.drafts.begin(), timings.drafts.end(), int64_t{0});
  writer.key("draft_n").integer(timings.draft_tokens);
  writer.key("draft_n_accepted").integer(timings.accepted_draft_tokens);
  writer.key("draft_mean_length");
  writer.number(1 + static_cast<double>(timings.accepted_draft_tokens) / static_cast<double>(rows));
  writer.key("draft_accepted_histogram").begin_array();
  for (const int64_t count : timings.drafts) writer.integer(count);
  writer.end_array();
}

}  // namespace

void write_stop_reason(base::JsonWriter& writer, const StopReason& reason) {
  if (const auto* text = std::get_if<std::string>(&reason)) {
    writer.string(*text);
  } else if (const auto* token = std::get_if<TokenId>(&reason)) {
    writer.integer(*token);
  } else {
    writer.null();
  }
}

void write_token_ids(base::JsonWriter& writer, std::span<const TokenId> tokens) {
  writer.begin_array();
  for (const TokenId token : tokens) writer.integer(token);
  writer.end_array();
}

void write_timings(base::JsonWriter& writer, const Timings& timings) {
  const int64_t computed = timings.prompt_tokens - timings.cached_tokens;
  // The first token is the prompt's; the others were decoded one after the other.
  const int64_t decoded = timings.output_tokens > 0 ? timings.output_tokens - 1 : 0;
  writer.begin_object().key("queue_ms").number(timings.queue_ms);
  writer.key("prefill_ms").number(timings.prefill_ms);
  writer.key("decode_ms").number(timings.decode_ms);
  writer.key("cache_n").integer(timings.cached_tokens);
  writer.key("prompt_n").integer(computed);
  writer.key("prompt_ms").number(timings.prefill_ms);
  writer.key("prompt_per_token_ms").number(per_token_ms(computed, timings.prefill_ms));
  writer.key("prompt_per_second").number(per_second(computed, timings.prefill_ms));
  writer.key("predicted_n").integer(timings.output_tokens);
  writer.key("predicted_ms").number(timings.decode_ms);
  writer.key("predicted_per_token_ms").number(per_token_ms(decoded, timings.decode_ms));
  writer.key("predicted_per_second").number(per_second(decoded, timings.decode_ms));
  if (!timings.drafts.empty()) write_drafts(writer, timings);
  writer.end_object();
}

void end_last_event(std::string& out, const Usage* usage, const Timings* timings) {
  if (usage != nullptr) {
    out += ",\"usage\":";
    base::JsonWriter writer(out);
    write_usage(writer, *usage);
  }
  if (timings != nullptr) {
    out += ",\"timings\":";
    base::JsonWriter writer(out);
    write_timings(writer, *timings);
  }
  out += '}';
}

}  // namespace pelton::api
