// What the gateway itself adds to requests, and what becomes of them, by pool: histograms and
// counters for its metrics. Any thread; bounded by the pools that there have been.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "telemetry/histogram.h"
#include "telemetry/prometheus_text.h"

namespace pelton::gateway {

class GatewayFigures {
 public:
  GatewayFigures();

  // A worker has been chosen.
  void note_decision(double seconds) { decision_s_.observe(seconds); }
  // From a request's arrival to its being sent to a worker, where it waited for none.
  void note_added(double seconds) { added_s_.observe(seconds); }
  // Between the last token that one worker said and the first that the next one did.
  void note_stream_gap(double seconds) { stream_gap_s_.observe(seconds); }

  // Waits for a worker to take it: for one, or for a replica.
  void begin_wait() { ++waiting_; }
  void end_wait(double seconds) {
    --waiting_;
    wait_s_.observe(seconds);
  }

  // Why a request was sent to a further worker before its first token.
  enum class Retry { kUnreached, kLost, kDown, kBusy, kRestarted, kRefused, kFailed };
  void note_retry(Retry reason) { ++retries_[static_cast<size_t>(reason)]; }
  int64_t retries() const;

  // An answer that goes on at another worker: computed anew there after the first one was lost, or
  // after it was left while being stopped; or computed there while the first one still talked; or
  // split.
  enum class Move { kCold, kDrain, kWarm, kSplit };
  enum class MoveEnd { kContinued, kFailed };
  void note_move(Move kind, MoveEnd end) {
    ++moves_[static_cast<size_t>(kind)][static_cast<size_t>(end)];
  }

  // A client's request is over. `status`: 0 where it left before there was one.
  struct End {
    std::string_view pool;
    int status = 0;
    std::string_view outcome;  // one of kOutcomes
  };
  static constexpr std::array<std::string_view, 4> kOutcomes = {"ok", "client_error", "error",
                                                                "left"};
  void note_end(const End& end);

  // Those that are over, by outcome; in the order of the pools' names.
  struct Ended {
    std::string pool;
    std::array<int64_t, kOutcomes.size()> by_outcome{};
  };
  std::vector<Ended> ended() const;
  int64_t waiting() const { return waiting_; }
  // Answers that moved, to whatever end.
  int64_t moves() const;

  void add_metrics(telemetry::PrometheusText& text) const;

 private:
  static constexpr size_t kPoolsMax = 1024;
  static constexpr std::array<std::string_view, 4> kCodes = {"none", "2xx", "4xx", "5xx"};
  static constexpr std::array<std::string_view, 7> kRetries = {
      "unreached", "lost", "down", "busy", "restarted", "refused", "failed"};
  static constexpr std::array<std::string_view, 4> kMoves = {"cold", "drain", "warm", "split"};
  static constexpr std::array<std::string_view, 2> kMoveEnds = {"continued", "failed"};
  using Counts = std::array<std::array<int64_t, kOutcomes.size()>, kCodes.size()>;

  void add_counters(telemetry::PrometheusText& text) const;

  telemetry::Histogram decision_s_;
  telemetry::Histogram added_s_;
  telemetry::Histogram stream_gap_s_;
  telemetry::Histogram wait_s_;
  std::atomic<int64_t> waiting_{0};
  std::array<std::atomic<int64_t>, kRetries.size()> retries_{};
  std::array<std::array<std::atomic<int64_t>, kMoveEnds.size()>, kMoves.size()> moves_{};
  mutable std::mutex mutex_;
  std::map<std::string, Counts, std::less<>> ends_;  // by pool; guarded by mutex_
};

}  // namespace pelton::gateway
