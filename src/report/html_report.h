// Results of load tests as one HTML file with plots, that opens offline: no script, no font,
// nothing fetched (its content policy forbids it), readable on a phone. Made from result files
// alone, so vLLM's own can stand beside ours. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"

namespace pelton::report {

struct NamedResult {
  std::string name;   // in legends and tables
  std::string group;  // results of one group are points of one curve
  Json json;          // as parse_result gave it
};

// What a result is called: its label, or backend, model, rate and concurrency. Groups by label and
// model.
NamedResult named_result(Json json, const std::string& fallback);

std::string html_report(const std::string& title, const std::vector<NamedResult>& results);

// Figures over time: `results` from the oldest to the newest, a curve for each name.
std::string html_trends(const std::string& title, const std::vector<NamedResult>& results);

// Indices of the results that no other beats in both, by rising x: more tokens per second for a
// user and more for the whole.
std::vector<size_t> pareto_front(const std::vector<std::pair<double, double>>& points);

// A table for terminals: each result's figures, and how they compare with the first one's.
// Within `width` columns; 0: as many as it takes. Only of results of the same load as the first's
// anything is called worse.
std::string comparison_text(const std::vector<NamedResult>& results, int width);

}  // namespace pelton::report
