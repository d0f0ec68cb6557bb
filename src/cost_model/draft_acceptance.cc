#include "cost_model/draft_acceptance.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numbers>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "base/random.h"
#include "base/split.h"

namespace pelton::cost_model {
namespace {

constexpr uint64_t kStream = 0x616363657074;
constexpr size_t kPlacesMax = 64;
constexpr size_t kPartsMax = 16;
constexpr double kParameterMax = 1e6;

Error bad(std::string_view text, const char* what) {
  return {ErrorCode::kInvalidArgument,
          fmt::format("'{}' {}; a share (0.7), one for each place (0.9,0.7,0.5), beta:A:B, or "
                      "several of these with their weights (0.3*0.95+0.7*beta:2:5)",
                      text.substr(0, 80), what),
          "--speculative-acceptance"};
}

std::optional<double> number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Numbers of one request, one after the other.
class Draws {
 public:
  explicit Draws(uint64_t seed) : seed_(base::mix64(seed ^ kStream)) {}
  double unit() { return base::random_unit(seed_, count_++); }
  double normal() {
    constexpr double kLeast = 1e-300;
    const double radius = std::sqrt(-2 * std::log(std::max(unit(), kLeast)));
    return radius * std::cos(2 * std::numbers::pi * unit());
  }
  // Marsaglia and Tsang, "A simple method for generating gamma variables", 2000.
  double gamma(double shape) {
    if (shape < 1) return gamma(shape + 1) * std::pow(std::max(unit(), 1e-300), 1 / shape);
    const double d = shape - 1.0 / 3;
    const double c = 1 / std::sqrt(9 * d);
    for (;;) {
      const double x = normal();
      const double v = (1 + c * x) * (1 + c * x) * (1 + c * x);
      if (v <= 0) continue;
      if (std::log(std::max(unit(), 1e-300)) < 0.5 * x * x + d - d * v + d * std::log(v)) {
        return d * v;
      }
    }
  }

 private:
  const uint64_t seed_;
  uint64_t count_ = 0;
};

}  // namespace

Result<DraftAcceptance::Part> DraftAcceptance::parse_part(std::string_view text) {
  Part part;
  if (text.starts_with("beta:")) {
    const std::vector<std::string_view> fields = base::split(text.substr(5), ':');
    const auto is_sound = [](std::optional<double> one) {
      return one && *one > 0 && *one <= kParameterMax;
    };
    if (fields.size() != 2 || !is_sound(number(fields[0])) || !is_sound(number(fields[1]))) {
      return bad(text, "must have two parameters above 0, at most 1e6");
    }
    part.alpha = *number(fields[0]);
    part.beta = *number(fields[1]);
    return part;
  }
  for (const std::string_view field : base::split(text, ',')) {
    const std::optional<double> share = number(field);
    if (!share || !(*share >= 0 && *share <= 1)) return bad(text, "must have shares of 0 to 1");
    part.by_place.push_back(*share);
  }
  if (part.by_place.size() > kPlacesMax) return bad(text, "must have at most 64 places");
  return part;
}

Result<DraftAcceptance> DraftAcceptance::parse(std::string_view text) {
  DraftAcceptance all;
  double sum = 0;
  const std::vector<std::string_view> parts = base::split(text, '+');
  if (parts.size() > kPartsMax) return bad(text, "must have at most 16 parts");
  for (std::string_view one : parts) {
    const size_t star = one.find('*');
    const std::optional<double> weight =
        star == std::string_view::npos ? 1 : number(one.substr(0, star));
    if (!weight || !(*weight > 0 && *weight <= 1)) return bad(text, "must have weights above 0");
    if (star != std::string_view::npos) one.remove_prefix(star + 1);
    TRY_ASSIGN(Part part, parse_part(one));
    part.weight = *weight;
    sum += *weight;
    all.parts_.push_back(std::move(part));
  }
  if (std::abs(sum - 1) > 1e-6) return bad(text, "must have weights that are 1 together");
  return all;
}

double DraftAcceptance::at(uint64_t seed, int place) const {
  Draws draws(seed);
  const Part* part = &parts_.back();
  if (parts_.size() > 1) {
    double left = draws.unit();
    for (const Part& one : parts_) {
      part = &one;
      left -= one.weight;
      if (left < 0) break;
    }
  }
  if (!part->by_place.empty()) {
    return part->by_place[std::min(static_cast<size_t>(place), part->by_place.size() - 1)];
  }
  const double right = draws.gamma(part->alpha);
  return right / (right + draws.gamma(part->beta));
}

// Of a beta distribution E[p^k] is the product of (alpha + i) / (alpha + beta + i), i below k.
double DraftAcceptance::survival(int tokens) const {
  double sum = 0;
  for (const Part& part : parts_) {
    double all = 1;
    for (int i = 0; i < tokens; ++i) {
      const auto place = static_cast<size_t>(i);
      all *= part.by_place.empty() ? (part.alpha + i) / (part.alpha + part.beta + i)
                                   : part.by_place[std::min(place, part.by_place.size() - 1)];
    }
    sum += part.weight * all;
  }
  return sum;
}

}  // namespace pelton::cost_model
