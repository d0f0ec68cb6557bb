// pelton bench compare: results of load tests side by side.
#include <algorithm>
#include <filesystem>
#include <iterator>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "apps/input.h"
#include "apps/load_flags.h"
#include "apps/verbs.h"
#include "base/file.h"
#include "report/html_report.h"

namespace pelton::apps {
namespace {

constexpr size_t kResultBytesMax = size_t{256} << 20;

// The runs of a sweep that `pelton simulate --scenario NAME --json FILE` has played, by the names
// that load tests give their figures. Empty: it is no such file.
std::vector<report::NamedResult> sweep_results(const Json& json, const std::string& file) {
  constexpr std::pair<const char*, const char*> kNames[] = {
      {"output_tokens_per_s", "output_throughput"},
      {"late", "late"},
      {"replica_hours", "replica_hours"}};
  constexpr std::pair<const char*, const char*> kSeconds[] = {{"ttft_p50_s", "median_ttft_ms"},
                                                              {"ttft_p99_s", "p99_ttft_ms"}};
  std::vector<report::NamedResult> results;
  const Json* const runs = json.find("runs");
  if (!json.string("scenario") || runs == nullptr || !runs->is_array()) return results;
  for (const Json& run : runs->as_array()) {
    const Json* const figures = run.find("figures");
    const std::optional<double> value = run.number("value");
    if (figures == nullptr || !value) return {};
    Json result(Json::Object{});
    for (const auto& [theirs, ours] : kNames) {
      if (const auto figure = figures->number(theirs)) result.set(ours, *figure);
    }
    for (const auto& [theirs, ours] : kSeconds) {
      if (const auto figure = figures->number(theirs)) result.set(ours, *figure * 1000);
    }
    const double failed = figures->number("lost").value_or(0) + figures->number("left").value_or(0);
    result.set("failed", failed);
    const std::string group = std::filesystem::path(file).stem().string();
    results.push_back(
        {.name = fmt::format("{} {:g}", group, *value), .group = group, .json = std::move(result)});
  }
  return results;
}

// One result, or one in each line, as --append-result writes them; or a sweep's.
Result<void> read_results(std::string_view text, const std::string& file,
                          std::vector<report::NamedResult>& results) {
  const Result<Json> whole = Json::parse(text);
  const bool is_one = whole.ok();
  if (is_one) {
    std::vector<report::NamedResult> sweep = sweep_results(*whole, file);
    std::ranges::move(sweep, std::back_inserter(results));
    if (!sweep.empty()) return {};
  }
  for (size_t line = 1; !text.empty(); ++line) {
    const size_t end = is_one ? text.size() : std::min(text.find('\n'), text.size());
    const std::string name = is_one ? file : fmt::format("{}:{}", file, line);
    if (text.substr(0, end).find_first_not_of(" \t\r\n") != std::string_view::npos) {
      TRY_ASSIGN(Json json, report::parse_result(text.substr(0, end), name));
      results.push_back(report::named_result(std::move(json), name));
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return {};
}

Result<void> run(const cli::Arguments& arguments) {
  std::vector<report::NamedResult> results;
  for (const std::string& file : arguments.list("FILE")) {
    const Result<std::string> text = base::read_file(file, kResultBytesMax);
    if (!text) return Error{ErrorCode::kIo, text.error().message, {}};
    TRY(read_results(*text, file, results));
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
      .about =
          "Figures side by side, each with its change against the first file's. Sweeps that\n"
          "`pelton simulate --scenario NAME --json FILE` has played are compared run by run.",
      .positionals = {{.name = "FILE",
                       .help = "result files, as --save-result and --append-result write them",
                       .many = true}},
      .flags = {text_flag("--html", "FILE", "also a report with plots, whole in one file")},
      .examples = {"pelton bench compare before.json after.json --html compared.html"},
      .run = run,
  };
}

}  // namespace pelton::apps
