#include "report/comparison.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "report/html_report.h"

namespace pelton::report {
namespace {

constexpr size_t kNameColumns = 22;

std::string cut(const std::string& name) {
  return name.size() <= kNameColumns ? name : name.substr(0, kNameColumns - 2) + "..";
}

// "+12.3 %", with a mark where it got clearly worse.
std::string change(const Figure& figure, double from, double to) {
  if (from == 0) return to == 0 ? "" : "new";
  const double share = (to - from) / std::abs(from);
  const bool worse = figure.less_is_better ? share > 0.05 : share < -0.05;
  const bool matters = std::abs(to - from) >= figure.tells_from;
  return fmt::format("{:+.1f} %{}", share * 100, worse && matters ? " !" : "");
}

}  // namespace

std::optional<double> figure_of(const Json& result, std::string_view key) {
  if (const std::optional<double> value = result.number(key)) return value;
  if (const Json* own = result.find("pelton")) {
    if (const std::optional<double> value = own->number(key)) return value;
  }
  if (key == "tokens_per_s_per_user") {
    const std::optional<double> tpot = result.number("median_tpot_ms");
    if (tpot && *tpot > 0) return 1000 / *tpot;
  }
  return std::nullopt;
}

std::string comparison_text(const std::vector<NamedResult>& results) {
  std::string out = fmt::format("{:<22}", "");
  for (const NamedResult& result : results) out += fmt::format("  {:>22}", cut(result.name));
  out += '\n';
  for (const Figure& figure : kFigures) {
    std::string row = fmt::format("{:<22}", figure.name);
    bool any = false;
    std::optional<double> first;
    for (size_t i = 0; i < results.size(); ++i) {
      const std::optional<double> value = figure_of(results[i].json, figure.key);
      any = any || value.has_value();
      if (i == 0) first = value;
      std::string cell = value ? fmt::format("{:.2f}", *value) : "-";
      if (i > 0 && value && first) cell += fmt::format(" {:>10}", change(figure, *first, *value));
      row += fmt::format("  {:>22}", cell);
    }
    if (any) out += row + "\n";
  }
  return out + "! worse than the first by more than 5 %\n";
}

}  // namespace pelton::report
