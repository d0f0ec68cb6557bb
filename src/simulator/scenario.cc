#include "simulator/scenario.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/file.h"
#include "cli/command_line.h"
#include "gateway/config_table.h"
#include "simulator/scenario_files.h"

namespace pelton::simulator {
namespace {

using cli::TomlNode;
using gateway::ConfigTable;

constexpr size_t kBytesMax = size_t{1} << 20;
constexpr size_t kSweepMax = 64;

Result<Json> json_of(const TomlNode& node, const std::string& file) {
  switch (node.kind) {
    case TomlNode::Kind::kBoolean:
      return Json(node.boolean);
    case TomlNode::Kind::kInteger:
      return Json(node.integer);
    case TomlNode::Kind::kNumber:
      return Json(node.number);
    case TomlNode::Kind::kText:
      return Json(node.text);
    case TomlNode::Kind::kList: {
      Json::Array items;
      for (const TomlNode& one : node.items) {
        TRY_ASSIGN(Json item, json_of(one, file));
        items.push_back(std::move(item));
      }
      return Json(std::move(items));
    }
    case TomlNode::Kind::kTable: {
      Json::Object members;
      for (const cli::TomlMember& one : node.members) {
        TRY_ASSIGN(Json value, json_of(one.value, file));
        members.push_back({one.name, std::move(value)});
      }
      return Json(std::move(members));
    }
    case TomlNode::Kind::kOther:
      break;
  }
  return cli::bad_toml(file, node.line, "dates and times are of no use in a scenario");
}

Result<void> read_json(const TomlNode& tree, const char* key, TomlNode::Kind kind,
                       const std::string& file, std::optional<Json>& into) {
  const TomlNode* const node = tree.find(key);
  if (node == nullptr) return {};
  if (node->kind != kind) {
    return cli::bad_toml(
        file, node->line,
        fmt::format("'{}' must be a {}", key, kind == TomlNode::Kind::kTable ? "table" : "list"));
  }
  TRY_ASSIGN(into, json_of(*node, file));
  return {};
}

using Flags = std::vector<std::pair<std::string, std::string>>;

Result<void> read_flags(const TomlNode& tree, const std::string& file, Flags& flags) {
  const TomlNode* const node = tree.find("flags");
  if (node == nullptr) return {};
  if (node->kind != TomlNode::Kind::kTable) {
    return cli::bad_toml(file, node->line, "'flags' must be a table");
  }
  for (const cli::TomlMember& one : node->members) {
    const auto bad = [&](const char* what) {
      return cli::bad_toml(file, one.line, fmt::format("flags: '{}' {}", one.name, what));
    };
    // They would lead to another scenario, or to nowhere.
    if (one.name == "scenario" || one.name == "list") return bad("has no place in a scenario");
    // Whoever plays a file of somebody else's says himself what is written where.
    if (one.name == "html" || one.name == "json" || one.name == "record-facts") {
      return bad("writes a file, which a scenario may not: give it beside --scenario");
    }
    std::string text;
    switch (one.value.kind) {
      case TomlNode::Kind::kBoolean:
        text = one.value.boolean ? "true" : "false";
        break;
      case TomlNode::Kind::kInteger:
        text = std::to_string(one.value.integer);
        break;
      case TomlNode::Kind::kNumber:
        text = fmt::format("{}", one.value.number);
        break;
      case TomlNode::Kind::kText:
        text = one.value.text;
        break;
      default:
        return bad("must be a number, a text, true or false");
    }
    flags.emplace_back("--" + one.name, std::move(text));
  }
  return {};
}

Result<void> read_fronts(const TomlNode& tree, const std::string& file, Scenario& scenario) {
  const TomlNode* const node = tree.find("front");
  if (node == nullptr) return {};
  constexpr size_t kFrontsMax = 16;
  if (node->kind != TomlNode::Kind::kList || node->items.size() < 2 ||
      node->items.size() > kFrontsMax) {
    return cli::bad_toml(
        file, node->line,
        fmt::format("'front' must stand there twice, or up to {} times, as [[front]]", kFrontsMax));
  }
  if (!scenario.sweep) return cli::bad_toml(file, node->line, "'front' needs a [sweep]");
  for (const TomlNode& one : node->items) {
    const ConfigTable table(one, "a front", file);
    TRY(table.expect_only({"name", "flags"}));
    Front& front = scenario.fronts.emplace_back();
    TRY(table.read_name("name", front.name));
    TRY(read_flags(one, file, front.flags));
  }
  return {};
}

Result<void> read_sweep(const TomlNode& node, const ConfigTable& table, SweptFlag& sweep) {
  TRY(table.expect_only({"flag", "values"}));
  TRY(table.read_name("flag", sweep.flag));
  sweep.flag.insert(0, "--");
  const TomlNode* const values = node.find("values");
  if (values == nullptr || values->kind != TomlNode::Kind::kList || values->items.empty() ||
      values->items.size() > kSweepMax) {
    return table.bad("values", fmt::format("must be a list of 1 to {} numbers", kSweepMax));
  }
  for (const TomlNode& one : values->items) {
    const bool is_number =
        one.kind == TomlNode::Kind::kInteger || one.kind == TomlNode::Kind::kNumber;
    if (!is_number || !std::isfinite(one.number)) {
      return table.bad("values", "must hold finite numbers only");
    }
    if (!sweep.values.empty() && one.number <= sweep.values.back()) {
      return table.bad("values", "must rise from one to the next");
    }
    sweep.values.push_back(one.number);
  }
  return {};
}

Result<void> read_compared(const ConfigTable& table, ComparedFigure& compared) {
  TRY(table.expect_only({"figure", "value"}));
  TRY(table.read_name("figure", compared.figure));
  TRY(table.read("value", {1e-9, 1e18}, compared.value));
  if (compared.value > 0) return {};
  return table.bad("value", "is missing: what was published");
}

Result<void> read_efficiency(const ConfigTable& table, Scenario& scenario) {
  TRY(table.expect_only({"bandwidth", "compute"}));
  TRY(table.read("bandwidth", {0.001, 1}, scenario.bandwidth));
  return table.read("compute", {0.001, 1}, scenario.compute);
}

}  // namespace

Result<Scenario> parse_scenario(std::string_view text, const std::string& file) {
  TRY_ASSIGN(const TomlNode tree, cli::parse_toml(text, file));
  const ConfigTable table(tree, "the scenario", file);
  TRY(table.expect_only({"title", "source", "published", "assumed", "model", "table", "efficiency",
                         "faults", "fault_rates", "compare", "flags", "workload", "scale", "sweep",
                         "front"}));
  Scenario scenario{.name = file};
  TRY(table.read("title", scenario.title));
  TRY(table.read("source", scenario.source));
  TRY(table.read("published", scenario.published));
  TRY(table.read("assumed", scenario.assumed));
  TRY(table.read("model", scenario.model));
  TRY(table.read("table", scenario.table));
  if (scenario.title.empty()) return cli::bad_toml(file, 1, "'title' is missing");
  TRY(table.read_table("efficiency",
                       [&](const ConfigTable& one) { return read_efficiency(one, scenario); }));
  TRY(table.read_table("compare", [&](const ConfigTable& one) {
    return read_compared(one, scenario.compared.emplace());
  }));
  TRY(table.read_table("sweep", [&](const ConfigTable& one) {
    return read_sweep(*tree.find("sweep"), one, scenario.sweep.emplace());
  }));
  TRY(table.read_table("scale", [&](const ConfigTable& one) {
    return gateway::read_scale(one, scenario.scaling.emplace());
  }));
  TRY(read_flags(tree, file, scenario.flags));
  TRY(read_fronts(tree, file, scenario));
  TRY(read_json(tree, "workload", TomlNode::Kind::kTable, file, scenario.workload));
  TRY(read_json(tree, "faults", TomlNode::Kind::kList, file, scenario.faults));
  TRY(read_json(tree, "fault_rates", TomlNode::Kind::kList, file, scenario.fault_rates));
  if (scenario.table.empty() == scenario.model.empty()) {
    return cli::bad_toml(file, 1, "a scenario needs a 'model' or a 'table', one of them");
  }
  return scenario;
}

std::vector<Scenario> built_in_scenarios() {
  std::vector<Scenario> all;
  for (const ScenarioFile& file : scenario_files()) {
    Result<Scenario> scenario = parse_scenario(file.text, std::string(file.name));
    CHECK(scenario.ok(), "a scenario that is compiled in is not sound");
    all.push_back(std::move(*scenario));
  }
  return all;
}

Result<Scenario> find_scenario(const std::string& name_or_file) {
  std::vector<std::string> names;
  for (const ScenarioFile& file : scenario_files()) {
    if (file.name == name_or_file) return parse_scenario(file.text, name_or_file);
    names.emplace_back(file.name);
  }
  const bool is_file =
      name_or_file.find('/') != std::string::npos || name_or_file.ends_with(".toml");
  if (is_file) {
    const Result<std::string> text = base::read_file(name_or_file, kBytesMax);
    // An input that is missing is no missing model.
    if (!text.ok()) return Error{ErrorCode::kIo, text.error().message, "scenario"};
    return parse_scenario(*text, name_or_file);
  }
  const std::optional<std::string> near = cli::nearest(name_or_file, names);
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("there is no scenario '{}'{}; --list lists them, and a file's name ends "
                           "with .toml",
                           name_or_file, near ? "; did you mean '" + *near + "'?" : ""),
               "scenario"};
}

}  // namespace pelton::simulator
