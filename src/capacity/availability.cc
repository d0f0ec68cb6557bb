#include "capacity/availability.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "capacity/explanation.h"

namespace pelton::capacity {
namespace {

constexpr double kMonthDays = 30;
constexpr double kMonthHours = kMonthDays * 24;

double mtbf_days(const FaultRates& faults, Domain domain) {
  switch (domain) {
    case Domain::kZone:
      return faults.zone_mtbf_days;
    case Domain::kRegion:
      return faults.region_mtbf_days;
    case Domain::kProvider:
      return faults.provider_mtbf_days;
    case Domain::kSpot:
      return faults.spot_mtbf_days;
  }
  return 0;
}

double per_month(double days) {
  return days > 0 ? kMonthDays / days : 0;
}

// Rates that are left of each placement after an incident.
class Supply {
 public:
  Supply(const FleetNeeds& needs, const Plan& plan) : needs_(needs), plan_(plan) {
    for (const Placement& one : plan.placements) {
      whole_.push_back(rate_of_one(one) * one.replicas);
    }
    left_ = whole_;
    for (const Demand& demand : needs.demands) {
      models_.insert(demand.model);
      demand_ += demand.rate;
    }
  }

  void lose_one(size_t placement) { left_[placement] -= rate_of_one(plan_.placements[placement]); }
  void lose(const std::string& domain) {
    for (size_t i = 0; i < left_.size(); ++i) {
      if (is_in(entry_of(plan_.placements[i]), domain)) left_[i] = 0;
    }
  }

  // Of all requests, those that run on what was lost: a model's load lies on its replicas by their
  // rates, but for what residency ties to the lost ones.
  double share_lost() const {
    double lost = 0;
    for (const std::string& model : models_) {
      const double all = sum(whole_, model);
      if (all <= 0) continue;
      lost += std::min(demand_of(model), all) * (1 - sum(left_, model) / all);
    }
    return demand_ > 0 ? std::max(lost / demand_, deficit()) : 0;
  }
  // Of all requests, those that nobody serves, but for the sheddable ones.
  double deficit() const {
    double unserved = 0;
    for (const std::string& model : models_) unserved += unserved_of(model);
    return demand_ > 0 ? unserved / demand_ : 0;
  }

 private:
  const Entry& entry_of(const Placement& one) const {
    return needs_.entries[static_cast<size_t>(one.entry)];
  }
  const Variant& variant_of(const Placement& one) const {
    return needs_.variants[static_cast<size_t>(one.variant)];
  }
  double rate_of_one(const Placement& one) const {
    return variant_of(one).rate * entry_of(one).presence();
  }
  double sum(const std::vector<double>& rates, const std::string& model) const {
    double all = 0;
    for (size_t i = 0; i < rates.size(); ++i) {
      if (variant_of(plan_.placements[i]).model == model) all += rates[i];
    }
    return all;
  }
  double demand_of(const std::string& model) const {
    double all = 0;
    for (const Demand& one : needs_.demands) all += one.model == model ? one.rate : 0;
    return all;
  }
  // The largest shortfall over the sets of its classes (at most 2^6 of them): by Hall's condition
  // what no sharing out can serve.
  double unserved_of(const std::string& model) const {
    std::vector<const Demand*> classes;
    for (const Demand& one : needs_.demands) {
      if (one.model == model) classes.push_back(&one);
    }
    double most = 0;
    for (size_t set = 1; set < size_t{1} << classes.size(); ++set) {
      const auto holds = [&](size_t c) { return (set >> c & 1) != 0; };
      double asked = 0;
      for (size_t c = 0; c < classes.size(); ++c) asked += holds(c) ? classes[c]->rate : 0;
      double given = 0;
      for (size_t i = 0; i < left_.size(); ++i) {
        const Placement& one = plan_.placements[i];
        bool serves = false;
        for (size_t c = 0; c < classes.size(); ++c) {
          serves = serves || (holds(c) && classes[c]->permits(entry_of(one)));
        }
        if (serves && variant_of(one).model == model) given += left_[i];
      }
      most = std::max(most, asked * (1 - needs_.faults.sheddable_share) - given);
    }
    return most;
  }

  const FleetNeeds& needs_;
  const Plan& plan_;
  std::vector<double> whole_;
  std::vector<double> left_;  // by placement
  std::set<std::string> models_;
  double demand_ = 0;
};

class Terms {
 public:
  Terms(const FleetNeeds& needs, const Plan& plan)
      : needs_(needs),
        plan_(plan),
        faults_(needs.faults),
        noticed_s_(faults_.detect_s + faults_.shift_s),
        missing_(Supply(needs, plan).deficit()) {}

  std::vector<DowntimeTerm> made() {
    add_standing();
    for (size_t i = 0; i < plan_.placements.size(); ++i) add_replicas(i);
    for (const Domain kind : kDomains) add_domains(kind);
    for (const CommonMode& mode : faults_.common_modes) {
      add({.cause = mode.cause,
           .per_month = mode.per_month,
           .share = mode.share,
           .at_once_s = mode.lasts_s});
    }
    std::ranges::stable_sort(terms_, std::greater(), &DowntimeTerm::downtime_s);
    return std::move(terms_);
  }

 private:
  void add(DowntimeTerm term) {
    term.downtime_s =
        term.per_month * (term.share * term.at_once_s + term.deficit * term.restored_s);
    if (term.downtime_s > 0) terms_.push_back(std::move(term));
  }
  // Of replicas that stand, not of a plan.
  void add_standing() {
    add({.cause = "too few replicas",
         .per_month = 1,
         .deficit = missing_,
         .restored_s = kMonthSeconds});
  }
  void add_replicas(size_t i) {
    const Placement& one = plan_.placements[i];
    const Entry& entry = needs_.entries[static_cast<size_t>(one.entry)];
    const Variant& variant = needs_.variants[static_cast<size_t>(one.variant)];
    Supply supply(needs_, plan_);
    supply.lose_one(i);
    const double ordered_s = entry.lead_p90_s / entry.stock + faults_.start_s;
    const std::string of = fmt::format("of {} at {}", variant.name, entry.name);
    const double machines = static_cast<double>(one.replicas) * variant.machines;
    DowntimeTerm term{.cause = "replica " + of,
                      .per_month = one.replicas * per_month(faults_.replica_mtbf_days),
                      .share = supply.share_lost(),
                      .at_once_s = noticed_s_,
                      .deficit = deficit_beyond(supply),
                      .restored_s = faults_.start_s};
    add(term);
    term.cause = "machine " + of;
    term.per_month = machines * per_month(faults_.machine_mtbf_days);
    term.restored_s = ordered_s;
    add(term);
    if (entry.kind != Kind::kSpot) return;
    // A notice is time to go on elsewhere.
    term.cause = "reclaim " + of;
    term.per_month = machines * entry.reclaim_per_h * kMonthHours;
    term.at_once_s = std::max(0.0, noticed_s_ - entry.notice_s);
    term.restored_s = std::max(0.0, ordered_s - entry.notice_s);
    add(term);
  }
  void add_domains(Domain kind) {
    const double often = per_month(mtbf_days(faults_, kind));
    if (often <= 0) return;
    std::set<std::string> titles;
    for (const Placement& one : plan_.placements) {
      titles.insert(domain_title(needs_.entries[static_cast<size_t>(one.entry)], kind));
    }
    titles.erase("");
    for (const std::string& title : titles) {
      Supply supply(needs_, plan_);
      supply.lose(title);
      DowntimeTerm term{.cause = title,
                        .per_month = often,
                        .share = supply.share_lost(),
                        .at_once_s = noticed_s_,
                        .deficit = deficit_beyond(supply)};
      if (term.deficit > 0) {
        const Restoration restored = restoration_without(needs_, plan_, title);
        const double ordered_s = restored.in_s + faults_.start_s;
        term.restored_s =
            restored.is_possible ? std::min(ordered_s, faults_.outage_s) : faults_.outage_s;
      }
      add(term);
    }
  }
  // What is missing anyway is a term of its own.
  double deficit_beyond(const Supply& supply) const {
    return std::max(0.0, supply.deficit() - missing_);
  }

  const FleetNeeds& needs_;
  const Plan& plan_;
  const FaultRates& faults_;
  const double noticed_s_;
  const double missing_;  // without any incident
  std::vector<DowntimeTerm> terms_;
};

double downtime_of(const std::vector<DowntimeTerm>& terms) {
  double all = 0;
  for (const DowntimeTerm& term : terms) all += term.downtime_s;
  return std::min(all, kMonthSeconds);
}

// What may be changed, each by itself.
class Changes {
 public:
  Changes(const FleetNeeds& needs, const Plan& plan, double downtime_s)
      : needs_(needs), plan_(plan), downtime_s_(downtime_s) {}

  std::vector<AvailabilityChange> made(Standing standing) {
    halve("detect_s", &FaultRates::detect_s);
    halve("shift_s", &FaultRates::shift_s);
    halve("start_s", &FaultRates::start_s);
    for (size_t i = 0; i < needs_.faults.common_modes.size(); ++i) release_in_steps(i);
    if (standing == Standing::kPlanned) {
      for (const Domain kind : kDomains) survive(kind);
    }
    std::ranges::stable_sort(changes_, std::greater(), &AvailabilityChange::gained_s);
    return std::move(changes_);
  }

 private:
  void add(std::string what, const FleetNeeds& needs, const Plan& plan) {
    const double downtime_s = downtime_of(Terms(needs, plan).made());
    if (downtime_s >= downtime_s_) return;
    changes_.push_back({.what = std::move(what),
                        .gained_s = downtime_s_ - downtime_s,
                        .availability = 1 - downtime_s / kMonthSeconds,
                        .per_hour = plan.per_hour - plan_.per_hour});
  }
  void halve(std::string_view key, double FaultRates::*value) {
    FleetNeeds other = needs_;
    const double before = other.faults.*value;
    other.faults.*value = before / 2;
    add(fmt::format("halve {} ({:.4g} to {:.4g})", key, before, before / 2), other, plan_);
  }
  void release_in_steps(size_t mode) {
    constexpr double kFirstStep = 0.05;
    FleetNeeds other = needs_;
    CommonMode& one = other.faults.common_modes[mode];
    if (one.share <= kFirstStep) return;
    one.share = kFirstStep;
    add(fmt::format("let {} meet {:.0f} % first", one.cause, 100 * kFirstStep), other, plan_);
  }
  void survive(Domain kind) {
    FleetNeeds other = needs_;
    other.survive_share = 1;
    other.survive = {kind};
    const Plan plan = allocate(other);
    if (!plan.is_possible()) return;
    add(fmt::format("keep all of the demand without any one {} (survive_share 1)",
                    kind == Domain::kSpot ? "region's spot machines" : domain_name(kind)),
        other, plan);
  }

  const FleetNeeds& needs_;
  const Plan& plan_;
  const double downtime_s_;
  std::vector<AvailabilityChange> changes_;
};

}  // namespace

Availability availability_of(const FleetNeeds& needs, const Plan& plan, Standing standing) {
  Availability availability{.objective = needs.faults.objective,
                            .terms = Terms(needs, plan).made()};
  availability.downtime_s = downtime_of(availability.terms);
  availability.changes = Changes(needs, plan, availability.downtime_s).made(standing);
  return availability;
}

Plan running_plan(const FleetNeeds& needs) {
  std::map<std::pair<int, int>, int> replicas;
  for (const Running& one : needs.running) {
    const auto entry = std::ranges::find(needs.entries, one.entry, &Entry::name);
    const auto variant = std::ranges::find(needs.variants, one.variant, &Variant::name);
    if (entry == needs.entries.end() || variant == needs.variants.end() || entry->away) continue;
    replicas[{static_cast<int>(entry - needs.entries.begin()),
              static_cast<int>(variant - needs.variants.begin())}] += one.replicas;
  }
  Plan plan;
  for (const auto& [where, count] : replicas) {
    if (count > 0) plan.placements.push_back({where.first, where.second, count, count});
  }
  return plan;
}

std::string availability_text(const FleetNeeds& needs, const Availability& availability) {
  std::string text = fmt::format(
      "availability {:.4f} %: {:.1f} s of all requests a month of 30 days; {:.4g} % allow {:.0f} "
      "s\n",
      100 * availability.share(), availability.downtime_s, 100 * availability.objective,
      availability.budget_s());
  if (!availability.terms.empty()) {
    text += fmt::format("\n{:>9}  {:>9}  {:>6}  {:>7}  {:>7}  {:>8}  {}\n", "s/month", "a month",
                        "share", "s", "deficit", "s", "cause");
  }
  for (const DowntimeTerm& one : availability.terms) {
    text += fmt::format("{:>9.2f}  {:>9.3g}  {:>5.1f}%  {:>7.4g}  {:>6.1f}%  {:>8.4g}  {}\n",
                        one.downtime_s, one.per_month, 100 * one.share, one.at_once_s,
                        100 * one.deficit, one.restored_s, one.cause);
  }
  if (!availability.changes.empty()) text += "\nwhat gains most, each by itself:\n";
  for (const AvailabilityChange& one : availability.changes) {
    text += fmt::format("  {}: {:.1f} s less, {:.4f} %", one.what, one.gained_s,
                        100 * one.availability);
    if (one.per_hour != 0) text += fmt::format(", {:+.4g} {}/h", one.per_hour, needs.currency);
    text += '\n';
  }
  return text;
}

Json availability_json(const FleetNeeds& needs, const Availability& availability) {
  Json json{Json::Object{}};
  json.set("availability", availability.share());
  json.set("downtime_s", availability.downtime_s);
  json.set("objective", availability.objective);
  json.set("budget_s", availability.budget_s());
  json.set("currency", needs.currency);
  Json::Array terms;
  for (const DowntimeTerm& one : availability.terms) {
    Json term{Json::Object{}};
    term.set("cause", one.cause);
    term.set("per_month", one.per_month);
    term.set("share", one.share);
    term.set("at_once_s", one.at_once_s);
    term.set("deficit", one.deficit);
    term.set("restored_s", one.restored_s);
    term.set("downtime_s", one.downtime_s);
    terms.push_back(std::move(term));
  }
  json.set("terms", std::move(terms));
  Json::Array changes;
  for (const AvailabilityChange& one : availability.changes) {
    Json change{Json::Object{}};
    change.set("what", one.what);
    change.set("gained_s", one.gained_s);
    change.set("availability", one.availability);
    change.set("per_hour", one.per_hour);
    changes.push_back(std::move(change));
  }
  json.set("changes", std::move(changes));
  return json;
}

}  // namespace pelton::capacity
