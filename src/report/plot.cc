#include "report/plot.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace pelton::report {
namespace {

// In the picture's own units. Small, so that letters stay readable on a phone.
constexpr double kWidth = 440;
constexpr double kHeight = 290;
constexpr double kLeft = 60;
constexpr double kRight = 14;
constexpr double kTop = 10;
constexpr double kBottom = 44;

struct Range {
  double least = 0;
  double most = 1;
};

bool is_shown(const Plot& plot, const PlotPoint& point) {
  return std::isfinite(point.x) && std::isfinite(point.y) && (!plot.x_log || point.x > 0);
}

template <typename Value>
Range range_of(const Plot& plot, const Value& value) {
  bool any = false;
  Range range;
  for (const PlotSeries& series : plot.series) {
    for (const PlotPoint& point : series.points) {
      if (!is_shown(plot, point)) continue;
      const double v = value(point);
      range.least = any ? std::min(range.least, v) : v;
      range.most = any ? std::max(range.most, v) : v;
      any = true;
    }
  }
  // A single value, or what is one but for noise, gets some room around it.
  const double size = std::max(std::abs(range.least), std::abs(range.most));
  if (range.most - range.least > 0.1 * size) return range;
  const double around = size == 0 ? 1 : size * 0.1;
  return {range.least > 0 ? range.least - around : range.least, range.most + around};
}

// Where numbers lie in the picture.
class Frame {
 public:
  explicit Frame(const Plot& plot) : x_log_(plot.x_log) {
    x_ = range_of(plot, [](const PlotPoint& point) { return point.x; });
    y_ = range_of(plot, [](const PlotPoint& point) { return point.y; });
    if (plot.y_from_zero) y_.least = std::min(y_.least, 0.0);
    y_.most += (y_.most - y_.least) * 0.04;
    if (x_log_) {
      x_.least = std::max(x_.least, x_.most * 1e-9);
      if (x_.most / x_.least < 1.5) {
        x_.least /= 1.5;
        x_.most *= 1.5;
      }
    } else if (x_.least > 0 && x_.least < x_.most * 0.5) {
      x_.least = 0;
    }
  }

  double x(double value) const {
    const double share = x_log_ ? std::log(value / x_.least) / std::log(x_.most / x_.least)
                                : (value - x_.least) / (x_.most - x_.least);
    return kLeft + std::clamp(share, 0.0, 1.0) * (kWidth - kLeft - kRight);
  }
  double y(double value) const {
    const double share = (value - y_.least) / (y_.most - y_.least);
    return kHeight - kBottom - std::clamp(share, 0.0, 1.0) * (kHeight - kTop - kBottom);
  }
  std::vector<double> x_ticks() const {
    return x_log_ ? log_ticks(x_.least, x_.most) : linear_ticks(x_.least, x_.most, 6);
  }
  std::vector<double> y_ticks() const { return linear_ticks(y_.least, y_.most, 5); }

 private:
  bool x_log_;
  Range x_;
  Range y_;
};

// Neighbours that three digits would make look alike get as many as it takes.
std::string tick_text(double tick, const std::vector<double>& ticks) {
  const double step = ticks.size() > 1 ? ticks[1] - ticks[0] : 0;
  const double size = std::abs(tick);
  if (step <= 0 || size < 100 || size >= 1e4 || step >= size * 0.01) return short_number(tick);
  return fmt::format("{:.{}f}", tick, std::max(0, static_cast<int>(std::ceil(-std::log10(step)))));
}

void draw_axes(const Plot& plot, const Frame& frame, std::string& out) {
  const double bottom = kHeight - kBottom;
  const std::vector<double> y_ticks = frame.y_ticks();
  const std::vector<double> x_ticks = frame.x_ticks();
  for (const double tick : y_ticks) {
    const double y = frame.y(tick);
    out += fmt::format(R"(<line class="grid" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>)",
                       kLeft, y, kWidth - kRight, y);
    out += fmt::format(R"(<text x="{:.1f}" y="{:.1f}" text-anchor="end">{}</text>)", kLeft - 6,
                       y + 4, tick_text(tick, y_ticks));
  }
  for (const double tick : x_ticks) {
    const double x = frame.x(tick);
    out += fmt::format(R"(<line class="grid" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>)", x,
                       kTop, x, bottom);
    out += fmt::format(R"(<text x="{:.1f}" y="{:.1f}" text-anchor="middle">{}</text>)", x,
                       bottom + 16, tick_text(tick, x_ticks));
  }
  out += fmt::format(R"(<path class="axis" d="M{:.1f} {:.1f}V{:.1f}H{:.1f}"/>)", kLeft, kTop,
                     bottom, kWidth - kRight);
  out += fmt::format(R"(<text class="label" x="{:.1f}" y="{:.1f}" text-anchor="middle">{}</text>)",
                     (kLeft + kWidth - kRight) / 2, kHeight - 8, html_escape(plot.x_label));
  const double middle = (kTop + bottom) / 2;
  out += fmt::format(R"(<text class="label" x="12" y="{:.1f}" text-anchor="middle" )"
                     R"x(transform="rotate(-90 12 {:.1f})">{}</text>)x",
                     middle, middle, html_escape(plot.y_label));
}

std::string path_of(const Plot& plot, const PlotSeries& series, const Frame& frame) {
  std::string path;
  double last_y = 0;
  for (const PlotPoint& point : series.points) {
    if (!is_shown(plot, point)) continue;
    const double x = frame.x(point.x);
    const double y = frame.y(point.y);
    if (path.empty()) {
      path = fmt::format("M{:.1f} {:.1f}", x, y);
    } else if (series.shape == PlotSeries::Shape::kSteps) {
      path += fmt::format("H{:.1f}", x);
      if (y != last_y) path += fmt::format("V{:.1f}", y);
    } else {
      path += fmt::format("L{:.1f} {:.1f}", x, y);
    }
    last_y = y;
  }
  return path;
}

void draw_series(const Plot& plot, const PlotSeries& series, const Frame& frame, std::string& out) {
  using Shape = PlotSeries::Shape;
  if (series.shape != Shape::kDots) {
    out += fmt::format(R"(<path class="line s{}" d="{}"/>)", series.colour,
                       path_of(plot, series, frame));
  }
  if (series.shape != Shape::kDots && series.shape != Shape::kLineAndDots) return;
  for (const PlotPoint& point : series.points) {
    if (!is_shown(plot, point)) continue;
    const std::string note =
        point.note.empty() ? fmt::format("{}, {}", short_number(point.x), short_number(point.y))
                           : point.note;
    out += fmt::format(
        R"(<circle class="dot s{}" cx="{:.1f}" cy="{:.1f}" r="4"><title>{}</title></circle>)",
        series.colour, frame.x(point.x), frame.y(point.y), html_escape(note));
  }
}

bool has_points(const Plot& plot) {
  return std::any_of(plot.series.begin(), plot.series.end(), [&](const PlotSeries& series) {
    return std::any_of(series.points.begin(), series.points.end(),
                       [&](const PlotPoint& point) { return is_shown(plot, point); });
  });
}

}  // namespace

std::string html_escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        // Control characters may stand in names that came from elsewhere.
        out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return out;
}

std::vector<double> linear_ticks(double least, double most, int count_max) {
  if (!(most > least) || !std::isfinite(most - least)) return {};
  const double rough = (most - least) / count_max;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double times : {5.0, 2.0, 1.0}) {
    if (times * power >= rough) step = times * power;
  }
  std::vector<double> ticks;
  for (double i = std::ceil(least / step - 1e-9); i * step <= most * (1 + 1e-12); ++i) {
    ticks.push_back(i == 0 ? 0 : i * step);
    if (ticks.size() > 50) break;
  }
  return ticks;
}

std::vector<double> log_ticks(double least, double most) {
  if (!(least > 0) || !(most > least) || !std::isfinite(most)) return {};
  const double decades = std::log10(most / least);
  if (decades < 0.5) return linear_ticks(least, most, 5);
  const std::vector<double> times = decades > 2.5   ? std::vector<double>{1}
                                    : decades > 1.2 ? std::vector<double>{1, 2, 5}
                                                    : std::vector<double>{1, 2, 3, 5, 7};
  std::vector<double> ticks;
  for (double power = std::pow(10, std::floor(std::log10(least))); power <= most; power *= 10) {
    for (const double one : times) {
      const double tick = one * power;
      if (tick >= least * 0.999 && tick <= most * 1.001) ticks.push_back(tick);
    }
  }
  return ticks;
}

std::string short_number(double value) {
  const double size = std::abs(value);
  if (size >= 1e6) return fmt::format("{:.3g}M", value * 1e-6);
  if (size >= 1e4) return fmt::format("{:.3g}k", value * 1e-3);
  if (size >= 1000) return fmt::format("{:.0f}", value);
  return fmt::format("{:.3g}", value);
}

std::string plot_svg(const Plot& plot) {
  std::string out = fmt::format(R"(<svg viewBox="0 0 {:.0f} {:.0f}" role="img" aria-label="{}">)",
                                kWidth, kHeight, html_escape(plot.title));
  if (has_points(plot)) {
    const Frame frame(plot);
    draw_axes(plot, frame, out);
    for (const PlotSeries& series : plot.series) draw_series(plot, series, frame, out);
  } else {
    out += fmt::format(R"(<text x="{:.0f}" y="{:.0f}" text-anchor="middle">nothing to show</text>)",
                       kWidth / 2, kHeight / 2);
  }
  return out + "</svg>";
}

std::string plot_figure(const Plot& plot) {
  std::string out = "<figure><figcaption>" + html_escape(plot.title) + "</figcaption>\n";
  out += plot_svg(plot);
  out += "<div class=\"legend\">";
  for (const PlotSeries& series : plot.series) {
    if (series.name.empty()) continue;
    out += fmt::format(R"(<span><i class="s{}"></i>{}</span>)", series.colour,
                       html_escape(series.name));
  }
  return out + "</div></figure>\n";
}

}  // namespace pelton::report
