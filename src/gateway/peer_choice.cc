#include "gateway/peer_choice.h"

#include <algorithm>

#include "base/random.h"

namespace pelton::gateway {
namespace {

constexpr int64_t kPeerTokensMin = 64;  // less is computed sooner than asked for
constexpr double kNewestShare = 0.2;    // of the newest hand-over in the average
// Fetching has to be so much quicker than computing, as workers have it (engine/peer_tier.cc).
constexpr double kWorthwhile = 0.8;

}  // namespace

std::optional<PrefixSource> choose_peer(const PeersAsked& asked) {
  int64_t most = asked.chosen_hit + (asked.is_split ? 0 : kPeerTokensMin - 1);
  std::optional<PrefixSource> source;
  uint64_t equal = 0;  // that have as much
  for (size_t i = 0; i < asked.hits.size(); ++i) {
    if (i == asked.chosen || asked.hits[i] < most || (!source && asked.hits[i] == most)) continue;
    equal = asked.hits[i] > most ? 1 : equal + 1;
    const bool is_drawn = equal == 1 || base::random_bits(asked.draw, 3 + equal) % equal == 0;
    most = asked.hits[i];
    if (is_drawn) source = {.worker = i, .tokens = most};
  }
  return source;
}

void price_fetches(const FetchesAsked& asked, std::span<CostCandidate> candidates) {
  if (!asked.token_s) return;
  for (size_t i = 0; i < candidates.size(); ++i) {
    CostCandidate& one = candidates[i];
    if (!one.usable || asked.exchange[i] == 0) continue;
    if (*asked.token_s > kWorthwhile * one.costs.prefill_token_s) continue;
    int64_t most = 0;
    for (size_t j = 0; j < candidates.size(); ++j) {
      if (j != i && asked.exchange[j] == asked.exchange[i]) most = std::max(most, asked.held[j]);
    }
    if (most < one.hit_tokens + kPeerTokensMin) continue;
    one.fetch_tokens = most - one.hit_tokens;
    one.fetch_token_s = *asked.token_s;
  }
}

void FetchPace::note(double seconds, double step_s, int64_t fetched_tokens) {
  if (fetched_tokens < 1 || !(seconds > 0)) return;
  const double each_s = std::max(seconds - step_s, 0.0) / static_cast<double>(fetched_tokens);
  if (!token_s_) token_s_ = each_s;
  *token_s_ += kNewestShare * (each_s - *token_s_);
}

}  // namespace pelton::gateway
