#include "gateway/sequential_evidence.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/random.h"

namespace pelton::gateway {
namespace {

// How likely each count of failures of the candidate is among `failed` of a block, were its odds
// `ratio` times the others': Fisher's noncentral hypergeometric distribution. Logarithm of the
// chance of `seen`.
struct Counts {
  int64_t candidate = 0;  // requests of it
  int64_t others = 0;
  int64_t failed = 0;  // of all
};
double log_chance(const Counts& of, int64_t seen, double ratio) {
  const int64_t least = std::max<int64_t>(0, of.failed - of.others);
  const int64_t most = std::min(of.candidate, of.failed);
  // Weights relative to that of `seen`, outward from it: what is far away vanishes, and nothing
  // overflows before it matters.
  const auto step = [&](int64_t y) {  // weight(y + 1) / weight(y)
    return static_cast<double>(of.candidate - y) * static_cast<double>(of.failed - y) * ratio /
           (static_cast<double>(y + 1) * static_cast<double>(of.others - of.failed + y + 1));
  };
  double sum = 1;
  double weight = 1;
  for (int64_t y = seen; y < most && weight < 1e250; ++y) sum += weight *= step(y);
  weight = 1;
  for (int64_t y = seen; y > least && weight < 1e250; --y) sum += weight /= step(y - 1);
  return -std::log(sum);
}

// What a bet has gained: `larger` in -1 to 1, 0 in the mean if nothing is larger.
void bet(double larger, RankTest::Products& products) {
  for (size_t i = 0; i < products.size(); ++i) {
    products[i] += std::log1p(RankTest::kBets[i] * larger);
  }
}

void add(const RankTest::Bets& more, RankTest::Bets& into) {
  for (size_t i = 0; i < RankTest::kBets.size(); ++i) {
    into.larger[i] += more.larger[i];
    into.smaller[i] += more.smaller[i];
  }
}

std::vector<double> make_ratios() {
  std::vector<double> ratios;
  constexpr int kParts = 16;  // of an octave
  for (int i = -3 * kParts; i <= 3 * kParts; ++i) {
    const bool is_near = std::abs(i) <= kParts;
    if (is_near || i % 4 == 0) ratios.push_back(std::exp2(static_cast<double>(i) / kParts));
  }
  return ratios;
}

}  // namespace

double mixed_log_evidence(std::span<const double> log_products) {
  const double most = std::ranges::max(log_products);
  double sum = 0;
  for (const double one : log_products) sum += std::exp(one - most);
  return most + std::log(sum / static_cast<double>(log_products.size()));
}

OddsTest::Evidence& OddsTest::Evidence::operator+=(const Evidence& more) {
  requests += more.requests;
  failed += more.failed;
  for (size_t i = 0; i < log_products.size(); ++i) log_products[i] += more.log_products[i];
  return *this;
}

bool OddsTest::note(ArmSide side, bool failed) {
  ++evidence_.requests.of(side);
  ++open_.requests.of(side);
  if (failed) {
    ++evidence_.failed.of(side);
    ++open_.failed.of(side);
  }
  const BySide<int64_t>& requests = open_.requests;
  if (requests.candidate + requests.others < kBlock) return false;
  const Counts counts{.candidate = requests.candidate,
                      .others = requests.others,
                      .failed = open_.failed.candidate + open_.failed.others};
  const bool says_something = counts.failed > 0 && counts.candidate > 0 && counts.others > 0;
  if (says_something) {
    const double alike = log_chance(counts, open_.failed.candidate, tolerated_);
    for (size_t i = 0; i < kRatios.size(); ++i) {
      evidence_.log_products[i] +=
          log_chance(counts, open_.failed.candidate, kRatios[i] * tolerated_) - alike;
    }
  }
  open_ = {};
  return says_something;
}

Interval chance_interval(int64_t failed, int64_t requests, double alpha) {
  if (requests == 0) return {.low = 0, .high = 1};
  const auto bad = static_cast<double>(failed);
  const auto good = static_cast<double>(requests - failed);
  const double log_beta =
      std::lgamma(bad + 1) + std::lgamma(good + 1) - std::lgamma(bad + good + 2);
  const auto is_refuted = [&](double chance) {
    const double log_likelihood =
        (bad > 0 ? bad * std::log(chance) : 0) + (good > 0 ? good * std::log1p(-chance) : 0);
    return log_beta - log_likelihood >= -std::log(alpha);
  };
  const double middle = bad / (bad + good);
  // The product falls towards the middle and grows beyond it.
  const auto bound = [&](double outside) {
    double inside = middle;
    for (int i = 0; i < 60; ++i) {
      const double between = (inside + outside) / 2;
      (is_refuted(between) ? outside : inside) = between;
    }
    return inside;
  };
  return {.low = failed == 0 ? 0 : bound(0), .high = failed == requests ? 1 : bound(1)};
}

RankTest::RankTest(double tolerance, Grid grid) : log_tolerated_(std::log1p(tolerance)) {
  if (grid == Grid::kKept) evidence_.grid.resize(ratios().size());
}

const std::vector<double>& RankTest::ratios() {
  static const std::vector<double> all = make_ratios();
  return all;
}

RankTest::Evidence& RankTest::Evidence::operator+=(const Evidence& more) {
  values += more.values;
  add(more.at_tolerance, at_tolerance);
  if (grid.size() < more.grid.size()) grid.resize(more.grid.size());
  for (size_t i = 0; i < more.grid.size(); ++i) add(more.grid[i], grid[i]);
  return *this;
}

void RankTest::set_evidence(Evidence evidence) {
  const size_t kept = evidence_.grid.size();
  evidence_ = std::move(evidence);
  evidence_.grid.resize(kept);
}

void RankTest::end_block() {
  open_.candidate.clear();
  open_.others.clear();
}

bool RankTest::note(ArmSide side, double value) {
  constexpr double kLeast = 1e-9;
  ++evidence_.values.of(side);
  open_.of(side).push_back(std::log(std::max(value, kLeast)));
  if (open_.candidate.size() + open_.others.size() < kBlock) return false;
  const bool says_something = !open_.candidate.empty() && !open_.others.empty();
  if (says_something) close_block();
  end_block();
  return says_something;
}

void RankTest::close_block() {
  const bool has_fewer = open_.candidate.size() <= open_.others.size();
  std::vector<double>& fewer = has_fewer ? open_.candidate : open_.others;
  const std::vector<double>& more = has_fewer ? open_.others : open_.candidate;
  // In the order in which they came a growing load would look like a slow arm.
  const auto seed = static_cast<uint64_t>(evidence_.values.candidate + evidence_.values.others);
  for (size_t i = fewer.size(); i > 1; --i) {
    std::swap(fewer[i - 1], fewer[base::random_bits(seed, i) % i]);
  }
  // With the candidate's values divided by exp(log_ratio).
  const auto place = [&](double log_ratio, auto&& each) {
    std::vector<double> placed = more;
    if (!has_fewer) {
      for (double& one : placed) one -= log_ratio;
    }
    std::ranges::sort(placed);
    for (const double one : fewer) {
      const double value = has_fewer ? one - log_ratio : one;
      constexpr double kEqual = 1e-9;  // of logarithms: what was divided and is the same
      const auto below = std::ranges::lower_bound(placed, value - kEqual) - placed.begin();
      const auto above = placed.end() - std::ranges::upper_bound(placed, value + kEqual);
      const double larger = static_cast<double>(below - above) / static_cast<double>(placed.size());
      each(has_fewer ? larger : -larger);
      placed.insert(std::ranges::upper_bound(placed, value), value);
    }
  };
  place(log_tolerated_, [&](double larger) { bet(larger, evidence_.at_tolerance.larger); });
  place(-log_tolerated_, [&](double larger) { bet(-larger, evidence_.at_tolerance.smaller); });
  for (size_t i = 0; i < evidence_.grid.size(); ++i) {
    place(std::log(ratios()[i]), [&](double larger) {
      bet(larger, evidence_.grid[i].larger);
      bet(-larger, evidence_.grid[i].smaller);
    });
  }
}

RankTest::Ratio RankTest::ratio(const Evidence& evidence, double alpha) {
  const std::vector<double>& all = ratios();
  Ratio found{.interval = {.low = all.front(), .high = all.back()}};
  if (evidence.grid.size() != all.size()) return found;
  const double most = std::log(2 / alpha);
  size_t low = 0;
  size_t high = all.size() - 1;
  double least = INFINITY;
  for (size_t i = 0; i < all.size(); ++i) {
    const double larger = mixed_log_evidence(evidence.grid[i].larger);
    const double smaller = mixed_log_evidence(evidence.grid[i].smaller);
    // The values are larger than this ratio says: so it is too small, and all below it.
    if (larger >= most) low = std::min(i + 1, all.size() - 1);
    if (smaller >= most && i < high) high = i > 0 ? i - 1 : 0;
    if (std::max(larger, smaller) < least) {
      least = std::max(larger, smaller);
      found.estimate = all[i];
    }
  }
  // The neighbour that is refuted bounds it: between the two nothing is known.
  found.interval = {.low = all[low > 0 ? low - 1 : 0],
                    .high = all[std::min(high + 1, all.size() - 1)]};
  return found;
}

}  // namespace pelton::gateway
