// pelton capacity plan: which replicas should stand where, from a file of machines and demands;
// pelton availability: what share of the requests such a fleet serves.
#include <string>

#include <fmt/format.h>

#include "apps/input.h"
#include "apps/verbs.h"
#include "capacity/allocation.h"
#include "capacity/availability.h"
#include "capacity/capacity_file.h"
#include "capacity/explanation.h"
#include "capacity/plan_report.h"

namespace pelton::apps {
namespace {

Result<void> run_capacity(const cli::Arguments& arguments) {
  TRY_ASSIGN(capacity::FleetNeeds needs, capacity::read_needs(arguments.text("--config")));
  for (const std::string& name : arguments.list("--without")) {
    if (capacity::take_away(needs, name) > 0) continue;
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--without {}: no [[capacity]] has this name, provider, region "
                             "(PROVIDER/REGION) or zone (PROVIDER/REGION/ZONE)",
                             name),
                 "without"};
  }
  const capacity::Plan plan = capacity::allocate(needs);
  const bool is_json = arguments.has("--json");
  if (!plan.is_possible()) {
    if (is_json) TRY(write_output(capacity::plan_json(needs, plan, nullptr).dump() + "\n"));
    return Error{
        ErrorCode::kDoesNotFit, "no plan keeps all: " + capacity::shortfall_text(plan), {}};
  }
  capacity::Explanation explanation;
  const bool is_explained = arguments.has("--explain");
  if (is_explained) explanation = capacity::explain(needs, plan);
  const capacity::Explanation* const reasons = is_explained ? &explanation : nullptr;
  if (is_json) return write_output(capacity::plan_json(needs, plan, reasons).dump() + "\n");
  return write_text(capacity::plan_text(needs, plan, reasons));
}

Result<void> run_availability(const cli::Arguments& arguments) {
  TRY_ASSIGN(const capacity::FleetNeeds needs, capacity::read_needs(arguments.text("--config")));
  const bool is_running = arguments.has("--running");
  if (is_running && needs.running.empty()) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--running: {} has no [[running]]", arguments.text("--config")),
                 "running"};
  }
  const capacity::Plan plan =
      is_running ? capacity::running_plan(needs) : capacity::allocate(needs);
  if (!plan.is_possible()) {
    return Error{
        ErrorCode::kDoesNotFit, "no plan keeps all: " + capacity::shortfall_text(plan), {}};
  }
  const capacity::Availability found = capacity::availability_of(
      needs, plan, is_running ? capacity::Standing::kFixed : capacity::Standing::kPlanned);
  if (arguments.has("--json")) {
    return write_output(capacity::availability_json(needs, found).dump() + "\n");
  }
  return write_text(capacity::availability_text(needs, found));
}

}  // namespace

cli::Verb availability_verb() {
  return {.name = "availability",
          .summary = "Says what share of a fleet's requests is served, and what to change first.",
          .about =
              "Seconds of downtime a month, term by term: replicas, machines, zones, regions, "
              "reclaims, releases; and what each change would gain and cost. Of the plan that "
              "'pelton capacity plan' makes of the same file, or of its [[running]] replicas.",
          .positionals = {},
          .flags = {{.name = "--config",
                     .value = "FILE",
                     .help = "machines, variants, demands and fault rates: TOML, as "
                             "docs/capacity.md has it",
                     .required = true,
                     .may_be_empty = false},
                    {.name = "--running",
                     .help = "of the replicas in [[running]] instead of the cheapest plan",
                     .kind = cli::Flag::Kind::kSwitch},
                    {.name = "--json", .help = "print JSON", .kind = cli::Flag::Kind::kSwitch}},
          .examples = {"pelton availability --config deploy/capacity.toml",
                       "pelton availability --config deploy/capacity.toml --json"},
          .run = run_availability};
}

cli::Verb capacity_plan_verb() {
  return {.name = "capacity plan",
          .summary = "Finds the cheapest machines that serve a fleet's demand.",
          .about =
              "Within quotas, where data may be, and with a share left when a zone, region or "
              "provider is lost. Exit 5: nothing does, and it says what is missing.",
          .positionals = {},
          .flags = {{.name = "--config",
                     .value = "FILE",
                     .help = "machines, variants and demands: TOML, as docs/capacity.md has it",
                     .required = true,
                     .may_be_empty = false},
                    {.name = "--without",
                     .value = "PLACE",
                     .help = "plan as if this were not there: a [[capacity]]'s name, PROVIDER, "
                             "PROVIDER/REGION or PROVIDER/REGION/ZONE; repeatable",
                     .many = true},
                    {.name = "--explain",
                     .help = "say for each placement its runner-up and what would change it, for "
                             "each loss what is left",
                     .kind = cli::Flag::Kind::kSwitch},
                    {.name = "--json", .help = "print JSON", .kind = cli::Flag::Kind::kSwitch}},
          .examples = {"pelton capacity plan --config deploy/capacity.toml --explain",
                       "pelton capacity plan --config deploy/capacity.toml --without north/eu/2"},
          .run = run_capacity};
}

}  // namespace pelton::apps
