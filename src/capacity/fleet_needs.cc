#include "capacity/fleet_needs.h"

#include <algorithm>

#include <fmt/format.h>

namespace pelton::capacity {

std::string_view kind_name(Kind kind) {
  switch (kind) {
    case Kind::kReserved:
      return "reserved";
    case Kind::kSpot:
      return "spot";
    case Kind::kOnDemand:
      break;
  }
  return "on_demand";
}

std::string_view domain_name(Domain domain) {
  switch (domain) {
    case Domain::kRegion:
      return "region";
    case Domain::kProvider:
      return "provider";
    case Domain::kSpot:
      return "spot";
    case Domain::kZone:
      break;
  }
  return "zone";
}

std::string domain_of(const Entry& entry, Domain domain) {
  const std::string region = entry.provider + "/" + entry.region;
  switch (domain) {
    case Domain::kRegion:
      return region;
    case Domain::kProvider:
      return entry.provider;
    case Domain::kSpot:
      return entry.kind == Kind::kSpot ? region : std::string();
    case Domain::kZone:
      break;
  }
  return region + "/" + entry.zone;
}

double Entry::presence() const {
  constexpr double kSecondsPerHour = 3600;
  return 1 / (1 + reclaim_per_h * (lead_p90_s / stock) / kSecondsPerHour);
}

bool Demand::permits(const Entry& entry) const {
  return residency.empty() || std::ranges::any_of(residency, [&](const std::string& tag) {
           return std::ranges::find(entry.residency, tag) != entry.residency.end();
         });
}

std::string domain_title(const Entry& entry, Domain domain) {
  const std::string its = domain_of(entry, domain);
  return its.empty() ? its : fmt::format("{} {}", domain_name(domain), its);
}

bool is_in(const Entry& entry, const std::string& title) {
  return std::ranges::any_of(kDomains, [&](Domain kind) {
    const std::string its = domain_title(entry, kind);
    return !its.empty() && its == title;
  });
}

}  // namespace pelton::capacity
