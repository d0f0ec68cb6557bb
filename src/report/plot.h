// Plots as SVG, drawn here: no library, no script, nothing fetched. Colours come from the style
// sheet of the page around (classes s0 to s7). Pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace pelton::report {

struct PlotPoint {
  double x = 0;
  double y = 0;
  std::string note;  // shown when the mouse rests on its dot; empty: its numbers
};

struct PlotSeries {
  enum class Shape { kLine, kSteps, kDots, kLineAndDots };
  std::string name;
  std::vector<PlotPoint> points;
  Shape shape = Shape::kLine;
  int colour = 0;
};

struct Plot {
  std::string title;
  std::string x_label;
  std::string y_label;
  bool x_log = false;  // points at or below 0 are left out then
  bool y_from_zero = true;
  std::vector<PlotSeries> series;
};

// The picture alone: <svg>…</svg>, as wide as its place. Points that are not finite are left out;
// without any point it says so.
std::string plot_svg(const Plot& plot);

// With title and legend: <figure>…</figure>.
std::string plot_figure(const Plot& plot);

std::string html_escape(std::string_view text);

// Round numbers for an axis from `least` to `most`, at most `count_max` + 2 of them.
std::vector<double> linear_ticks(double least, double most, int count_max);
std::vector<double> log_ticks(double least, double most);

// 1234.5 -> "1.23k", 0.0421 -> "0.042": three digits are enough beside an axis.
std::string short_number(double value);

}  // namespace pelton::report
