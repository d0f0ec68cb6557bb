#include "apps/load_result.h"

#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <sys/resource.h>

#include "apps/input.h"
#include "base/file.h"
#include "report/history.h"

namespace pelton::apps {
namespace {

Result<void> save_result(const cli::Arguments& arguments, const LoadPlan& plan,
                         const std::string& name, const std::string& json) {
  const bool wanted = arguments.has("--save-result") || arguments.has("--save-detailed");
  if (!wanted && plan.result_file.empty()) return {};
  const std::filesystem::path folder = arguments.text("--result-dir");
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  if (failed) {
    return Error{ErrorCode::kIo, fmt::format("{}: {}", folder.string(), failed.message()), {}};
  }
  const std::string file = (folder / (plan.result_file.empty() ? name : plan.result_file)).string();
  const bool appends = arguments.has("--append-result") && std::filesystem::exists(file, failed);
  std::string text = json;
  if (arguments.has("--append-result")) {
    TRY_ASSIGN(const Json result, Json::parse(json));
    text = result.dump();  // a line
  }
  if (appends) {
    std::ofstream out(file, std::ios::app | std::ios::binary);
    out << "\n" << text << std::flush;
    if (!out) return Error{ErrorCode::kIo, fmt::format("{} cannot be added to", file), {}};
  } else {
    TRY(base::write_file(file, text));
  }
  fmt::print(stderr, "result {} {}\n", appends ? "added to" : "written to", file);
  return {};
}

// The result beside those before it, and then among them.
Result<void> remember(const std::string& file, const Json& result) {
  constexpr int kComparedMax = 10;
  TRY_ASSIGN(report::History history, report::History::open(file));
  TRY_ASSIGN(const std::vector<report::PastResult> before, history.alike(result, kComparedMax));
  TRY(history.add(result));
  return write_text(report::regressions_text(report::regressions(result, before), before.size()));
}

}  // namespace

Result<std::vector<report::Condition>> read_conditions(const cli::Arguments& arguments) {
  std::vector<report::Condition> conditions;
  for (const std::string& text : arguments.list("--fail-if")) {
    TRY_ASSIGN(report::Condition condition, report::parse_condition(text));
    conditions.push_back(std::move(condition));
  }
  return conditions;
}

Result<void> check_conditions(const std::vector<report::Condition>& conditions,
                              const Json& result) {
  std::string held;
  for (const report::Condition& condition : conditions) {
    TRY_ASSIGN(const bool holds, report::holds(condition, result));
    if (!holds) continue;
    held += fmt::format("{}{} (it is {:g})", held.empty() ? "" : ", ", condition.text,
                        result.number(condition.key).value_or(0));
  }
  if (held.empty()) return {};
  return Error{ErrorCode::kUnavailable, "--fail-if " + held, {}};
}

Result<Json> keep_result(const cli::Arguments& arguments, const LoadPlan& plan,
                         const LoadTest& test) {
  const bool detailed = arguments.has("--save-detailed");
  const std::string text =
      report::result_json(test.info, test.summary, plan.shown, test.outcome.records, detailed);
  TRY(save_result(arguments, plan, report::result_file_name(test.info), text));
  TRY_ASSIGN(Json json, report::parse_result(text, "the result"));
  if (arguments.has("--history")) TRY(remember(arguments.text("--history"), json));
  return json;
}

Result<void> write_report(const cli::Arguments& arguments, const std::string& title,
                          const std::vector<report::NamedResult>& results) {
  if (!arguments.has("--html")) return {};
  const std::string& file = arguments.text("--html");
  TRY(base::write_file(file, report::html_report(title, results)));
  fmt::print(stderr, "report written to {}\n", file);
  return {};
}

void allow_many_connections() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);  // what is refused shows as connections that cannot be made
}

}  // namespace pelton::apps
