#include "sampling/distribution_cuts.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "sampling/draw_numbers.h"

namespace pelton::sampling {
namespace {

using kernels::Mass;

Mass mass_of(std::span<const Weighted> tokens) {
  Mass sum = 0;
  for (const Weighted& token : tokens) sum += token.weight;
  return sum;
}

double surprise(const Weighted& token, Mass total) {
  return std::log(static_cast<double>(total)) - std::log(static_cast<double>(token.weight));
}

// In nats.
double entropy(std::span<const Weighted> tokens, Mass total) {
  double sum = 0;
  for (const Weighted& token : tokens) {
    sum += static_cast<double>(token.weight) / static_cast<double>(total) * surprise(token, total);
  }
  return sum;
}

// How many of the first tokens have at least `share` of the mass; at least one.
size_t front_of(std::span<const Weighted> tokens, double share) {
  const double needed = share * static_cast<double>(mass_of(tokens));
  double sum = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    sum += static_cast<double>(tokens[i].weight);
    if (sum >= needed) return i + 1;
  }
  return tokens.size();
}

// Not masked, nor as unlikely as a number can be, which stands for it.
bool counts(float logit) {
  return logit > -std::numeric_limits<float>::max() && std::isfinite(logit);
}

bool by_rank(const Weighted& a, const Weighted& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
}

}  // namespace

void keep_typical(std::vector<Weighted>& ranked, double share) {
  const Mass total = mass_of(ranked);
  const double expected = entropy(ranked, total);
  const auto distance = [&](const Weighted& token) {
    return std::abs(surprise(token, total) - expected);
  };
  std::stable_sort(ranked.begin(), ranked.end(),
                   [&](const Weighted& a, const Weighted& b) { return distance(a) < distance(b); });
  ranked.resize(front_of(ranked, share));
  std::sort(ranked.begin(), ranked.end(), by_rank);
}

void keep_share(std::vector<Weighted>& ranked, float share) {
  ranked.resize(front_of(ranked, share));
}

void keep_above(std::vector<Weighted>& ranked, float share) {
  const double least = double{share} * static_cast<double>(ranked.front().weight);
  std::erase_if(ranked,
                [&](const Weighted& token) { return static_cast<double>(token.weight) < least; });
}

void keep_unsurprising(std::vector<Weighted>& ranked, double bits) {
  const double least = std::exp2(-bits) * static_cast<double>(mass_of(ranked));
  const auto below = std::find_if(ranked.begin() + 1, ranked.end(), [&](const Weighted& token) {
    return static_cast<double>(token.weight) < least;
  });
  ranked.erase(below, ranked.end());
}

float surprise_of(std::span<const Weighted> tokens, TokenId token) {
  const auto found = std::ranges::find(tokens, token, &Weighted::token);
  return static_cast<float>(surprise(*found, mass_of(tokens)) / std::log(2.0));
}

void exclude_top_choices(std::vector<Weighted>& ranked, float threshold) {
  const double least = double{threshold} * static_cast<double>(mass_of(ranked));
  const auto below = std::find_if(ranked.begin(), ranked.end(), [&](const Weighted& token) {
    return static_cast<double>(token.weight) < least;
  });
  const auto viable = below - ranked.begin();
  if (viable > 1) ranked.erase(ranked.begin(), ranked.begin() + (viable - 1));
}

float sigma_floor(std::span<const float> logits, float highest, float n) {
  double sum = 0;
  size_t count = 0;
  for (const float logit : logits) {
    if (!counts(logit)) continue;
    sum += logit;
    ++count;
  }
  if (count == 0) return highest;
  const double mean = sum / static_cast<double>(count);
  double squares = 0;
  for (const float logit : logits) {
    if (counts(logit)) squares += (logit - mean) * (logit - mean);
  }
  const double sigma = std::sqrt(squares / static_cast<double>(count));
  return static_cast<float>(highest - double{n} * sigma);
}

double dynamic_temperature(std::span<const Weighted> ranked, size_t count,
                           const request::SamplingParams& params) {
  const double low = std::max(0.0, double{params.temperature} - params.dynatemp_range);
  const double high = double{params.temperature} + params.dynatemp_range;
  if (count < 2) return params.temperature;
  const double most = std::log(static_cast<double>(count));
  const double share = std::clamp(entropy(ranked, mass_of(ranked)) / most, 0.0, 1.0);
  return low + (high - low) * std::pow(share, double{params.dynatemp_exponent});
}

}  // namespace pelton::sampling
