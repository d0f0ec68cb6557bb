#include "gateway/split_choice.h"

#include <algorithm>
#include <vector>

#include "base/random.h"

namespace pelton::gateway {
namespace {

constexpr size_t kBestOfEach = 4;
// An answer that is moved costs work at both, of which the sum has only what the request waits for:
// modelled pools lose where what is left is not so many times as long.
constexpr double kWorthLeaving = 1.4;
constexpr double kStepMinS = 1e-6;  // a step takes some time, whatever is reported

double biased(double seconds, double bias) {
  return seconds * std::clamp(bias, kBiasMin, kBiasMax);
}

// What d finds is what lies there, and what it fetches.
CostCandidate with_fetched(const SplitRequest& request, const CostCandidate& decode) {
  CostCandidate one = decode;
  one.fetch_tokens = 0;
  one.hit_tokens = std::max(decode.hit_tokens, request.block_tokens);
  return one;
}

CostRequest prompt_of(const SplitRequest& request) {
  return {.prompt_tokens = request.request.prompt_tokens, .output_tokens = 1};
}

double cost_as_prefill(const SplitRequest& request, const CostCandidate& one) {
  return cost_of(prompt_of(request), one).total_s;
}

double cost_as_decode(const SplitRequest& request, const CostCandidate& one) {
  const CostTerms terms = cost_of(request.request, with_fetched(request, one));
  return biased(terms.rest_s, one.rest_bias) + terms.harm_s + terms.room_s + terms.wait_s;
}

// The places of the four cheapest.
template <typename Cost>
std::vector<size_t> best_of(std::span<const CostCandidate> all, const Cost& cost) {
  struct Priced {
    double cost_s = 0;
    size_t place = 0;
  };
  const double reach_s = reach_of(all);
  std::vector<Priced> priced;
  for (size_t i = 0; i < all.size(); ++i) {
    if (!all[i].usable || all[i].distance_s > reach_s) continue;
    priced.push_back({.cost_s = cost(all[i]), .place = i});
  }
  const size_t count = std::min(kBestOfEach, priced.size());
  std::ranges::partial_sort(priced, priced.begin() + static_cast<std::ptrdiff_t>(count), {},
                            &Priced::cost_s);
  std::vector<size_t> best;
  for (size_t i = 0; i < count; ++i) best.push_back(priced[i].place);
  return best;
}

std::vector<SplitPair> pairs_of(const SplitRequest& request, const SplitSides& sides) {
  const std::vector<size_t> prefills = best_of(
      sides.prefill, [&](const CostCandidate& one) { return cost_as_prefill(request, one); });
  const std::vector<size_t> decodes =
      best_of(sides.decode, [&](const CostCandidate& one) { return cost_as_decode(request, one); });
  std::vector<SplitPair> pairs;
  for (const size_t p : prefills) {
    for (const size_t d : decodes) {
      if (p == d || sides.exchange[p] == 0 || sides.exchange[p] != sides.exchange[d]) continue;
      SplitRequest between = request;
      if (sides.fetch_token_s) between.fetch_token_s = sides.fetch_token_s(p, d);
      pairs.push_back({.prefill = p,
                       .decode = d,
                       .terms = cost_of(between, sides.prefill[p], sides.decode[d])});
    }
  }
  return pairs;
}

}  // namespace

SplitTerms cost_of(const SplitRequest& request, const CostCandidate& prefill,
                   const CostCandidate& decode) {
  const CostTerms p = cost_of(prompt_of(request), prefill);
  const CostCandidate warm = with_fetched(request, decode);
  const CostTerms d = cost_of(request.request, warm);
  const int64_t fetched = warm.hit_tokens - std::min(decode.hit_tokens, warm.hit_tokens);
  const double fetch_token_s = request.fetch_token_s.value_or(decode.costs.prefill_token_s);
  const auto further = static_cast<double>(std::max<int64_t>(request.request.output_tokens, 1) - 1);
  SplitTerms terms;
  terms.first_s = biased(p.first_s, prefill.bias);
  // d's first: its way, what waits there, what no block has, and a step.
  terms.over_s = d.first_s + static_cast<double>(fetched) * fetch_token_s;
  const bool is_warm = request.handoff == SplitConfig::Handoff::kWarm;
  const double meanwhile =
      is_warm ? std::min(terms.over_s / std::max(p.token_s, kStepMinS), further) : 0.0;
  terms.rest_s = meanwhile * biased(p.token_s, prefill.rest_bias) +
                 (further - meanwhile) * biased(d.token_s, decode.rest_bias);
  if (further > meanwhile) terms.rest_s += is_warm ? decode.distance_s + d.step_s : terms.over_s;
  // Its rows are p's until then, and d's from then on: cost_of(d) has them for all of the answer.
  terms.harm_s = p.harm_s + prefill.rows * prefill.costs.row_s * meanwhile + d.harm_s -
                 decode.rows * decode.costs.row_s * meanwhile;
  terms.room_s = p.room_s + d.room_s;
  terms.total_s = terms.first_s + terms.rest_s + terms.harm_s + terms.room_s +
                  prefill.pushed_out_s + decode.pushed_out_s;
  return terms;
}

std::optional<SplitPair> choose_pair(const SplitRequest& request, const SplitSides& sides,
                                     uint64_t draw) {
  std::vector<SplitPair> pairs = pairs_of(request, sides);
  if (pairs.empty()) return std::nullopt;
  const double least_s = std::ranges::min_element(pairs, {}, [](const SplitPair& one) {
                           return one.terms.total_s;
                         })->terms.total_s;
  std::erase_if(pairs, [&](const SplitPair& one) {
    return one.terms.total_s > least_s + equal_within_s(least_s);
  });
  return pairs[base::random_bits(draw, 2) % pairs.size()];
}

bool is_split(SplitConfig::Mode mode, const SplitPair& pair, const CostRequest& request,
              const CostCandidate* whole) {
  if (mode == SplitConfig::Mode::kOff) return false;
  return mode == SplitConfig::Mode::kAlways || whole == nullptr ||
         pair.terms.total_s < cost_of(request, *whole).total_s;
}

bool is_left(const SplitRequest& request, const CostCandidate& prefill,
             const CostCandidate& decode) {
  const auto further = static_cast<double>(std::max<int64_t>(request.request.output_tokens, 1) - 1);
  if (further < 1) return false;
  const CostTerms p = cost_of(request.request, with_fetched(request, prefill));
  const CostCandidate warm = with_fetched(request, decode);
  const CostTerms d = cost_of(request.request, warm);
  const int64_t fetched = warm.hit_tokens - std::min(decode.hit_tokens, warm.hit_tokens);
  const double fetch_token_s = request.fetch_token_s.value_or(decode.costs.prefill_token_s);
  const double waiting_s = static_cast<double>(prefill.waiting_tokens + prefill.uncounted_tokens) *
                           prefill.costs.prefill_token_s;
  const double said_s =
      further * biased(p.token_s, prefill.rest_bias) + prefill.interference * waiting_s;
  const double stay_s = said_s + prefill.rows * prefill.costs.row_s * further;
  const double over_s = d.first_s + static_cast<double>(fetched) * fetch_token_s;
  const double meanwhile = std::min(over_s * further / std::max(said_s, kStepMinS), further);
  const double go_s = meanwhile * said_s / further +
                      (further - meanwhile) * biased(d.token_s, decode.rest_bias) +
                      decode.distance_s + d.step_s + d.harm_s + d.room_s - p.room_s;
  return go_s * kWorthLeaving < stay_s;
}

}  // namespace pelton::gateway
