#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "base/duration.h"
#include "simulator/fluid_year.h"

namespace pelton::simulator {
namespace {

constexpr std::array<std::pair<std::string_view, FaultRate::Scope>, 5> kScopes = {
    {{"replica", FaultRate::Scope::kReplica},
     {"node", FaultRate::Scope::kNode},
     {"zone", FaultRate::Scope::kZone},
     {"region", FaultRate::Scope::kRegion},
     {"fleet", FaultRate::Scope::kFleet}}};
constexpr std::array<std::string_view, 6> kKeys = {"cause",  "of",    "mtbf_s",
                                                   "down_s", "share", "even"};
constexpr size_t kRatesMax = 32;
constexpr double kTimeMax_s = 1e10;

// A key whose value is of another kind would silently be its default; empty: there is none.
std::string wrong_kind(const Json& one) {
  for (const auto& [key, value] : one.as_object()) {
    const bool is_text = key == "cause" || key == "of";
    const bool is_switch = key == "even";
    if (is_text && !value.is_string()) return fmt::format("needs a text as its '{}'", key);
    if (is_switch && !value.is_bool()) return fmt::format("needs true or false as '{}'", key);
    if (!is_text && !is_switch && !value.is_number()) {
      return fmt::format("needs a number as its '{}'", key);
    }
  }
  return {};
}

}  // namespace

Result<std::vector<FaultRate>> parse_fault_rates(const Json& json, const std::string& origin) {
  const auto bad = [&](size_t at, const std::string& what) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("{}: fault {} {}", origin, at, what),
                 "fault_rates"};
  };
  if (!json.is_array() || json.as_array().size() > kRatesMax) {
    return bad(0, fmt::format("must be in a list of at most {}", kRatesMax));
  }
  std::vector<FaultRate> rates;
  for (size_t i = 0; i < json.as_array().size(); ++i) {
    const Json& one = json.as_array()[i];
    if (!one.is_object()) return bad(i, "must be an object");
    for (const auto& [key, value] : one.as_object()) {
      if (std::ranges::find(kKeys, key) == kKeys.end()) {
        return bad(i, fmt::format(
                          "has a key '{}'; there are cause, of, mtbf_s, down_s, share, even", key));
      }
    }
    const std::string wrong = wrong_kind(one);
    if (!wrong.empty()) return bad(i, wrong);
    FaultRate rate{.cause = one.string("cause").value_or("")};
    const std::string of = one.string("of").value_or("replica");
    const auto* const found =
        std::ranges::find(kScopes, of, &std::pair<std::string_view, FaultRate::Scope>::first);
    if (found == kScopes.end())
      return bad(i, "must be 'of' a replica, node, zone, region or fleet");
    rate.scope = found->second;
    rate.mtbf_s = one.number("mtbf_s").value_or(0);
    rate.down_s = one.number("down_s").value_or(0);
    rate.share = one.number("share").value_or(1);
    rate.is_even = one.boolean("even").value_or(false);
    if (rate.cause.empty()) return bad(i, "has no 'cause'");
    if (!(rate.mtbf_s >= 1 && rate.mtbf_s <= kTimeMax_s))
      return bad(i, "needs an 'mtbf_s' from 1 s on");
    if (!(rate.down_s >= 0 && rate.down_s <= kTimeMax_s)) return bad(i, "has no such 'down_s'");
    if (!(rate.share > 0 && rate.share <= 1)) return bad(i, "needs a 'share' above 0, up to 1");
    rates.push_back(std::move(rate));
  }
  return rates;
}

}  // namespace pelton::simulator
