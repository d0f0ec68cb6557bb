// Which replicas stand where: the cheapest numbers of them that serve each model's demand from
// where it may be served, within quotas, and keep a share of it without any one failure domain.
// Pure: the same needs have the same plan.
#pragma once

#include <string>
#include <vector>

#include "capacity/fleet_needs.h"
#include "capacity/integer_program.h"

namespace pelton::capacity {

struct Placement {
  int entry = 0;  // in the needs' lists
  int variant = 0;
  int replicas = 0;
  int running = 0;  // of these, how many are there already
};

// What cannot be kept, and by how much: requests per second of a model's demand.
struct Shortfall {
  std::string model;
  std::string residency;  // the tags that permit, "" where all entries do
  std::string without;    // the domain that is lost, as "zone a/eu/1"; "": nothing is lost
  double wanted = 0;
  double given = 0;               // the most that there is
  std::vector<std::string> full;  // permitted entries all of whose quota is used by then
};

struct Plan {
  // By model, then the variants' and the entries' order. Empty with shortfalls.
  std::vector<Placement> placements;
  std::vector<Shortfall> shortfalls;  // any: no plan keeps what is asked
  double per_hour = 0;                // machines used, reserved ones used or not, and egress
  // What the search minimised, and that nothing is below: without reserved machines, which cost the
  // same in every plan, and with the switch cost spread over twice the minimum billing.
  double cost = 0;
  double bound = 0;
  bool is_exact = false;  // nothing is cheaper

  bool is_possible() const { return shortfalls.empty(); }
};

// One inequality of the program, with what it says.
struct RowMeaning {
  enum class Kind { kDemand, kQuota, kRunning };
  Kind kind = Kind::kDemand;
  std::string model;      // kDemand
  std::string residency;  // kDemand
  std::string without;    // kDemand
  double rate = 0;        // kDemand: the demand of these classes, whole
  int entry = 0;          // kQuota
};

struct Column {  // replicas of a variant at an entry
  int entry = 0;
  int variant = 0;
  bool is_running = false;  // of those that are there; others cost the switch as well
};

struct AllocationProgram {
  IntegerProgram program;
  std::vector<Column> columns;
  std::vector<RowMeaning> meanings;  // of each row
};
AllocationProgram make_program(const FleetNeeds& needs);

// Exact up to so many columns (12 entries by 6 variants), group by group beyond.
constexpr size_t kExactColumnsMax = 72;
Plan allocate(const FleetNeeds& needs);
// The best plan with fewer replicas than this placement has of its variant at its entry.
Plan allocate_with_fewer(const FleetNeeds& needs, const Placement& placement);

}  // namespace pelton::capacity
