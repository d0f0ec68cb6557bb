// The figures by which results are compared: which, in which unit, and which way is better. Shared
// by tables, pages and the history.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace pelton::report {

struct Figure {
  std::string_view key;  // in result files
  std::string_view name;
  bool less_is_better = true;
  double tells_from = 0;  // differences below this many of its units are nobody's business
};

inline constexpr std::array<Figure, 19> kFigures = {{
    {"request_throughput", "requests/s", false, 0},
    {"request_goodput", "goodput, requests/s", false, 0},
    {"output_throughput", "output tokens/s", false, 0},
    {"total_token_throughput", "all tokens/s", false, 0},
    {"tokens_per_s_per_user", "tokens/s a user", false, 0},
    {"mean_ttft_ms", "TTFT mean, ms", true, 1},
    {"median_ttft_ms", "TTFT median, ms", true, 1},
    {"p99_ttft_ms", "TTFT P99, ms", true, 1},
    {"median_tpot_ms", "TPOT median, ms", true, 0.1},
    {"p99_tpot_ms", "TPOT P99, ms", true, 0.1},
    {"median_itl_ms", "ITL median, ms", true, 0.1},
    {"p99_itl_ms", "ITL P99, ms", true, 0.1},
    {"median_e2el_ms", "E2EL median, ms", true, 1},
    {"p99_e2el_ms", "E2EL P99, ms", true, 1},
    {"failed", "failed requests", true, 0},
    // Of fleets that were simulated.
    {"late", "late requests", true, 0},
    {"late_percent", "late, %", true, 0},
    {"lost_percent", "lost, %", true, 0},
    {"replica_hours", "replica-hours", true, 0},
}};

// Looked for at the top and in what is Pelton's own; a user's speed follows from the median TPOT
// where the file does not have it.
std::optional<double> figure_of(const Json& result, std::string_view key);

// What was asked otherwise, by its names in result files; empty: the same load.
std::vector<std::string> load_differences(const Json& one, const Json& other);

}  // namespace pelton::report
