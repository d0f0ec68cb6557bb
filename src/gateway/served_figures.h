// What clients were served, under the names that a server's own metrics have (vLLM's), by pool: a
// dashboard of one server then shows a fleet as well. An answer counts once, however many workers
// had a part in it, so what its workers say together is more where answers moved. Any thread;
// bounded by the pools that there have been.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>

#include "gateway/fleet.h"
#include "telemetry/histogram.h"
#include "telemetry/prometheus_text.h"

namespace pelton::gateway {

// One pool's.
class PoolServed {
 public:
  explicit PoolServed(std::string model);

  // One of an answer's choices has ended: each takes its prompt up, as workers count them.
  struct Choice {
    int64_t prompt_tokens = 0;
    int64_t cached_tokens = 0;
    int64_t output_tokens = 0;  // those that steer it included, as workers count
    std::string_view reason;    // "stop", "length"; empty: it is not known
  };
  void note_choice(const Choice& choice);
  // A request is over of which a client was sent something.
  struct End {
    enum class How { kAnswered, kLeft, kFailed } how = How::kAnswered;
    int64_t further_tokens = 0;  // of choices that have not ended
    double first_token_s = 0;
    double whole_s = 0;
  };
  void note_end(const End& end);

 private:
  friend class ServedFigures;
  static constexpr std::array<std::string_view, 4> kReasons = {"stop", "length", "abort", "error"};
  enum Reason { kStop, kLength, kAbort, kError };

  const std::string model_;
  std::atomic<int64_t> prompt_tokens_{0};
  std::atomic<int64_t> cached_tokens_{0};
  std::atomic<int64_t> output_tokens_{0};
  std::array<std::atomic<int64_t>, kReasons.size()> reasons_{};
  telemetry::Histogram first_token_s_;
  telemetry::Histogram whole_s_;
};

class ServedFigures {
 public:
  // `model`: what its pool's metrics are labelled with, the first name that it serves. Null: there
  // have been too many pools.
  std::shared_ptr<PoolServed> find(std::string_view pool, std::string_view model);
  // `rows`: of whom requests that run and wait are added up, and the use of KV caches averaged.
  void add_metrics(std::span<const Fleet::Row> rows, telemetry::PrometheusText& text) const;

 private:
  static constexpr size_t kPoolsMax = 1024;

  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<PoolServed>, std::less<>> pools_;  // guarded by mutex_
};

}  // namespace pelton::gateway
