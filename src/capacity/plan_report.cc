#include "capacity/plan_report.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace pelton::capacity {
namespace {

const Entry& entry_of(const FleetNeeds& needs, const Placement& placement) {
  return needs.entries[static_cast<size_t>(placement.entry)];
}
const Variant& variant_of(const FleetNeeds& needs, const Placement& placement) {
  return needs.variants[static_cast<size_t>(placement.variant)];
}

std::string instead_text(const FleetNeeds& needs, const RunnerUp& runner_up) {
  std::vector<std::string> parts;
  for (const Placement& one : runner_up.instead) {
    parts.push_back(fmt::format("{} more of {} at {}", one.replicas, variant_of(needs, one).name,
                                entry_of(needs, one).name));
  }
  return parts.empty() ? "nothing more elsewhere" : fmt::format("{}", fmt::join(parts, ", "));
}

std::string reason_text(const FleetNeeds& needs, const PlacementReason& reason) {
  if (!reason.runner_up) return "    needed: there is no plan with fewer of it\n";
  const RunnerUp& other = *reason.runner_up;
  std::string text =
      fmt::format("    runner-up: {} here and {}, dearer by {:.4g} {}/h", other.replicas,
                  instead_text(needs, other), std::max(0.0, other.dearer_by), needs.currency);
  if (other.price_until) {
    text += fmt::format("; it wins when a machine here costs more than {:.4g} (now {:.4g})",
                        *other.price_until, entry_of(needs, reason.placement).price);
  }
  return text + "\n";
}

std::string losses_text(const FleetNeeds& needs, const Explanation& explanation) {
  std::string text;
  for (const ModelReason& one : explanation.models) {
    text += fmt::format(
        "{}: {:.4g} of {:.4g} requests/s, may grow by {:.1f} % before more is needed "
        "({})\n",
        one.model, one.served, one.demand, 100 * one.may_grow_by, one.tightest);
  }
  for (const LossReason& one : explanation.losses) {
    text += fmt::format("without {}: {:.0f} % of {} at once, ", one.domain, 100 * one.share_at_once,
                        one.model);
    if (one.can_restore) {
      text += fmt::format("all of it after {:.0f} s (p90) for {:.4g} {}/h\n", one.restored_in_s,
                          one.restored_per_hour, needs.currency);
    } else {
      text += fmt::format("never all of it: {:.4g} requests/s are missing\n", one.missing);
    }
  }
  return text;
}

Json placement_json(const FleetNeeds& needs, const Placement& placement) {
  Json json{Json::Object{}};
  json.set("capacity", entry_of(needs, placement).name);
  json.set("variant", variant_of(needs, placement).name);
  json.set("model", variant_of(needs, placement).model);
  json.set("replicas", placement.replicas);
  return json;
}

Json runner_up_json(const FleetNeeds& needs, const PlacementReason& reason) {
  if (!reason.runner_up) return {};
  Json json{Json::Object{}};
  json.set("replicas", reason.runner_up->replicas);
  Json::Array instead;
  for (const Placement& one : reason.runner_up->instead) {
    instead.push_back(placement_json(needs, one));
  }
  json.set("instead", std::move(instead));
  json.set("dearer_by", reason.runner_up->dearer_by);
  if (reason.runner_up->price_until) json.set("price_until", *reason.runner_up->price_until);
  return json;
}

void set_reasons(const Explanation& explanation, Json& json) {
  Json::Array losses;
  for (const LossReason& one : explanation.losses) {
    Json loss{Json::Object{}};
    loss.set("without", one.domain);
    loss.set("share_at_once", one.share_at_once);
    loss.set("model", one.model);
    loss.set("restores", one.can_restore);
    if (one.can_restore) {
      loss.set("restored_in_s", one.restored_in_s);
      loss.set("restored_per_hour", one.restored_per_hour);
    } else {
      loss.set("missing", one.missing);
    }
    losses.push_back(std::move(loss));
  }
  json.set("losses", std::move(losses));
  Json::Array models;
  for (const ModelReason& one : explanation.models) {
    Json model{Json::Object{}};
    model.set("model", one.model);
    model.set("served", one.served);
    model.set("demand", one.demand);
    model.set("may_grow_by", one.may_grow_by);
    model.set("tightest", one.tightest);
    models.push_back(std::move(model));
  }
  json.set("models", std::move(models));
}

// Of an entry, in all placements.
int machines_used(const FleetNeeds& needs, const Plan& plan, int entry) {
  int machines = 0;
  for (const Placement& one : plan.placements) {
    if (one.entry == entry) machines += one.replicas * variant_of(needs, one).machines;
  }
  return machines;
}

Json tags_json(const std::vector<std::string>& tags) {
  Json::Array array;
  for (const std::string& tag : tags) array.emplace_back(tag);
  return array;
}

// What is to be had, and what the plan takes of it.
Json entries_json(const FleetNeeds& needs, const Plan& plan) {
  Json::Array entries;
  for (size_t i = 0; i < needs.entries.size(); ++i) {
    const Entry& entry = needs.entries[i];
    const int used = machines_used(needs, plan, static_cast<int>(i));
    const bool is_paid_anyway = entry.kind == Kind::kReserved && !entry.away;
    Json json{Json::Object{}};
    json.set("name", entry.name);
    json.set("provider", entry.provider);
    json.set("region", entry.region);
    json.set("zone", entry.zone);
    json.set("machine", entry.machine);
    json.set("gpus", entry.gpus);
    json.set("kind", std::string(kind_name(entry.kind)));
    json.set("price_per_hour", entry.price);
    json.set("quota", entry.quota);
    json.set("lead_p50_s", entry.lead_p50_s);
    json.set("lead_p90_s", entry.lead_p90_s);
    json.set("stock", entry.stock);
    json.set("reclaim_per_hour", entry.reclaim_per_h);
    json.set("residency", tags_json(entry.residency));
    json.set("away", entry.away);
    json.set("machines", used);
    json.set("per_hour", (is_paid_anyway ? entry.quota : used) * entry.price);
    entries.push_back(std::move(json));
  }
  return entries;
}

Json variants_json(const FleetNeeds& needs) {
  Json::Array variants;
  for (const Variant& one : needs.variants) {
    Json json{Json::Object{}};
    json.set("name", one.name);
    json.set("model", one.model);
    json.set("machine", one.machine);
    json.set("machines", one.machines);
    json.set("rate", one.rate);
    variants.push_back(std::move(json));
  }
  return variants;
}

Json demands_json(const FleetNeeds& needs) {
  Json::Array demands;
  for (const Demand& one : needs.demands) {
    Json json{Json::Object{}};
    json.set("model", one.model);
    json.set("residency", tags_json(one.residency));
    json.set("rate", one.rate);
    json.set("answer_kb", one.answer_kb);
    demands.push_back(std::move(json));
  }
  return demands;
}

}  // namespace

std::string shortfall_text(const Plan& plan) {
  std::string text;
  for (const Shortfall& one : plan.shortfalls) {
    text += fmt::format(
        "{}{}{}: {:.4g} requests/s are asked, at most {:.4g} are possible, {:.4g} are "
        "missing; ",
        one.model, one.residency.empty() ? "" : " for " + one.residency,
        one.without.empty() ? "" : ", without " + one.without, one.wanted, one.given,
        one.wanted - one.given);
    text += one.full.empty() ? std::string("no capacity is permitted there\n")
                             : fmt::format("no machine is left of {}\n", fmt::join(one.full, ", "));
  }
  return text;
}

std::string plan_text(const FleetNeeds& needs, const Plan& plan, const Explanation* explanation) {
  if (!plan.is_possible()) return shortfall_text(plan);
  std::string text;
  for (size_t i = 0; i < plan.placements.size(); ++i) {
    const Placement& one = plan.placements[i];
    const Entry& entry = entry_of(needs, one);
    text += fmt::format("{}: {} of {} at {} ({}, {})\n", variant_of(needs, one).model, one.replicas,
                        variant_of(needs, one).name, entry.name, kind_name(entry.kind),
                        domain_of(entry, Domain::kZone));
    if (explanation != nullptr) text += reason_text(needs, explanation->placements[i]);
  }
  text += fmt::format("{:.4g} {}/h; ", plan.per_hour, needs.currency);
  text += plan.is_exact ? "no plan is cheaper\n"
                        : fmt::format("no plan is cheaper by more than {:.4g}\n",
                                      std::max(0.0, plan.cost - plan.bound));
  if (explanation != nullptr) text += losses_text(needs, *explanation);
  return text;
}

Json plan_json(const FleetNeeds& needs, const Plan& plan, const Explanation* explanation) {
  Json json{Json::Object{}};
  json.set("possible", plan.is_possible());
  Json::Array shortfalls;
  for (const Shortfall& one : plan.shortfalls) {
    Json shortfall{Json::Object{}};
    shortfall.set("model", one.model);
    shortfall.set("residency", one.residency);
    shortfall.set("without", one.without);
    shortfall.set("wanted", one.wanted);
    shortfall.set("given", one.given);
    Json::Array full;
    for (const std::string& name : one.full) full.emplace_back(name);
    shortfall.set("full", std::move(full));
    shortfalls.push_back(std::move(shortfall));
  }
  json.set("currency", needs.currency);
  json.set("entries", entries_json(needs, plan));
  json.set("variants", variants_json(needs));
  json.set("demands", demands_json(needs));
  if (!plan.is_possible()) {
    json.set("shortfalls", std::move(shortfalls));
    return json;
  }
  json.set("per_hour", plan.per_hour);
  json.set("exact", plan.is_exact);
  json.set("gap", std::max(0.0, plan.cost - plan.bound));
  Json::Array placements;
  for (size_t i = 0; i < plan.placements.size(); ++i) {
    Json placement = placement_json(needs, plan.placements[i]);
    placement.set("running", plan.placements[i].running);
    if (explanation != nullptr) {
      placement.set("runner_up", runner_up_json(needs, explanation->placements[i]));
    }
    placements.push_back(std::move(placement));
  }
  json.set("placements", std::move(placements));
  if (explanation != nullptr) set_reasons(*explanation, json);
  return json;
}

}  // namespace pelton::capacity
