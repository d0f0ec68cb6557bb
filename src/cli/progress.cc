#include "cli/progress.h"

#include <algorithm>
#include <cstdio>

#include <fmt/format.h>

#include "cli/human_size.h"

namespace pelton::cli {
namespace {

constexpr int64_t kRedrawNs = 100'000'000;  // ten times a second is as fast as eyes follow
constexpr int kBarMax = 30;

std::string amount(Progress::Unit unit, double value) {
  if (unit == Progress::Unit::kBytes) return format_bytes(value);
  return format_count(static_cast<int64_t>(value));
}

}  // namespace

Progress::Progress(std::string label, Unit unit, const base::Clock& clock)
    : label_(std::move(label)),
      unit_(unit),
      clock_(clock),
      terminal_(stderr),
      start_ns_(clock.now_ns()) {}

Progress::~Progress() {
  if (drawn_) std::fputs("\r\x1b[K", stderr);
}

void Progress::update(int64_t done, int64_t total) {
  if (!terminal_.interactive()) return;
  const int64_t now = clock_.now_ns();
  if (drawn_ && now - drawn_ns_ < kRedrawNs) return;
  drawn_ = true;
  drawn_ns_ = now;
  const double seconds = static_cast<double>(now - start_ns_) * 1e-9;
  const std::string text = line(label_, unit_, done, total, seconds, terminal_.width() - 1);
  std::fprintf(stderr, "\r%s\x1b[K", text.c_str());
  std::fflush(stderr);
}

std::string Progress::line(const std::string& label, Unit unit, int64_t done, int64_t total,
                           double seconds, int width) {
  const double share =
      total > 0 ? std::clamp(static_cast<double>(done) / static_cast<double>(total), 0.0, 1.0) : 0;
  std::string facts =
      fmt::format("{:3.0f}%  {} of {}", share * 100, amount(unit, static_cast<double>(done)),
                  amount(unit, static_cast<double>(total)));
  if (seconds > 0.2 && done > 0) {
    const double rate = static_cast<double>(done) / seconds;
    facts += fmt::format("  {}/s", amount(unit, rate));
    if (done < total) {
      facts += fmt::format("  {} left", format_duration(static_cast<double>(total - done) / rate));
    }
  }
  const int room = width - static_cast<int>(label.size() + facts.size()) - 6;
  std::string text = label;
  if (room >= 5) {
    const int bar = std::min(room, kBarMax);
    const int full = static_cast<int>(share * bar);
    text += fmt::format("  [{:=<{}}{:<{}}]", "", full, "", bar - full);
  }
  text += "  " + facts;
  if (static_cast<int>(text.size()) > width) text.resize(static_cast<size_t>(std::max(width, 0)));
  return text;
}

}  // namespace pelton::cli
