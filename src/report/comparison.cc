#include "report/comparison.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/terminal_text.h"
#include "report/html_report.h"

namespace pelton::report {
namespace {

constexpr size_t kNameColumns = 22;

std::string cut(const std::string& name) {
  const std::string plain = base::one_line(name);
  if (base::text_columns(plain) <= static_cast<int>(kNameColumns)) return plain;
  // The end of a path distinguishes files.
  size_t from = plain.size() - (kNameColumns - 2);
  while (from < plain.size() && (static_cast<unsigned char>(plain[from]) & 0xC0) == 0x80) ++from;
  return ".." + plain.substr(from);
}

// "+12.3 %", with a mark where it got clearly worse; `same_load`: otherwise it only differs.
std::string change(const Figure& figure, double from, double to, bool same_load) {
  if (from == 0) return to == 0 ? "" : "new";
  const double share = (to - from) / std::abs(from);
  const bool worse = figure.less_is_better ? share > 0.05 : share < -0.05;
  const bool matters = std::abs(to - from) >= figure.tells_from;
  return fmt::format("{:+.1f} %{}", share * 100, worse && matters && same_load ? " !" : "");
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

std::vector<std::string> load_differences(const Json& one, const Json& other) {
  const auto at = [](const Json& result, const char* key) {
    const Json* found = result.find(key);
    const Json* own = result.find("pelton");
    return found == nullptr && own != nullptr ? own->find(key) : found;
  };
  std::vector<std::string> differences;
  for (const char* key : {"max_concurrency", "request_rate", "num_prompts", "dataset_name",
                          "input_len", "output_len"}) {
    const Json* const mine = at(one, key);
    const Json* const theirs = at(other, key);
    // Others' files do not say all of it.
    if (mine == nullptr || theirs == nullptr) continue;
    const bool numbers = mine->is_number() && theirs->is_number();
    const bool equal =
        numbers ? mine->as_number() == theirs->as_number() : mine->dump() == theirs->dump();
    if (!equal) differences.emplace_back(key);
  }
  return differences;
}

std::string comparison_text(const std::vector<NamedResult>& results, int width) {
  base::TextTable table{.headers = {""}, .rows = {}};
  std::vector<bool> same_load;
  std::string notes;
  for (const NamedResult& result : results) {
    table.headers.push_back(cut(result.name));
    const std::vector<std::string> differences =
        load_differences(results.front().json, result.json);
    same_load.push_back(differences.empty());
    if (differences.empty()) continue;
    notes += base::wrapped_text(
        fmt::format("{}: another load than the first ({}), so nothing is called worse",
                    cut(result.name), fmt::join(differences, ", ")),
        width, 0);
  }
  for (const Figure& figure : kFigures) {
    std::vector<std::string> row{std::string(figure.name)};
    bool any = false;
    std::optional<double> first;
    for (size_t i = 0; i < results.size(); ++i) {
      const std::optional<double> value = figure_of(results[i].json, figure.key);
      any = any || value.has_value();
      if (i == 0) first = value;
      std::string cell = value ? fmt::format("{:.2f}", *value) : "-";
      if (i > 0 && value && first) {
        cell += fmt::format(" {:>10}", change(figure, *first, *value, same_load[i]));
      }
      row.push_back(std::move(cell));
    }
    if (any) table.rows.push_back(std::move(row));
  }
  const bool marks = std::count(same_load.begin(), same_load.end(), true) > 1;
  return base::text_table(table, width, 0) + notes +
         (marks ? "! worse than the first by more than 5 %\n" : "");
}

}  // namespace pelton::report
