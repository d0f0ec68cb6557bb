// pelton bench history: the results that --history has kept.
#include "apps/input.h"
#include "apps/load_flags.h"
#include "apps/verbs.h"
#include "report/history.h"

namespace pelton::apps {
namespace {

Result<void> run(const cli::Arguments& arguments) {
  TRY_ASSIGN(const report::History history, report::History::open(arguments.text("FILE")));
  TRY_ASSIGN(const std::vector<report::PastResult> results,
             history.newest(static_cast<int>(arguments.integer("--count"))));
  return write_output(report::history_text(results));
}

}  // namespace

cli::Verb bench_history_verb() {
  return {
      .name = "bench history",
      .summary = "Lists the results of load tests that --history has kept.",
      .about = "The file is SQLite: a table 'results' with date, setup and the result as JSON.",
      .positionals = {{"FILE", "as given to `bench serve --history`"}},
      .flags = {count_flag("--count", "N", "the newest so many", "20", 1, 1e6)},
      .examples = {"pelton bench history bench.db"},
      .run = run,
  };
}

}  // namespace pelton::apps
