#include "capacity/explanation.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

namespace pelton::capacity {
namespace {

double throughput(const FleetNeeds& needs, const Placement& placement) {
  return needs.variants[static_cast<size_t>(placement.variant)].rate *
         needs.entries[static_cast<size_t>(placement.entry)].presence() * placement.replicas;
}

PlacementReason reason_of(const FleetNeeds& needs, const Plan& plan, const Placement& placement) {
  PlacementReason reason{.placement = placement, .runner_up = std::nullopt};
  const Plan other = allocate_with_fewer(needs, placement);
  if (!other.is_possible()) return reason;
  RunnerUp& runner_up = reason.runner_up.emplace();
  runner_up.dearer_by = other.cost - plan.cost;
  std::map<std::pair<int, int>, int> before;
  for (const Placement& one : plan.placements) before[{one.entry, one.variant}] = one.replicas;
  for (const Placement& one : other.placements) {
    if (one.entry == placement.entry && one.variant == placement.variant) {
      runner_up.replicas = one.replicas;
    }
    const int more = one.replicas - before[{one.entry, one.variant}];
    if (more > 0) runner_up.instead.push_back({one.entry, one.variant, more, 0});
  }
  const Entry& entry = needs.entries[static_cast<size_t>(placement.entry)];
  const int machines = needs.variants[static_cast<size_t>(placement.variant)].machines *
                       (placement.replicas - runner_up.replicas);
  if (entry.kind != Kind::kReserved) {
    runner_up.price_until = entry.price + std::max(0.0, runner_up.dearer_by) / machines;
  }
  return reason;
}

LossReason loss_of(const FleetNeeds& needs, const Plan& plan, const std::string& domain) {
  LossReason loss{.domain = domain, .share_at_once = 1, .model = {}};
  const AllocationProgram made = make_program(needs);
  for (size_t r = 0; r < made.meanings.size(); ++r) {
    const RowMeaning& meaning = made.meanings[r];
    if (meaning.kind != RowMeaning::Kind::kDemand || meaning.without != domain) continue;
    double left = 0;
    for (const Placement& one : plan.placements) {
      const bool counts = std::ranges::any_of(made.program.rows[r].terms, [&](const Term& term) {
        const Column& column = made.columns[static_cast<size_t>(term.column)];
        return column.entry == one.entry && column.variant == one.variant;
      });
      if (counts) left += throughput(needs, one);
    }
    const double share = std::min(1.0, left / meaning.rate);
    if (!loss.model.empty() && share >= loss.share_at_once) continue;
    loss.share_at_once = share;
    loss.model = meaning.model;
  }
  const Restoration restored = restoration_without(needs, plan, domain);
  loss.can_restore = restored.is_possible;
  loss.restored_in_s = restored.in_s;
  loss.restored_per_hour = restored.per_hour;
  loss.missing = restored.missing;
  return loss;
}

std::vector<ModelReason> models_of(const FleetNeeds& needs, const Plan& plan) {
  std::map<std::string, ModelReason> models;
  for (const Demand& demand : needs.demands) {
    ModelReason& reason = models[demand.model];
    reason.model = demand.model;
    reason.demand += demand.rate;
    reason.may_grow_by = std::numeric_limits<double>::infinity();
  }
  for (const Placement& one : plan.placements) {
    models[needs.variants[static_cast<size_t>(one.variant)].model].served += throughput(needs, one);
  }
  const AllocationProgram made = make_program(needs);
  for (size_t r = 0; r < made.meanings.size(); ++r) {
    const RowMeaning& meaning = made.meanings[r];
    const Row& row = made.program.rows[r];
    if (meaning.kind != RowMeaning::Kind::kDemand || row.at_least <= 0) continue;
    double given = 0;
    for (const Placement& one : plan.placements) {
      for (const Term& term : row.terms) {
        const Column& column = made.columns[static_cast<size_t>(term.column)];
        if (column.entry != one.entry || column.variant != one.variant || column.is_running)
          continue;
        given += term.factor * one.replicas;
      }
    }
    ModelReason& reason = models[meaning.model];
    const double growth = std::max(0.0, given / row.at_least - 1);
    if (growth >= reason.may_grow_by) continue;
    reason.may_grow_by = growth;
    reason.tightest = meaning.without.empty() ? "demand" : "without " + meaning.without;
    if (!meaning.residency.empty()) reason.tightest += " (" + meaning.residency + ")";
  }
  std::vector<ModelReason> result;
  for (auto& [model, reason] : models) result.push_back(std::move(reason));
  return result;
}

}  // namespace

std::vector<std::string> survived_domains(const FleetNeeds& needs) {
  std::set<std::string> domains;
  for (const Domain kind : needs.survive) {
    for (const Entry& entry : needs.entries) {
      const std::string title = domain_title(entry, kind);
      if (!title.empty() && !entry.away) domains.insert(title);
    }
  }
  return {domains.begin(), domains.end()};
}

int take_away(FleetNeeds& needs, const std::string& name) {
  int count = 0;
  for (Entry& entry : needs.entries) {
    const bool is_meant = entry.name == name || entry.provider == name ||
                          domain_of(entry, Domain::kRegion) == name ||
                          domain_of(entry, Domain::kZone) == name || is_in(entry, name);
    if (!is_meant) continue;
    entry.away = true;
    ++count;
  }
  return count;
}

Restoration restoration_without(const FleetNeeds& needs, const Plan& plan,
                                const std::string& domain) {
  FleetNeeds after = needs;
  after.survive.clear();
  after.running.clear();
  for (Entry& entry : after.entries) entry.away = entry.away || is_in(entry, domain);
  for (const Placement& one : plan.placements) {
    after.running.push_back({needs.entries[static_cast<size_t>(one.entry)].name,
                             needs.variants[static_cast<size_t>(one.variant)].name, one.replicas});
  }
  const Plan restored = allocate(after);
  Restoration how{.is_possible = restored.is_possible(), .per_hour = restored.per_hour};
  for (const Placement& one : restored.placements) {
    const Entry& entry = needs.entries[static_cast<size_t>(one.entry)];
    if (one.running < one.replicas) {
      how.in_s = std::max(how.in_s, entry.lead_p90_s / entry.stock);
    }
  }
  for (const Shortfall& one : restored.shortfalls) {
    how.missing = std::max(how.missing, one.wanted - one.given);
  }
  return how;
}

Explanation explain(const FleetNeeds& needs, const Plan& plan) {
  Explanation explanation;
  for (const Placement& one : plan.placements) {
    explanation.placements.push_back(reason_of(needs, plan, one));
  }
  for (const std::string& domain : survived_domains(needs)) {
    explanation.losses.push_back(loss_of(needs, plan, domain));
  }
  explanation.models = models_of(needs, plan);
  return explanation;
}

}  // namespace pelton::capacity
