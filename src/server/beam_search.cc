#include "server/beam_search.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace pelton::server {
BeamSearch::BeamSearch(Options options) : options_(std::move(options)) {
  CHECK(options_.width >= 1 && options_.tokens_max >= 1);
}

int BeamSearch::alternatives() const {
  return options_.width + std::max(options_.width, static_cast<int>(options_.stops.size()));
}

double BeamSearch::score_of(double logprob, size_t output_tokens) const {
  const size_t length = static_cast<size_t>(options_.prompt_tokens) + output_tokens;
  return logprob /
         std::pow(static_cast<double>(std::max<size_t>(length, 1)), options_.length_penalty);
}

double BeamSearch::score(const Beam& beam) const {
  return score_of(beam.logprob, beam.tokens.size() - (beam.stopped ? 1 : 0));
}

// Of equals the one that was found first stays before the other, so that ties are not left to the
// sort.
void BeamSearch::extend(std::span<const Next> next) {
  CHECK(next.size() == live_.size(), "each live beam is extended");
  struct Candidate {
    size_t beam = 0;
    std::pair<TokenId, float> token;
    double logprob = 0.0;
  };
  std::vector<Candidate> candidates;
  const auto extended = [&](const Candidate& by) {
    Beam beam = live_[by.beam];
    beam.tokens.push_back(
        {.token = by.token.first, .logprob = by.token.second, .top = next[by.beam]});
    beam.logprob = by.logprob;
    return beam;
  };
  std::vector<Beam> stopped;
  for (size_t i = 0; i < live_.size(); ++i) {
    for (const auto& token : next[i]) {
      const Candidate candidate{
          .beam = i, .token = token, .logprob = live_[i].logprob + double{token.second}};
      if (std::ranges::find(options_.stops, token.first) == options_.stops.end()) {
        candidates.push_back(candidate);
      } else {
        stopped.push_back(extended(candidate));
        stopped.back().stopped = true;
      }
    }
  }
  std::ranges::stable_sort(candidates, std::ranges::greater(), &Candidate::logprob);
  if (candidates.size() > static_cast<size_t>(options_.width)) {
    candidates.resize(static_cast<size_t>(options_.width));
  }
  std::vector<Beam> live;
  for (const Candidate& candidate : candidates) live.push_back(extended(candidate));
  live_ = std::move(live);
  for (Beam& beam : stopped) finish(std::move(beam));
  const bool is_full_length =
      !live_.empty() && std::ssize(live_.front().tokens) >= options_.tokens_max;
  if (is_full_length) {
    for (Beam& beam : live_) finish(std::move(beam));
  }
  if (is_full_length || is_settled()) live_.clear();
}

// A live beam's probability only falls, so its score is at most what it would be if it fell no
// more, at the length that favours it most: the longest where length is rewarded, else its own,
// which a stop token does not add to.
bool BeamSearch::is_settled() const {
  if (live_.empty() || std::ssize(ended_) < options_.width) return false;
  if (options_.early_stopping) return true;
  const size_t length = options_.length_penalty > 0.0 ? static_cast<size_t>(options_.tokens_max)
                                                      : live_.front().tokens.size();
  // All are of one length, and the first is the likeliest.
  return score_of(live_.front().logprob, length) <= score(ended_.back());
}

void BeamSearch::finish(Beam beam) {
  const double own = score(beam);
  const auto place =
      std::ranges::find_if(ended_, [&](const Beam& other) { return score(other) < own; });
  ended_.insert(place, std::move(beam));
  if (std::ssize(ended_) > options_.width) ended_.pop_back();
}

std::vector<Beam> BeamSearch::best(size_t count) const {
  CHECK(live_.empty(), "the search is over");
  return {ended_.begin(),
          ended_.begin() + static_cast<std::ptrdiff_t>(std::min(count, ended_.size()))};
}

}  // namespace pelton::server
