// What share of a fleet's requests is served, as arithmetic: each kind of incident takes some of
// them until it is noticed and the others have its share, and what those cannot carry until
// replicas are there again. Pure.
//
//   downtime = sum over incidents of share x (detect + shift) + deficit x until restored
//
// in seconds of all requests, per month of 30 days. `deficit` is the part of the demand, without
// what may be shed, that what is left cannot serve (share x (1 - spare) where one model stands in
// equal parts; here by Hall's condition over the classes of residency). Incidents are rare enough
// not to meet.
//
// Example: two regions, half of the demand each and no more, detect + shift 5 s, replicas there
// after 30 s: 0.5 x 5 + 0.5 x 30 = 17.5 s an incident; 99.99 % are 259 s a month, 14 of them.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "capacity/allocation.h"

namespace pelton::capacity {

struct DowntimeTerm {
  std::string cause;     // "zone a/eu/1", "replica of m-on-g at cheap"
  double per_month = 0;  // incidents
  double share = 0;      // of all requests that it takes at once
  double at_once_s = 0;  // so long
  double deficit = 0;    // of all requests that nobody serves meanwhile
  double restored_s = 0;
  double downtime_s = 0;  // a month
};

struct AvailabilityChange {
  std::string what;  // "halve detect_s (3 to 1.5)"
  double gained_s = 0;
  double availability = 1;  // with it
  double per_hour = 0;      // what it costs more
};

struct Availability {
  double objective = 0;
  double downtime_s = 0;                    // a month
  std::vector<DowntimeTerm> terms;          // the largest first; without those of 0 s
  std::vector<AvailabilityChange> changes;  // each by itself; what gains most first

  double share() const { return 1 - downtime_s / kMonthSeconds; }
  double budget_s() const { return (1 - objective) * kMonthSeconds; }
};

// Of a plan that is possible, of these needs. `fixed`: of replicas that stand, so other plans are
// no change that is proposed.
enum class Standing { kPlanned, kFixed };
Availability availability_of(const FleetNeeds& needs, const Plan& plan, Standing standing);
// [[running]] as a plan: what stands, whether it serves the demand or not.
Plan running_plan(const FleetNeeds& needs);

std::string availability_text(const FleetNeeds& needs, const Availability& availability);
Json availability_json(const FleetNeeds& needs, const Availability& availability);

}  // namespace pelton::capacity
