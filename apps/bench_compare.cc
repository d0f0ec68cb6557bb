// pelton bench compare: results of load tests side by side.
#include <fmt/format.h>

#include "apps/input.h"
#include "apps/load_flags.h"
#include "apps/verbs.h"
#include "base/file.h"
#include "report/html_report.h"

namespace pelton::apps {
namespace {

constexpr size_t kResultBytesMax = size_t{256} << 20;

Result<void> run(const cli::Arguments& arguments) {
  std::vector<report::NamedResult> results;
  for (const std::string& file : arguments.list("FILE")) {
    const Result<std::string> text = base::read_file(file, kResultBytesMax);
    if (!text) return Error{ErrorCode::kIo, text.error().message, {}};
    TRY_ASSIGN(Json json, report::parse_result(*text, file));
    results.push_back(report::named_result(std::move(json), file));
  }
  if (arguments.has("--html")) {
    const std::string& file = arguments.text("--html");
    TRY(base::write_file(file, report::html_report("Load tests compared", results)));
    fmt::print(stderr, "report written to {}\n", file);
  }
  return write_text(report::comparison_text(results, output_columns()));
}

}  // namespace

cli::Verb bench_compare_verb() {
  return {
      .name = "bench compare",
      .summary = "Compares results of load tests, ours and vLLM's.",
      .about = "Figures side by side, each with its change against the first file's.",
      .positionals = {{.name = "FILE",
                       .help = "result files, as --save-result writes them",
                       .many = true}},
      .flags = {text_flag("--html", "FILE", "also a report with plots, whole in one file")},
      .examples = {"pelton bench compare before.json after.json --html compared.html"},
      .run = run,
  };
}

}  // namespace pelton::apps
