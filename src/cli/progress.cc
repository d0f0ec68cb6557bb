#include "cli/progress.h"

#include <algorithm>
#include <cstdio>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "cli/human_size.h"

namespace pelton::cli {
namespace {

constexpr int64_t kRedrawNs = 100'000'000;  // ten times a second is as fast as eyes follow
constexpr int64_t kLineNs = 10'000'000'000;
constexpr int kLineWidth = 100;
constexpr int kBarMin = 5;
constexpr int kBarMax = 30;

std::string amount(Progress::Unit unit, double value) {
  if (unit == Progress::Unit::kBytes) return format_bytes(value);
  return format_count(static_cast<int64_t>(value));
}

}  // namespace

Progress::Progress(std::string label, Unit unit, const base::Clock& clock)
    : Progress(std::move(label), unit, clock,
               [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); }) {}

Progress::Progress(std::string label, Unit unit, const base::Clock& clock, Lines lines)
    : label_(std::move(label)),
      unit_(unit),
      clock_(clock),
      lines_(std::move(lines)),
      terminal_(stderr),
      start_ns_(clock.now_ns()),
      shown_ns_(start_ns_) {}

Progress::~Progress() {
  clear();
}

void Progress::clear() {
  if (std::exchange(drawn_, false)) std::fputs("\r\x1b[K", stderr);
}

void Progress::begin(std::string label, Unit unit) {
  label_ = std::move(label);
  unit_ = unit;
  start_ns_ = clock_.now_ns();
}

void Progress::update(int64_t done, int64_t total) {
  const bool bar = terminal_.interactive();
  const int64_t now = clock_.now_ns();
  const bool is_first_bar = bar && !drawn_;
  if (!is_first_bar && now - shown_ns_ < (bar ? kRedrawNs : kLineNs)) return;
  shown_ns_ = now;
  const double seconds = static_cast<double>(now - start_ns_) * 1e-9;
  const int width = bar ? terminal_.width() - 1 : kLineWidth;
  const std::string text = line(label_, unit_, done, total, seconds, width);
  if (!bar) return lines_(text);
  drawn_ = true;
  std::fprintf(stderr, "\r%s\x1b[K", text.c_str());
  std::fflush(stderr);
}

std::string Progress::line(const std::string& label, Unit unit, int64_t done, int64_t total,
                           double seconds, int width) {
  const double share =
      total > 0 ? std::clamp(static_cast<double>(done) / static_cast<double>(total), 0.0, 1.0) : 0;
  const bool is_timed = seconds > 0.2 && done > 0;
  const double rate = is_timed ? static_cast<double>(done) / seconds : 0;
  std::vector<std::string> facts;
  if (total > 0) facts.push_back(fmt::format("{:3.0f}%", share * 100));
  if (is_timed && done < total) {
    facts.push_back(
        fmt::format("{} left", format_duration(static_cast<double>(total - done) / rate)));
  }
  if (total > 0) {
    facts.push_back(fmt::format("{} of {}", amount(unit, static_cast<double>(done)),
                                amount(unit, static_cast<double>(total))));
  }
  if (is_timed) facts.push_back(fmt::format("{}/s", amount(unit, rate)));

  // A label is short; one that is not leaves half of the line.
  std::string text = label.substr(0, static_cast<size_t>(std::max(width, 0)) / 2);
  std::string tail;
  for (const std::string& fact : facts) {
    if (static_cast<int>(text.size() + tail.size() + fact.size()) + 2 > width) break;
    tail += "  " + fact;
  }
  const int room = width - static_cast<int>(text.size() + tail.size()) - 4;
  if (total > 0 && room >= kBarMin) {
    const int bar = std::min(room, kBarMax);
    const int full = static_cast<int>(share * bar);
    text += fmt::format("  [{:=<{}}{:<{}}]", "", full, "", bar - full);
  }
  return text + tail;
}

}  // namespace pelton::cli
