#include "apps/load_view.h"

#include <chrono>
#include <cstdio>

#include <fmt/format.h>

#include "cli/human_size.h"
#include "cli/terminal.h"

namespace pelton::apps {
namespace {

constexpr std::chrono::milliseconds kTick{50};
constexpr int kTicksToDraw = 4;
constexpr int kTicksOfRate = 20;  // tokens/s over the last second
constexpr int kShapeColumns = 16;

// Columns of a text of one-column characters in UTF-8.
int columns(const std::string& text) {
  int count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return count;
}

}  // namespace

LoadView::LoadView(const bench::LoadGenerator& generator, const cli::Interrupt& interrupt,
                   std::atomic<bool>& stop, const base::Clock& clock, bool wanted)
    : generator_(generator),
      interrupt_(interrupt),
      stop_(stop),
      clock_(clock),
      drawn_(wanted && cli::is_terminal(stderr)),
      thread_([this] { run(); }) {}

LoadView::~LoadView() {
  done_ = true;
  thread_.join();
  if (drawn_) std::fputs("\r\x1b[K", stderr);
}

void LoadView::run() {
  const int64_t start_ns = clock_.now_ns();
  int64_t rate_from_ns = start_ns;
  int64_t rate_from_tokens = 0;
  double tokens_per_s = 0;
  for (int tick = 0; !done_; ++tick) {
    if (interrupt_.pending()) stop_ = true;
    if (drawn_ && tick % kTicksToDraw == 0) {
      const bench::LoadProgress progress = generator_.progress();
      const int64_t now = clock_.now_ns();
      if (tick % kTicksOfRate == 0 && now > rate_from_ns) {
        tokens_per_s = static_cast<double>(progress.tokens - rate_from_tokens) * 1e9 /
                       static_cast<double>(now - rate_from_ns);
        rate_from_ns = now;
        rate_from_tokens = progress.tokens;
      }
      const double seconds = static_cast<double>(now - start_ns) * 1e-9;
      const std::string text =
          line(progress, seconds, tokens_per_s, cli::Terminal(stderr).width() - 1);
      std::fprintf(stderr, "\r%s\x1b[K", text.c_str());
      std::fflush(stderr);
    }
    std::this_thread::sleep_for(kTick);
  }
}

std::string LoadView::line(const bench::LoadProgress& progress, double seconds, double tokens_per_s,
                           int width) {
  const double share =
      progress.total > 0 ? static_cast<double>(progress.done) / static_cast<double>(progress.total)
                         : 0;
  std::string text = fmt::format("{:3.0f}% {}/{} done", share * 100, progress.done, progress.total);
  // In order of what may be left out last.
  std::vector<std::string> facts = {fmt::format("{} running", progress.running)};
  if (progress.failed > 0) facts.push_back(fmt::format("{} FAILED", progress.failed));
  facts.push_back(fmt::format("{:.0f} tok/s", tokens_per_s));
  if (seconds > 0.5 && progress.done > 0) {
    const double rate = static_cast<double>(progress.done) / seconds;
    const double left = static_cast<double>(progress.total - progress.done) / rate;
    facts.push_back(fmt::format("{:.1f} req/s", rate));
    facts.push_back(cli::format_duration(left) + " left");
  }
  if (progress.ttft.count() > 0) {
    facts.push_back(fmt::format("TTFT {:.0f} ms", progress.ttft.percentile_ms(50)));
    facts.push_back(fmt::format("P99 {:.0f}", progress.ttft.percentile_ms(99)));
    facts.push_back(progress.ttft.sparkline(kShapeColumns));
  }
  for (const std::string& fact : facts) {
    if (columns(text) + 2 + columns(fact) > width) break;
    text += "  " + fact;
  }
  if (columns(text) > width) text.resize(static_cast<size_t>(std::max(width, 0)));
  return text;
}

}  // namespace pelton::apps
