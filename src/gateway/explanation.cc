#include "gateway/explanation.h"

#include <algorithm>

#include "base/json_writer.h"

namespace pelton::gateway {
namespace {

void write_candidate(base::JsonWriter& w, const Fleet::Considered& one) {
  const CostCandidate& known = one.candidate;
  const CostTerms& terms = one.terms;
  w.begin_object().key("name").string(one.name).key("state").string(worker_state_name(one.state));
  w.key("usable").boolean(known.usable).key("reason").string(one.reason);
  w.key("region").string(one.region).key("role").string(worker_role_name(one.role));
  w.key("hit_tokens").integer(known.hit_tokens).key("running").integer(known.rows);
  w.key("waiting").integer(known.waiting).key("waiting_tokens").integer(known.waiting_tokens);
  w.key("uncounted").integer(known.uncounted);
  w.key("uncounted_tokens").integer(known.uncounted_tokens).key("kv_used").number(known.kv_used);
  w.key("distance_s").number(known.distance_s).key("has_room").boolean(has_room(known));
  w.key("costs").begin_object().key("fixed_s").number(known.costs.fixed_s);
  w.key("row_s").number(known.costs.row_s);
  w.key("context_token_s").number(known.costs.context_token_s);
  w.key("prefill_token_s").number(known.costs.prefill_token_s).end_object();
  w.key("fetch_tokens").integer(known.fetch_tokens);
  w.key("prompt_share").number(known.prompt_share);
  w.key("terms").begin_object().key("wait_s").number(terms.wait_s);
  w.key("fetch_s")
      .number(terms.fetch_s)
      .key("first_s")
      .number(terms.first_s)
      .key("rest_s")
      .number(terms.rest_s);
  w.key("harm_s").number(terms.harm_s).key("room_s").number(terms.room_s);
  w.key("adapter_s").number(terms.adapter_s);
  w.key("pushed_out_s").number(terms.pushed_out_s);
  w.key("far_s").number(terms.far_s).end_object();
  w.key("bias").number(std::clamp(known.bias, kBiasMin, kBiasMax));
  w.key("rest_bias").number(std::clamp(known.rest_bias, kBiasMin, kBiasMax));
  w.key("cost_s").number(terms.total_s);
  w.end_object();
}

void write_pair(base::JsonWriter& w, const Fleet::ConsideredPair& pair) {
  w.key("pair").begin_object().key("prefill").string(pair.prefill);
  w.key("decode").string(pair.decode).key("chosen").boolean(pair.chosen);
  w.key("terms").begin_object().key("first_s").number(pair.terms.first_s);
  w.key("over_s").number(pair.terms.over_s).key("rest_s").number(pair.terms.rest_s);
  w.key("harm_s").number(pair.terms.harm_s).key("room_s").number(pair.terms.room_s).end_object();
  w.key("cost_s").number(pair.terms.total_s).end_object();
}

}  // namespace

std::string explanation_body(const Explanation& explanation) {
  std::string body;
  base::JsonWriter w(body);
  w.begin_object().key("pool").string(explanation.pool);
  w.key("prompt_tokens").integer(explanation.prompt.tokens);
  w.key("blocks").integer(std::ssize(explanation.prompt.names));
  w.key("output_tokens").integer(explanation.output_tokens).key("chosen");
  const auto& workers = explanation.decision.workers;
  const auto chosen =
      std::ranges::find_if(workers, [](const Fleet::Considered& one) { return one.chosen; });
  chosen == workers.end() ? w.null() : w.string(chosen->name);
  w.key("candidates").begin_array();
  for (const Fleet::Considered& one : workers) write_candidate(w, one);
  w.end_array();
  if (explanation.decision.pair) write_pair(w, *explanation.decision.pair);
  w.end_object();
  return body;
}

}  // namespace pelton::gateway
