// pelton bench history: the results that --history has kept.
#include <fmt/format.h>

#include "apps/input.h"
#include "apps/load_flags.h"
#include "apps/verbs.h"
#include "base/file.h"
#include "report/history.h"
#include "report/html_report.h"

namespace pelton::apps {
namespace {

Result<void> run_bench_history(const cli::Arguments& arguments) {
  TRY_ASSIGN(const report::History history, report::History::open_existing(arguments.text("FILE")));
  TRY_ASSIGN(const std::vector<report::PastResult> results,
             history.newest(static_cast<int>(arguments.integer("--count"))));
  if (arguments.has("--html")) {
    std::vector<report::NamedResult> named;
    for (auto past = results.rbegin(); past != results.rend(); ++past) {
      named.push_back(report::named_result(past->json, std::to_string(past->id)));
    }
    const std::string& file = arguments.text("--html");
    TRY(base::write_file(file, report::html_trends("Load tests over time", named)));
    fmt::print(stderr, "report written to {}\n", file);
  }
  return write_text(report::history_text(results, output_columns()));
}

}  // namespace

cli::Verb bench_history_verb() {
  return {
      .name = "bench history",
      .summary = "Lists the results of load tests that --history has kept.",
      .about = "The file is SQLite: a table 'results' with date, setup and the result as JSON.",
      .positionals = {{"FILE", "as given to `bench serve --history`"}},
      .flags = {count_flag("--count", "N", "the newest so many", "20", 1, 1e6),
                text_flag("--html", "FILE", "also a page with their figures over time")},
      .examples = {"pelton bench history bench.db"},
      .run = run_bench_history,
  };
}

}  // namespace pelton::apps
