#include "capacity/allocation.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

namespace pelton::capacity {
namespace {

constexpr int kExactNodes = 20'000;
constexpr int kShortfallNodes = 2'000;

IntegerAnswer solve(const IntegerProgram& program) {
  if (program.costs.size() <= kExactColumnsMax) {
    IntegerAnswer answer = solve_exactly(program, kExactNodes);
    if (answer.state != IntegerAnswer::State::kNotFound) return answer;
  }
  return solve_by_groups(program);
}

std::vector<Placement> placements_of(const AllocationProgram& made,
                                     const std::vector<int>& values) {
  std::vector<Placement> placements;
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] == 0) continue;
    const Column& column = made.columns[i];
    const int running = column.is_running ? values[i] : 0;
    // The column of running ones follows the column of others.
    if (!placements.empty() && placements.back().entry == column.entry &&
        placements.back().variant == column.variant) {
      placements.back().replicas += values[i];
      placements.back().running += running;
      continue;
    }
    placements.push_back({column.entry, column.variant, values[i], running});
  }
  return placements;
}

// The dearest that all rows are kept without, away: at no cost (reserved, or for rounding's sake)
// the search does not mind.
void drop_superfluous(const IntegerProgram& program, std::vector<int>& values) {
  std::vector<size_t> order(values.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(order,
                           [&](size_t a, size_t b) { return program.costs[a] > program.costs[b]; });
  for (const size_t column : order) {
    while (values[column] > 0) {
      --values[column];
      if (keeps_rows(program, values)) continue;
      ++values[column];
      break;
    }
  }
}

double price_per_hour(const FleetNeeds& needs, const AllocationProgram& made,
                      const std::vector<int>& values) {
  double sum = 0;
  for (const Entry& entry : needs.entries) {
    if (entry.kind == Kind::kReserved) sum += entry.price * entry.quota;
  }
  const bool has_running = !needs.running.empty();
  for (size_t i = 0; i < values.size(); ++i) {
    const Column& column = made.columns[i];
    const Entry& entry = needs.entries[static_cast<size_t>(column.entry)];
    double cost = made.program.costs[i];
    if (has_running && !column.is_running) {
      cost -= needs.switch_cost / (2 * entry.min_billing_s / 3600);
    }
    sum += cost * values[i];
  }
  return sum;
}

// The same program where each demand row may be missed, at a price that nothing else comes to: what
// is missed at the least sum over rows, in parts of their demand.
std::vector<int> least_missing(const AllocationProgram& made) {
  IntegerProgram relaxed = made.program;
  std::fill(relaxed.costs.begin(), relaxed.costs.end(), 0.0);
  // One column a row, in thousandths of its demand.
  constexpr double kParts = 1000;
  for (size_t r = 0; r < made.meanings.size(); ++r) {
    if (made.meanings[r].kind != RowMeaning::Kind::kDemand) continue;
    Row& row = relaxed.rows[r];
    row.terms.push_back({static_cast<int>(relaxed.costs.size()), row.at_least / kParts});
    relaxed.costs.push_back(1);
    relaxed.groups.push_back(0);
  }
  IntegerAnswer answer = solve_exactly(relaxed, kShortfallNodes);
  if (answer.state != IntegerAnswer::State::kFound) {
    answer.values.clear();
    for (const double value : solve_relaxed(relaxed).values) {
      answer.values.push_back(static_cast<int>(std::floor(value + 1e-6)));
    }
  }
  answer.values.resize(made.columns.size());
  return answer.values;
}

std::vector<std::string> full_entries(const FleetNeeds& needs, const AllocationProgram& made,
                                      const Row& row, const std::vector<int>& values) {
  std::vector<std::string> full;
  for (size_t r = 0; r < made.meanings.size(); ++r) {
    if (made.meanings[r].kind != RowMeaning::Kind::kQuota) continue;
    const bool is_permitted = std::ranges::any_of(row.terms, [&](const Term& term) {
      return made.columns[static_cast<size_t>(term.column)].entry == made.meanings[r].entry;
    });
    int used = 0;
    int least = needs.entries[static_cast<size_t>(made.meanings[r].entry)].quota;
    for (const Term& term : made.program.rows[r].terms) {
      const auto machines = static_cast<int>(-term.factor);
      used += machines * values[static_cast<size_t>(term.column)];
      least = std::min(least, machines);
    }
    const Entry& entry = needs.entries[static_cast<size_t>(made.meanings[r].entry)];
    if (is_permitted && entry.quota - used < least) full.push_back(entry.name);
  }
  return full;
}

std::vector<Shortfall> shortfalls_of(const FleetNeeds& needs, const AllocationProgram& made,
                                     const std::vector<int>& values) {
  std::vector<Shortfall> shortfalls;
  for (size_t r = 0; r < made.meanings.size(); ++r) {
    const RowMeaning& meaning = made.meanings[r];
    const Row& row = made.program.rows[r];
    if (meaning.kind != RowMeaning::Kind::kDemand) continue;
    double given = 0;
    for (const Term& term : row.terms) {
      given += term.factor * values[static_cast<size_t>(term.column)];
    }
    if (given >= row.at_least * (1 - 1e-9)) continue;
    shortfalls.push_back({.model = meaning.model,
                          .residency = meaning.residency,
                          .without = meaning.without,
                          .wanted = row.at_least,
                          .given = given,
                          .full = full_entries(needs, made, row, values)});
  }
  return shortfalls;
}

Plan allocate_program(const FleetNeeds& needs, const AllocationProgram& made) {
  IntegerAnswer answer = solve(made.program);
  Plan plan;
  if (answer.state != IntegerAnswer::State::kFound) {
    const std::vector<int> values = least_missing(made);
    plan.shortfalls = shortfalls_of(needs, made, values);
    plan.is_exact = answer.state == IntegerAnswer::State::kImpossible;
    if (!plan.shortfalls.empty()) return plan;
    answer.values = values;  // a search that gave up, and nothing is missing
  }
  drop_superfluous(made.program, answer.values);
  plan.placements = placements_of(made, answer.values);
  plan.per_hour = price_per_hour(needs, made, answer.values);
  for (size_t i = 0; i < answer.values.size(); ++i) {
    plan.cost += made.program.costs[i] * answer.values[i];
  }
  plan.bound = std::min(answer.bound, plan.cost);
  plan.is_exact = answer.is_exact();  // what was dropped cost nothing, or it is better still
  return plan;
}

}  // namespace

Plan allocate(const FleetNeeds& needs) {
  return allocate_program(needs, make_program(needs));
}

Plan allocate_with_fewer(const FleetNeeds& needs, const Placement& placement) {
  AllocationProgram made = make_program(needs);
  Row row{.terms = {}, .at_least = 1.0 - placement.replicas};
  for (size_t i = 0; i < made.columns.size(); ++i) {
    const Column& column = made.columns[i];
    if (column.entry == placement.entry && column.variant == placement.variant) {
      row.terms.push_back({static_cast<int>(i), -1});
    }
  }
  made.program.rows.push_back(std::move(row));
  made.meanings.push_back({.kind = RowMeaning::Kind::kRunning});
  return allocate_program(needs, made);
}

}  // namespace pelton::capacity
