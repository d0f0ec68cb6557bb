#include "gateway/cost_router.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/random.h"

namespace pelton::gateway {
namespace {

constexpr double kRoomS = 0.15;     // kappa
constexpr double kUsedMax = 0.999;  // beyond it the term has no meaning
constexpr double kRoomUsedMax = 0.9;
// Until an adapter has been loaded, which takes a thread's turn and a file: beyond what is taken
// for equal, however fast it was measured.
constexpr double kAdapterWaitMinS = 0.005;
constexpr double kEqualShare = 0.02;
// What computes prompts all the time still takes steps between them.
constexpr double kPromptShareMax = 0.9;
constexpr double kEqualS = 0.001;
// Beyond what generations of hardware, and regions' distances, make of it.
constexpr double kSickTimes = 4;

constexpr int kUnbalancedRequests = 64;
constexpr double kUnbalancedRatio = 1.5;
constexpr double kMatchMin = 0.3;

int load_of(const CostCandidate& candidate) {
  return candidate.rows + candidate.waiting + candidate.uncounted;
}

// With nothing else to do, and nothing known of the prompt.
double idle_s(const CostRequest& request, const CostCandidate& candidate) {
  const CostCandidate idle{.costs = candidate.costs,
                           .interference = candidate.interference,
                           .slots = candidate.slots,
                           .distance_s = candidate.distance_s,
                           .bias = candidate.bias,
                           .rest_bias = candidate.rest_bias};
  return cost_of(request, idle).total_s;
}

}  // namespace

CostTerms cost_of(const CostRequest& request, const CostCandidate& candidate) {
  const cluster::StepCosts& costs = candidate.costs;
  const int64_t hit = std::clamp<int64_t>(candidate.hit_tokens, 0, request.prompt_tokens);
  const int64_t fetched =
      std::clamp<int64_t>(candidate.fetch_tokens, 0, request.prompt_tokens - hit);
  const double computed = static_cast<double>(request.prompt_tokens - hit - fetched);
  const double output = static_cast<double>(std::max<int64_t>(request.output_tokens, 1));
  // Those that wait or are on their way decode beside it, if there are slots.
  const double rows = std::min(load_of(candidate), std::max(candidate.slots - 1, candidate.rows));
  const int64_t context_tokens =
      candidate.context_tokens + candidate.waiting_tokens + candidate.uncounted_tokens;
  const double step_s =
      costs.fixed_s + costs.row_s * (rows + 1) +
      costs.context_token_s * static_cast<double>(context_tokens + request.prompt_tokens);
  const double prefill_s = computed * costs.prefill_token_s;
  CostTerms terms;
  const double queue_s =
      static_cast<double>(candidate.waiting_tokens + candidate.uncounted_tokens) *
      costs.prefill_token_s;
  terms.wait_s = std::max(queue_s, candidate.slot_wait_s);
  terms.fetch_s = static_cast<double>(fetched) * candidate.fetch_token_s;
  terms.step_s = step_s;
  const double share = std::clamp(candidate.prompt_share, 0.0, kPromptShareMax);
  terms.token_s = step_s / (1 - candidate.interference * share);
  terms.adapter_s = candidate.adapter_s;
  terms.pushed_out_s = candidate.pushed_out_s;
  terms.far_s = candidate.far_s;
  terms.first_s = candidate.distance_s + candidate.adapter_s + terms.wait_s + terms.fetch_s +
                  prefill_s + step_s;
  terms.rest_s = (output - 1) * terms.token_s;
  terms.harm_s = candidate.rows * candidate.interference * prefill_s + rows * costs.row_s * output +
                 static_cast<double>(candidate.waiting + candidate.uncounted) * prefill_s;
  const double used = std::clamp(candidate.kv_used, 0.0, kUsedMax);
  terms.room_s = kRoomS * used / (1 - used);
  const double bias = std::clamp(candidate.bias, kBiasMin, kBiasMax);
  const double rest_bias = std::clamp(candidate.rest_bias, kBiasMin, kBiasMax);
  terms.total_s = bias * terms.first_s + rest_bias * terms.rest_s + terms.harm_s + terms.room_s +
                  terms.pushed_out_s + terms.far_s;
  return terms;
}

void PromptShare::note(int64_t now_ns, double seconds) {
  seconds_ = at(now_ns) * kFadesS + std::max(seconds, 0.0);
  at_ns_ = now_ns;
}

double PromptShare::at(int64_t now_ns) const {
  const double age_s = static_cast<double>(std::max<int64_t>(now_ns - at_ns_, 0)) * 1e-9;
  return seconds_ * std::exp(-age_s / kFadesS) / kFadesS;
}

void price(const AbsentAdapter& adapter, CostCandidate& candidate) {
  candidate.adapter_s = std::max(adapter.wait_s, kAdapterWaitMinS);
  const bool is_full = adapter.resident >= adapter.places;
  if (is_full) candidate.pushed_out_s = adapter.hits * candidate.adapter_s;
}

bool has_room(const CostCandidate& candidate) {
  return load_of(candidate) < candidate.slots && candidate.kv_used < kRoomUsedMax;
}

double reach_of(std::span<const CostCandidate> candidates) {
  double reach_s = std::numeric_limits<double>::infinity();
  for (const CostCandidate& candidate : candidates) {
    if (candidate.usable && has_room(candidate)) reach_s = std::min(reach_s, candidate.distance_s);
  }
  return reach_s;
}

bool is_sick(const CostRequest& request, const CostCandidate& candidate,
             const CostCandidate& other) {
  return idle_s(request, candidate) > kSickTimes * idle_s(request, other);
}

double equal_within_s(double cost_s) {
  return std::max(kEqualS, kEqualShare * cost_s);
}

std::optional<size_t> choose_by_cost(const CostRequest& request,
                                     std::span<const CostCandidate> candidates, uint64_t draw,
                                     std::vector<CostTerms>* explained) {
  std::vector<CostTerms> terms;
  terms.reserve(candidates.size());
  double least_s = -1;
  const double reach_s = reach_of(candidates);
  const auto is_asked = [&](const CostCandidate& candidate) {
    return candidate.usable && candidate.distance_s <= reach_s;
  };
  for (const CostCandidate& candidate : candidates) {
    terms.push_back(cost_of(request, candidate));
    if (!is_asked(candidate)) continue;
    least_s = least_s < 0 ? terms.back().total_s : std::min(least_s, terms.back().total_s);
  }
  std::vector<size_t> equal;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const double bound_s = least_s + equal_within_s(least_s);
    if (is_asked(candidates[i]) && terms[i].total_s <= bound_s) equal.push_back(i);
  }
  if (explained != nullptr) *explained = std::move(terms);
  if (equal.empty()) return std::nullopt;
  const size_t one = equal[base::random_bits(draw, 0) % equal.size()];
  const size_t other = equal[base::random_bits(draw, 1) % equal.size()];
  return candidates[other].uncounted < candidates[one].uncounted ? other : one;
}

std::optional<size_t> choose_by_threshold(const CostRequest& request,
                                          std::span<const CostCandidate> candidates) {
  std::optional<size_t> idle;
  std::optional<size_t> matching;
  int most = 0;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const CostCandidate& candidate = candidates[i];
    if (!candidate.usable) continue;
    most = std::max(most, load_of(candidate));
    if (!idle || load_of(candidate) < load_of(candidates[*idle])) idle = i;
    if (!matching || candidate.hit_tokens > candidates[*matching].hit_tokens) matching = i;
  }
  if (!idle) return std::nullopt;
  const int least = load_of(candidates[*idle]);
  const bool unbalanced = most - least > kUnbalancedRequests && most > kUnbalancedRatio * least;
  const double match = static_cast<double>(candidates[*matching].hit_tokens) /
                       static_cast<double>(std::max<int64_t>(request.prompt_tokens, 1));
  return !unbalanced && match > kMatchMin ? matching : idle;
}

}  // namespace pelton::gateway
