#include "gateway/peer_choice.h"

#include <algorithm>
#include <vector>

#include "base/random.h"

namespace pelton::gateway {
namespace {

constexpr int64_t kPeerTokensMin = 64;  // less is computed sooner than asked for
constexpr double kNewestShare = 0.2;    // of the newest hand-over in the average
// Fetching has to be so much quicker than computing, as workers have it (engine/peer_tier.cc).
constexpr double kWorthwhile = 0.8;
constexpr int64_t kLatelyNs = 60'000'000'000;

}  // namespace

namespace {

// Without those that save clearly less than the best one.
std::vector<int64_t> worthwhile_hits(const PeersAsked& asked) {
  constexpr double kAsGood = 0.98;
  const auto saved_s = [&](size_t i) {
    return static_cast<double>(asked.hits[i] - asked.chosen_hit) *
           (asked.compute_token_s - asked.fetch_token_s[i]);
  };
  std::vector<int64_t> hits(asked.hits.begin(), asked.hits.end());
  double most_s = 0;
  for (size_t i = 0; i < hits.size(); ++i) {
    if (i != asked.chosen && hits[i] > asked.chosen_hit) most_s = std::max(most_s, saved_s(i));
  }
  for (size_t i = 0; most_s > 0 && i < hits.size(); ++i) {
    if (saved_s(i) < kAsGood * most_s) hits[i] = 0;
  }
  return hits;
}

}  // namespace

std::optional<PrefixSource> choose_peer(const PeersAsked& given) {
  PeersAsked asked = given;
  std::vector<int64_t> hits;
  if (!asked.is_split && !asked.fetch_token_s.empty()) {
    hits = worthwhile_hits(asked);
    asked.hits = hits;
  }
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
  if (!asked.token_s && !asked.pair_token_s) return;
  for (size_t i = 0; i < candidates.size(); ++i) {
    CostCandidate& one = candidates[i];
    if (!one.usable || asked.exchange[i] == 0) continue;
    double most_s = 0;
    for (size_t j = 0; j < candidates.size(); ++j) {
      if (j == i || asked.exchange[j] != asked.exchange[i]) continue;
      if (asked.held[j] < one.hit_tokens + kPeerTokensMin) continue;
      const std::optional<double> token_s =
          asked.pair_token_s ? asked.pair_token_s(j, i) : asked.token_s;
      if (!token_s || *token_s > kWorthwhile * one.costs.prefill_token_s) continue;
      const int64_t tokens = asked.held[j] - one.hit_tokens;
      const double saved_s = static_cast<double>(tokens) * (one.costs.prefill_token_s - *token_s);
      if (saved_s <= most_s) continue;
      most_s = saved_s;
      one.fetch_tokens = tokens;
      one.fetch_token_s = *token_s;
    }
  }
}

void FetchPace::note(double seconds, double step_s, int64_t fetched_tokens) {
  if (fetched_tokens < 1 || !(seconds > 0)) return;
  const double each_s = std::max(seconds - step_s, 0.0) / static_cast<double>(fetched_tokens);
  if (!token_s_) token_s_ = each_s;
  *token_s_ += kNewestShare * (each_s - *token_s_);
}

void FetchPaces::note(int64_t now_ns, Link link, double seconds, double step_s,
                      int64_t fetched_tokens) {
  constexpr size_t kLinksMax = 65'536;
  if (fetched_tokens < 1 || !(seconds > 0)) return;
  all_.note(seconds, step_s, fetched_tokens);
  const std::pair key(link.from, link.to);
  if (links_.size() >= kLinksMax && !links_.contains(key)) links_.clear();
  Measured& one = links_[key];
  if (now_ns - one.at_ns > kLatelyNs) one.pace = {};
  one.pace.note(seconds, step_s, fetched_tokens);
  one.at_ns = now_ns;
}

std::optional<double> FetchPaces::token_s(int64_t now_ns, Link link) const {
  const auto found = links_.find({link.from, link.to});
  const bool is_known = found != links_.end() && now_ns - found->second.at_ns <= kLatelyNs;
  return is_known ? found->second.pace.token_s() : all_.token_s();
}

}  // namespace pelton::gateway
