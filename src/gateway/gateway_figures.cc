#include "gateway/gateway_figures.h"

#include <algorithm>
#include <vector>

namespace pelton::gateway {
namespace {

using telemetry::PrometheusText;
using Type = PrometheusText::Type;

std::vector<double> own_bounds() {
  return {1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1, 1};
}

std::vector<double> wait_bounds() {
  return {0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300};
}

}  // namespace

GatewayFigures::GatewayFigures()
    : decision_s_(own_bounds()),
      added_s_(own_bounds()),
      stream_gap_s_(wait_bounds()),
      wait_s_(wait_bounds()) {}

int64_t GatewayFigures::retries() const {
  int64_t all = 0;
  for (const std::atomic<int64_t>& one : retries_) all += one;
  return all;
}

int64_t GatewayFigures::moves() const {
  int64_t all = 0;
  for (const auto& ends : moves_) {
    for (const std::atomic<int64_t>& one : ends) all += one;
  }
  return all;
}

std::vector<GatewayFigures::Ended> GatewayFigures::ended() const {
  std::vector<Ended> all;
  std::lock_guard lock(mutex_);
  for (const auto& [pool, counts] : ends_) {
    Ended& one = all.emplace_back(Ended{.pool = pool, .by_outcome = {}});
    for (const auto& of_code : counts) {
      for (size_t i = 0; i < of_code.size(); ++i) one.by_outcome[i] += of_code[i];
    }
  }
  return all;
}

void GatewayFigures::note_end(const End& end) {
  const auto outcome = std::ranges::find(kOutcomes, end.outcome) - kOutcomes.begin();
  const size_t code = end.status < 100 ? 0 : end.status < 400 ? 1 : end.status < 500 ? 2 : 3;
  std::lock_guard lock(mutex_);
  auto found = ends_.find(end.pool);
  if (found == ends_.end()) {
    if (ends_.size() == kPoolsMax) return;
    found = ends_.emplace(end.pool, Counts{}).first;
  }
  ++found->second[code][static_cast<size_t>(outcome)];
}

void GatewayFigures::add_counters(PrometheusText& text) const {
  text.family("pelton_gateway_retries_total", Type::kCounter,
              "Requests sent to a further worker before the first token, by why.");
  for (size_t i = 0; i < kRetries.size(); ++i) {
    text.sample({{"reason", kRetries[i]}}, static_cast<double>(retries_[i]));
  }
  text.family("pelton_gateway_migrations_total", Type::kCounter,
              "Answers that another worker was to go on with, and whether it did.");
  for (size_t i = 0; i < kMoves.size(); ++i) {
    for (size_t j = 0; j < kMoveEnds.size(); ++j) {
      text.sample({{"kind", kMoves[i]}, {"result", kMoveEnds[j]}},
                  static_cast<double>(moves_[i][j]));
    }
  }
  text.family("pelton_gateway_requests_total", Type::kCounter,
              "Requests of clients that are over, by pool, status and what became of them.");
  std::lock_guard lock(mutex_);
  for (const auto& [pool, counts] : ends_) {
    for (size_t code = 0; code < kCodes.size(); ++code) {
      for (size_t i = 0; i < kOutcomes.size(); ++i) {
        if (counts[code][i] == 0) continue;
        text.sample({{"pool", pool}, {"code_class", kCodes[code]}, {"outcome", kOutcomes[i]}},
                    static_cast<double>(counts[code][i]));
      }
    }
  }
}

void GatewayFigures::add_metrics(PrometheusText& text) const {
  add_counters(text);
  const auto histogram = [&](std::string_view name, std::string_view help,
                             const telemetry::Histogram& of) {
    text.family(name, Type::kHistogram, help);
    text.histogram({}, of);
  };
  histogram("pelton_gateway_decision_seconds", "Choosing a worker.", decision_s_);
  histogram("pelton_gateway_added_seconds",
            "From a request's arrival to its being sent to a worker, where it waited for none.",
            added_s_);
  histogram("pelton_gateway_stream_gap_seconds",
            "Between the last token of one worker and the first of the next, of one answer.",
            stream_gap_s_);
  text.gauge("pelton_gateway_queue_requests", "Requests that wait for a worker or a replica.",
             static_cast<double>(waiting_));
  histogram("pelton_gateway_queue_seconds", "How long requests waited so that had to.", wait_s_);
}

}  // namespace pelton::gateway
