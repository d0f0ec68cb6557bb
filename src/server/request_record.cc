#include "server/request_record.h"

namespace pelton::server {
namespace {

double ms_between(int64_t begin_ns, int64_t end_ns) {
  return begin_ns == 0 || end_ns == 0 ? 0.0 : static_cast<double>(end_ns - begin_ns) * 1e-6;
}

}  // namespace

SamplingAsked sampling_asked(const api::GenerationFields& fields) {
  using Kind = api::OutputFormat::Kind;
  const bool json = fields.format && (fields.format->kind == Kind::kJsonObject ||
                                      fields.format->kind == Kind::kJsonSchema);
  return {.temperature = fields.temperature,
          .top_p = fields.top_p,
          .top_k = fields.top_k,
          .max_tokens = fields.max_tokens,
          .seed = fields.seed,
          .frequency_penalty = fields.frequency_penalty,
          .presence_penalty = fields.presence_penalty,
          .choices = fields.n,
          .json = json,
          .dimensions = {}};
}

api::Timings timings_of(const GenerationFacts& facts) {
  const engine::RequestTimes& times = facts.times;
  return {.queue_ms = ms_between(times.queued_ns, times.seated_ns),
          .prefill_ms = ms_between(times.seated_ns, times.first_token_ns),
          .decode_ms = ms_between(times.first_token_ns, times.last_token_ns),
          .prompt_tokens = facts.prompt_tokens,
          .cached_tokens = facts.cached_tokens,
          .output_tokens = facts.output_tokens};
}

}  // namespace pelton::server
