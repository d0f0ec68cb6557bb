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

// What `pelton simulate` calls a figure of a fleet, beside the name that load tests give it. Those
// of several seeds have the names of their table.
struct FleetName {
  const char* theirs;
  const char* of_seeds;
  const char* ours;
  double factor = 1;
};
constexpr FleetName kNames[] = {{"output_tokens_per_s", "output tokens/s", "output_throughput"},
                                {"ttft_p50_s", "TTFT p50, s", "median_ttft_ms", 1000},
                                {"ttft_p99_s", "TTFT p99, s", "p99_ttft_ms", 1000},
                                {"late", nullptr, "late"},
                                {nullptr, "late, %", "late_percent"},
                                {nullptr, "lost, %", "lost_percent"},
                                {"replica_hours", "replica-hours", "replica_hours"}};

// Of one run, or the means of a year's runs. What is not known is left out.
Json of_fleet(const Json& figures) {
  Json result(Json::Object{});
  for (const FleetName& name : kNames) {
    if (name.theirs == nullptr) continue;
    const std::optional<double> figure = figures.number(name.theirs);
    if (figure) result.set(name.ours, *figure * name.factor);
  }
  const std::optional<double> lost = figures.number("lost");
  if (lost) result.set("failed", *lost + figures.number("left").value_or(0));
  return result;
}

// The means of several seeds.
Json of_seeds(const Json& figures) {
  Json result(Json::Object{});
  for (const FleetName& name : kNames) {
    const Json* const figure = name.of_seeds == nullptr ? nullptr : figures.find(name.of_seeds);
    const std::optional<double> mean = figure == nullptr ? std::nullopt : figure->number("mean");
    if (mean) result.set(name.ours, *mean * name.factor);
  }
  return result;
}

// What `pelton simulate --json FILE` writes of a sweep, of several seeds and of a year, and
// `pelton whatif --json FILE` of its runs, by the names that load tests give their figures. Empty:
// it is no such file.
std::vector<report::NamedResult> fleet_results(const Json& json, const std::string& file) {
  std::vector<report::NamedResult> results;
  const std::string group = std::filesystem::path(file).stem().string();
  const Json* const figures = json.find("figures");
  if (figures != nullptr && json.number("seeds")) {
    results.push_back({.name = group, .group = group, .json = of_seeds(*figures)});
  } else if (figures != nullptr && json.find("availability") != nullptr) {
    results.push_back({.name = group, .group = group, .json = of_fleet(*figures)});
  }
  const Json* const runs = json.find("runs");
  if (runs == nullptr || !runs->is_array()) return results;
  for (const Json& run : runs->as_array()) {
    const Json* const its = run.find("figures");
    const std::optional<double> value = run.number("value");  // of a sweep
    const std::string name = value ? fmt::format("{:g}", *value) : run.string("name").value_or("");
    if (its == nullptr || name.empty()) return {};
    results.push_back({.name = group + " " + name, .group = group, .json = of_fleet(*its)});
  }
  return results;
}

// One result, or one in each line, as --append-result writes them; or those of a fleet.
Result<void> read_results(std::string_view text, const std::string& file,
                          std::vector<report::NamedResult>& results) {
  const Result<Json> whole = Json::parse(text);
  const bool is_one = whole.ok();
  if (is_one) {
    std::vector<report::NamedResult> fleets = fleet_results(*whole, file);
    std::ranges::move(fleets, std::back_inserter(results));
    if (!fleets.empty()) return {};
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

Result<void> run_bench_compare(const cli::Arguments& arguments) {
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
          "Figures side by side, each with its change against the first file's. Of what\n"
          "`pelton simulate --json FILE` and `pelton whatif --json FILE` have played, sweeps and\n"
          "runs with other knobs are compared one by one, several seeds and years by their means.",
      .positionals = {{.name = "FILE",
                       .help = "result files, as --save-result and --append-result write them",
                       .many = true}},
      .flags = {text_flag("--html", "FILE", "also a report with plots, whole in one file")},
      .examples = {"pelton bench compare before.json after.json --html compared.html"},
      .run = run_bench_compare,
  };
}

}  // namespace pelton::apps
