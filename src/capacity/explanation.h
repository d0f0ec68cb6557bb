// Why a plan is as it is: for each placement its runner-up and what would change it, for each
// failure domain what is left and what brings the rest back. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "capacity/allocation.h"

namespace pelton::capacity {

// The best plan with fewer replicas of a placement: how many, what is there instead, and what it
// costs more per hour.
struct RunnerUp {
  int replicas = 0;
  std::vector<Placement> instead;  // what it has more of; replicas: how many more
  double dearer_by = 0;
  // Of the machine: from there on the runner-up is cheaper. None: a reserved one, paid anyway.
  std::optional<double> price_until;
};

struct PlacementReason {
  Placement placement;
  std::optional<RunnerUp> runner_up;  // none: there is no such plan, the placement is needed
};

struct LossReason {
  std::string domain;        // as "zone a/eu/1"
  double share_at_once = 0;  // of the demand of the model that suffers most
  std::string model;         // that one
  bool can_restore = false;  // all of the demand, from what is left
  double restored_in_s = 0;  // p90 of the slowest order
  double restored_per_hour = 0;
  double missing = 0;  // if not: the largest shortfall, requests per second
};

struct ModelReason {
  std::string model;
  double served = 0;  // requests per second, spot as often as it is there
  double demand = 0;
  // By how much its demand may grow, in parts of it, until some row asks for another replica.
  double may_grow_by = 0;
  std::string tightest;  // the row: "demand", or "without zone a/eu/1"; with its residency
};

struct Explanation {
  std::vector<PlacementReason> placements;
  std::vector<LossReason> losses;
  std::vector<ModelReason> models;
};

// How all of the demand is served again without a domain, from what is left; what is there stays.
struct Restoration {
  bool is_possible = false;
  double in_s = 0;  // p90 of the slowest order; 0: nothing needs to be ordered
  double per_hour = 0;
  double missing = 0;  // if not: the largest shortfall, requests per second
};
Restoration restoration_without(const FleetNeeds& needs, const Plan& plan,
                                const std::string& domain);

// Of a plan that is possible, of these needs.
Explanation explain(const FleetNeeds& needs, const Plan& plan);

// The domains of the kinds that must be survived, as they are named in rows; sorted.
std::vector<std::string> survived_domains(const FleetNeeds& needs);
// With every entry of these away that is named so, or whose provider, region or zone is ("a",
// "a/eu", "a/eu/1", as domains are named). How many there were.
int take_away(FleetNeeds& needs, const std::string& name);

}  // namespace pelton::capacity
