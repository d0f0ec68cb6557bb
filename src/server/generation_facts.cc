#include "server/generation_facts.h"

#include <algorithm>

namespace pelton::server {
namespace {

double ms_between(int64_t begin_ns, int64_t end_ns) {
  return begin_ns == 0 || end_ns == 0 ? 0.0 : static_cast<double>(end_ns - begin_ns) * 1e-6;
}

// `time` or `other`, whichever came first; 0: never.
void keep_earlier(int64_t& time, int64_t other) {
  if (other != 0) time = time == 0 ? other : std::min(time, other);
}

}  // namespace

void add_answer(access::GenerationFacts& facts, const engine::StreamEnd& end) {
  facts.cached_tokens = facts.answers == 0
                            ? end.cached_tokens
                            : std::min<int64_t>(facts.cached_tokens, end.cached_tokens);
  ++facts.answers;
  if (end.reason == engine::FinishReason::kLength) ++facts.cut_answers;
  facts.prompt_tokens = std::max<int64_t>(facts.prompt_tokens, end.prompt_tokens);
  facts.output_tokens += end.output_tokens;
  facts.draft_tokens += end.draft_tokens;
  facts.accepted_draft_tokens += end.accepted_draft_tokens;
  facts.drafts.resize(std::max(facts.drafts.size(), end.drafts.size()));
  for (size_t i = 0; i < end.drafts.size(); ++i) facts.drafts[i] += end.drafts[i];
  access::GenerationTimes& times = facts.times;
  keep_earlier(times.queued_ns, end.times.queued_ns);
  keep_earlier(times.scheduled_ns, end.times.scheduled_ns);
  keep_earlier(times.first_token_ns, end.times.first_token_ns);
  times.last_token_ns = std::max(times.last_token_ns, end.times.last_token_ns);
}

void add_prompt(api::Usage& usage, const engine::StreamEnd& end) {
  const bool is_first = usage.prompt_tokens == 0;
  usage.prompt_tokens = end.prompt_tokens;
  if (!is_first && usage.cached_tokens <= end.cached_tokens) return;
  usage.cached_tokens = end.cached_tokens;
  usage.cached_on_host_tokens = end.cached_by_tier[kv::kHost];
  usage.cached_on_disk_tokens = end.cached_by_tier[kv::kDisk];
  usage.cached_from_peer_tokens = end.cached_from_peer;
}

access::SamplingAsked sampling_asked(const api::GenerationFields& fields) {
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

api::Timings timings_of(const access::GenerationFacts& facts) {
  const access::GenerationTimes& times = facts.times;
  return {.queue_ms = ms_between(times.queued_ns, times.scheduled_ns),
          .prefill_ms = ms_between(times.scheduled_ns, times.first_token_ns),
          .decode_ms = ms_between(times.first_token_ns, times.last_token_ns),
          .prompt_tokens = facts.prompt_tokens,
          .cached_tokens = facts.cached_tokens,
          .output_tokens = facts.output_tokens,
          .draft_tokens = facts.draft_tokens,
          .accepted_draft_tokens = facts.accepted_draft_tokens,
          .drafts = facts.drafts};
}

}  // namespace pelton::server
