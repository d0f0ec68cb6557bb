#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "report/comparison.h"
#include "report/html_page.h"
#include "report/html_report.h"
#include "report/plot.h"

namespace pelton::report {
namespace {

constexpr size_t kSetupsMax = 12;  // curves in one plot that eyes can still follow

Plot trend_plot(const Figure& figure, const std::vector<NamedResult>& results,
                const std::vector<std::string>& setups) {
  Plot plot{.title = std::string(figure.name),
            .x_label = "results, the newest at the right",
            .y_label = std::string(figure.name),
            .series = {}};
  for (size_t s = 0; s < std::min(setups.size(), kSetupsMax); ++s) {
    PlotSeries series{.name = setups[s],
                      .points = {},
                      .shape = PlotSeries::Shape::kLineAndDots,
                      .colour = static_cast<int>(s) % kPageColours};
    for (size_t i = 0; i < results.size(); ++i) {
      const std::optional<double> value = figure_of(results[i].json, figure.key);
      if (results[i].name != setups[s] || !value) continue;
      series.points.push_back({static_cast<double>(i + 1), *value,
                               fmt::format("{}: {}", results[i].json.string("date").value_or(""),
                                           short_number(*value))});
    }
    plot.series.push_back(std::move(series));
  }
  return plot;
}

}  // namespace

std::string html_trends(const std::string& title, const std::vector<NamedResult>& results) {
  std::vector<std::string> setups;
  for (const NamedResult& result : results) {
    if (std::find(setups.begin(), setups.end(), result.name) == setups.end()) {
      setups.push_back(result.name);
    }
  }
  std::string out = page_begin(title) + "<div class=\"plots\">\n";
  for (const char* key : {"output_throughput", "median_ttft_ms", "p99_ttft_ms", "median_tpot_ms",
                          "p99_itl_ms", "median_e2el_ms"}) {
    for (const Figure& figure : kFigures) {
      if (figure.key == key) out += plot_figure(trend_plot(figure, results, setups));
    }
  }
  return out + "</div>\n</main></body></html>\n";
}

}  // namespace pelton::report
