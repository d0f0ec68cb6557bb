#include "capacity/fleet_needs.h"

#include <algorithm>

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

}  // namespace pelton::capacity
