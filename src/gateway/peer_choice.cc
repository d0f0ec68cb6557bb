#include "gateway/peer_choice.h"

#include <algorithm>

namespace pelton::gateway {
namespace {

constexpr int64_t kPeerTokensMin = 64;  // less is computed sooner than asked for
constexpr double kNewestShare = 0.2;    // of the newest hand-over in the average

}  // namespace

std::optional<PrefixSource> choose_peer(const PeersAsked& asked) {
  int64_t most = asked.chosen_hit + (asked.is_split ? 0 : kPeerTokensMin - 1);
  std::optional<PrefixSource> source;
  for (size_t i = 0; i < asked.hits.size(); ++i) {
    if (i == asked.chosen || asked.hits[i] <= most) continue;
    most = asked.hits[i];
    source = {.worker = i, .tokens = most};
  }
  return source;
}

void FetchPace::note(double seconds, double step_s, int64_t fetched_tokens) {
  if (fetched_tokens < 1 || !(seconds > 0)) return;
  const double each_s = std::max(seconds - step_s, 0.0) / static_cast<double>(fetched_tokens);
  if (!token_s_) token_s_ = each_s;
  *token_s_ += kNewestShare * (each_s - *token_s_);
}

}  // namespace pelton::gateway
