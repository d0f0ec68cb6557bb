#include "autoscaler/prefill_decode.h"

#include <algorithm>
#include <limits>

namespace pelton::autoscaler {
namespace {

constexpr double kUsed = 0.85;      // of the highest rate that replicas bear
constexpr double kUsedToGo = 0.70;  // before some go

// The first token comes with the prompt's last step.
RequestShape of_prompts(RequestShape shape) {
  shape.output = 0;
  return shape;
}

RequestShape of_tokens(RequestShape shape) {
  shape.computed = 0;
  shape.computed_at_percentile = 0;
  return shape;
}

SloObjective first_tokens(const SloObjective& objective) {
  return {
      .first_token_s = objective.first_token_s, .gap_s = {}, .percentile = objective.percentile};
}

SloObjective gaps(const SloObjective& objective) {
  return {.first_token_s = {}, .gap_s = objective.gap_s, .percentile = objective.percentile};
}

}  // namespace

// What each pool bears, and the decode pool alone.
struct PairScaler::Pools {
  Pools(const PairModel& model, const RequestShape& shape, const SloObjective& objective)
      : asked(objective),
        prefill(model.prefill, of_prompts(shape), first_tokens(objective)),
        decode(model.decode, of_tokens(shape), gaps(objective)),
        whole(model.decode, shape, objective) {}

  // Over the objective; of one that does not keep up its replicas too few, as a factor.
  static double late(const SloCapacity& pool, double rate, int replicas,
                     double SloCapacity::Forecast::*seconds, const std::optional<double>& asked) {
    if (rate <= 0) return 0;
    if (replicas < 1) return std::numeric_limits<double>::infinity();
    const SloCapacity::Forecast forecast = pool.at(rate, replicas);
    if (forecast.is_stable) return asked ? forecast.*seconds / *asked : 0;
    int few = replicas;
    int enough = replicas;
    while (enough < (1 << 24) && !pool.at(rate, enough).is_stable) {
      few = enough;
      enough *= 2;
    }
    while (enough - few > 1) {
      const int middle = few + (enough - few) / 2;
      (pool.at(rate, middle).is_stable ? enough : few) = middle;
    }
    return PairDecision::kOverloaded * enough / replicas;
  }
  double first_token_late(double rate, const PairCounts& counts) const {
    const bool is_whole = counts.prefill == 0;
    return late(is_whole ? whole : prefill, rate, is_whole ? counts.decode : counts.prefill,
                &SloCapacity::Forecast::first_token_at_percentile_s, asked.first_token_s);
  }
  double gap_late(double rate, const PairCounts& counts) const {
    return late(counts.prefill == 0 ? whole : decode, rate, counts.decode,
                &SloCapacity::Forecast::gap_at_percentile_s, asked.gap_s);
  }
  double worst(double rate, const PairCounts& counts) const {
    return std::max(first_token_late(rate, counts), gap_late(rate, counts));
  }

  SloObjective asked;
  SloCapacity prefill;
  SloCapacity decode;
  SloCapacity whole;
};

// Two pools; how many each needs.
PairCounts PairScaler::needed(const Pools& pools, double rate, double used) const {
  if (rate <= 0) return {.prefill = policy_.prefill_min, .decode = policy_.decode_min};
  const int prefill = pools.prefill.least(rate / used, policy_.prefill_max);
  const int decode = pools.decode.least(rate / used, policy_.decode_max);
  return {.prefill = std::max(prefill, policy_.prefill_min),
          .decode = std::max(decode, policy_.decode_min)};
}

// With each further prefill replica first tokens come earlier and gaps grow longer: the best is
// where the two cross, or one beside it.
PairCounts PairScaler::within_ceiling(const Pools& pools, double rate, PairCounts needed) const {
  const auto with = [&](int prefill) {
    const int rest = policy_.gpus_max - prefill * policy_.prefill_gpus;
    return PairCounts{.prefill = prefill,
                      .decode = std::clamp(rest / policy_.decode_gpus, 0, policy_.decode_max)};
  };
  if (needed.prefill == 0) return with(0);
  const int rest = policy_.gpus_max - std::max(policy_.decode_min, 1) * policy_.decode_gpus;
  int most = std::min(policy_.prefill_max, rest / policy_.prefill_gpus);
  int least = std::min(std::max(policy_.prefill_min, 1), most);
  while (most - least > 1) {
    const int middle = least + (most - least) / 2;
    const PairCounts counts = with(middle);
    (pools.first_token_late(rate, counts) > pools.gap_late(rate, counts) ? least : most) = middle;
  }
  const auto worst = [&](int prefill) { return pools.worst(rate, with(prefill)); };
  if (most < 1) return with(0);  // there is no room for two
  return with(worst(least) <= worst(most) ? least : most);
}

// Where one pool would grow by what the other one loses, a split that is no better moves nobody.
PairCounts PairScaler::at_ceiling(const Pools& pools, double rate, PairCounts needed) const {
  const PairCounts split = within_ceiling(pools, rate, needed);
  const bool opposes = (split.prefill - counts_.prefill) * (split.decode - counts_.decode) < 0;
  const bool is_worse = pools.worst(rate, split) < pools.worst(rate, counts_);
  return opposes && !is_worse && gpus(counts_) <= policy_.gpus_max ? counts_ : split;
}

PairDecision PairScaler::decide(const PairModel& model, const RequestShape& shape, double rate,
                                int64_t now_ns) {
  const Pools pools(model, shape, policy_.objective);
  const auto delay_ns = static_cast<int64_t>(policy_.scale_down_delay_s * 1e9);
  const auto whole_of = [&](double used) {
    const int replicas = rate > 0 ? pools.whole.least(rate / used, policy_.decode_max + 1) : 0;
    return PairCounts{.prefill = 0, .decode = std::max(replicas, policy_.decode_min)};
  };
  const auto serves_whole = [&](const PairCounts& whole, const PairCounts& two) {
    return whole.decode <= policy_.decode_max && gpus(whole) <= gpus(two);
  };
  PairDecision decision;
  decision.needed = needed(pools, rate, kUsed);
  PairCounts lasting = needed(pools, rate, kUsedToGo);
  // One pool or two: two at once where one needs more, one when that has been enough for the delay.
  if (policy_.prefill_min == 0) {
    const bool is_enough = serves_whole(whole_of(kUsedToGo), lasting);
    if (!is_enough) whole_since_ns_ = -1;
    if (is_enough && whole_since_ns_ < 0) whole_since_ns_ = now_ns;
    if (!serves_whole(whole_of(kUsed), decision.needed)) is_split_ = true;
    const bool is_new = counts_ == PairCounts{};
    if (is_enough && (is_new || now_ns - whole_since_ns_ >= delay_ns)) is_split_ = false;
    if (!is_split_) {
      decision.needed = whole_of(kUsed);
      lasting = whole_of(kUsedToGo);
    }
  }
  PairCounts target = {
      .prefill = std::max(
          decision.needed.prefill,
          std::min(counts_.prefill, prefill_over_delay_.note(lasting.prefill, now_ns, delay_ns))),
      .decode = std::max(
          decision.needed.decode,
          std::min(counts_.decode, decode_over_delay_.note(lasting.decode, now_ns, delay_ns)))};
  if (gpus(target) > policy_.gpus_max) {
    // What the delay keeps is not worth lateness elsewhere.
    target = decision.needed;
    decision.at_ceiling = gpus(target) > policy_.gpus_max;
    if (decision.at_ceiling) target = at_ceiling(pools, rate, target);
  }
  counts_ = target;
  decision.counts = target;
  decision.first_token_late = pools.first_token_late(rate, target);
  decision.gap_late = pools.gap_late(rate, target);
  return decision;
}

void PairScaler::save(base::JsonWriter& w) const {
  w.begin_object().key("prefill").integer(counts_.prefill).key("decode").integer(counts_.decode);
  w.key("prefill_over_delay");
  prefill_over_delay_.save(w);
  w.key("decode_over_delay");
  decode_over_delay_.save(w);
  w.key("is_split").boolean(is_split_).key("whole_since_ns").integer(whole_since_ns_).end_object();
}

void PairScaler::load(const StateReader& state) {
  counts_ = {.prefill = state.count("prefill"), .decode = state.count("decode")};
  prefill_over_delay_.load(state.at("prefill_over_delay"));
  decode_over_delay_.load(state.at("decode_over_delay"));
  is_split_ = state.boolean("is_split");
  whole_since_ns_ = state.time("whole_since_ns");
}

}  // namespace pelton::autoscaler
