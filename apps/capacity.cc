// pelton capacity plan: which replicas should stand where, from a file of machines and demands.
#include <string>

#include <fmt/format.h>

#include "apps/input.h"
#include "apps/verbs.h"
#include "capacity/allocation.h"
#include "capacity/capacity_file.h"
#include "capacity/explanation.h"
#include "capacity/plan_report.h"

namespace pelton::apps {
namespace {

Result<void> run(const cli::Arguments& arguments) {
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

}  // namespace

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
          .run = run};
}

}  // namespace pelton::apps
