// make_program() of allocation.h: the needs as rows of sums.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "capacity/allocation.h"

namespace pelton::capacity {
namespace {

constexpr double kSecondsPerHour = 3600;

class ProgramBuilder {
 public:
  explicit ProgramBuilder(const FleetNeeds& needs) : needs_(needs) {
    for (const Demand& demand : needs.demands) by_model_[demand.model].push_back(&demand);
  }

  AllocationProgram build() {
    int group = 0;
    for (const auto& [model, demands] : by_model_) {
      add_columns(model, demands, group++);
      add_demand_rows(model, demands);
    }
    add_quota_rows();
    return std::move(made_);
  }

 private:
  using Demands = std::vector<const Demand*>;

  // Per hour of a replica that serves all it can: of its model's requests, the mean answer.
  static double egress(const Entry& entry, const Variant& variant, const Demands& demands) {
    double rate = 0;
    double kb_per_s = 0;
    for (const Demand* demand : demands) {
      rate += demand->rate;
      kb_per_s += demand->rate * demand->answer_kb;
    }
    constexpr double kKbPerGb = 1e6;
    return variant.rate * (kb_per_s / rate) * kSecondsPerHour / kKbPerGb * entry.egress_per_gb;
  }

  int running(const Entry& entry, const Variant& variant) const {
    int replicas = 0;
    for (const Running& one : needs_.running) {
      if (one.entry == entry.name && one.variant == variant.name) replicas += one.replicas;
    }
    return replicas;
  }

  void add_columns(const std::string& model, const Demands& demands, int group) {
    for (size_t v = 0; v < needs_.variants.size(); ++v) {
      const Variant& variant = needs_.variants[v];
      if (variant.model != model) continue;
      for (size_t e = 0; e < needs_.entries.size(); ++e) {
        const Entry& entry = needs_.entries[e];
        const bool is_permitted =
            std::ranges::any_of(demands, [&](const Demand* d) { return d->permits(entry); });
        if (entry.machine != variant.machine || entry.away || !is_permitted) continue;
        // A reserved machine is paid for either way, so using it is free.
        const double machines = entry.kind == Kind::kReserved ? 0 : entry.price * variant.machines;
        const double cost = machines + egress(entry, variant, demands);
        const Column column{
            .entry = static_cast<int>(e), .variant = static_cast<int>(v), .is_running = false};
        const double pays_back_h = 2 * entry.min_billing_s / kSecondsPerHour;
        const double start = needs_.running.empty() ? 0 : needs_.switch_cost / pays_back_h;
        add_column(column, cost + start, group);
        const int there = running(entry, variant);
        if (there == 0) continue;
        add_column({column.entry, column.variant, true}, cost, group);
        made_.program.rows.push_back({.terms = {{last_column(), -1}}, .at_least = -1.0 * there});
        made_.meanings.push_back({.kind = RowMeaning::Kind::kRunning});
      }
    }
  }
  void add_column(Column column, double cost, int group) {
    made_.columns.push_back(column);
    made_.program.costs.push_back(cost);
    made_.program.groups.push_back(group);
  }
  int last_column() const { return static_cast<int>(made_.columns.size()) - 1; }

  // A replica serves any class that permits its place. So classes together need what they sum to
  // from the places that permit one of them (Hall): 3/s from "eu" and 4/s from anywhere are met if
  // "eu" has 3/s and all places have 7/s. Of sets with the same places, the largest sum counts.
  void add_demand_rows(const std::string& model, const Demands& demands) {
    struct Set {
      double rate = 0;
      std::string residency;
    };
    std::map<std::vector<bool>, Set> sets;
    for (unsigned mask = 1; mask < 1u << demands.size(); ++mask) {
      std::vector<bool> places(needs_.entries.size(), false);
      double rate = 0;
      std::set<std::string> tags;
      bool is_anywhere = false;
      for (size_t d = 0; d < demands.size(); ++d) {
        if ((mask >> d & 1u) == 0) continue;
        rate += demands[d]->rate;
        is_anywhere = is_anywhere || demands[d]->residency.empty();
        tags.insert(demands[d]->residency.begin(), demands[d]->residency.end());
        for (size_t e = 0; e < places.size(); ++e) {
          places[e] = places[e] || demands[d]->permits(needs_.entries[e]);
        }
      }
      Set& set = sets[places];
      if (rate <= set.rate) continue;
      set = {rate, is_anywhere ? "" : fmt::format("{}", fmt::join(tags, ", "))};
    }
    for (const auto& [places, set] : sets) {
      RowMeaning meaning{.model = model, .residency = set.residency, .rate = set.rate};
      add_demand_row(places, set.rate, meaning);
      add_survival_rows(places, meaning);
    }
  }

  void add_survival_rows(const std::vector<bool>& places, RowMeaning meaning) {
    for (const Domain kind : needs_.survive) {
      std::set<std::string> domains;
      for (size_t e = 0; e < places.size(); ++e) {
        if (places[e] && !needs_.entries[e].away) {
          domains.insert(domain_of(needs_.entries[e], kind));
        }
      }
      domains.erase("");
      for (const std::string& domain : domains) {
        std::vector<bool> left = places;
        for (size_t e = 0; e < left.size(); ++e) {
          if (domain_of(needs_.entries[e], kind) == domain) left[e] = false;
        }
        meaning.without = fmt::format("{} {}", domain_name(kind), domain);
        add_demand_row(left, needs_.survive_share * meaning.rate, meaning);
      }
    }
  }

  void add_demand_row(const std::vector<bool>& places, double rate, const RowMeaning& meaning) {
    Row row{.terms = {}, .at_least = rate};
    for (size_t i = 0; i < made_.columns.size(); ++i) {
      const auto entry = static_cast<size_t>(made_.columns[i].entry);
      const Variant& variant = needs_.variants[static_cast<size_t>(made_.columns[i].variant)];
      if (variant.model != meaning.model || !places[entry]) continue;
      row.terms.push_back({static_cast<int>(i), variant.rate * needs_.entries[entry].presence()});
    }
    made_.program.rows.push_back(std::move(row));
    made_.meanings.push_back(meaning);
  }

  void add_quota_rows() {
    for (size_t e = 0; e < needs_.entries.size(); ++e) {
      Row row{.terms = {}, .at_least = -1.0 * needs_.entries[e].quota};
      for (size_t i = 0; i < made_.columns.size(); ++i) {
        if (static_cast<size_t>(made_.columns[i].entry) != e) continue;
        const auto variant = static_cast<size_t>(made_.columns[i].variant);
        row.terms.push_back({static_cast<int>(i), -1.0 * needs_.variants[variant].machines});
      }
      if (row.terms.empty()) continue;
      made_.program.rows.push_back(std::move(row));
      made_.meanings.push_back({.kind = RowMeaning::Kind::kQuota, .entry = static_cast<int>(e)});
    }
  }

  const FleetNeeds& needs_;
  std::map<std::string, Demands> by_model_;
  AllocationProgram made_;
};

}  // namespace

AllocationProgram make_program(const FleetNeeds& needs) {
  return ProgramBuilder(needs).build();
}

}  // namespace pelton::capacity
