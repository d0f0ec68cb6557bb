// What became of the requests that each arm of each route was given, and of the copies that its
// shadow was: how many, how soon and how fast they were answered, how long the answers were and why
// they ended. Any thread; bounded by the configuration files that there have been.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <tuple>

#include "telemetry/histogram.h"
#include "telemetry/prometheus_text.h"

namespace pelton::gateway {

// One arm's. Whoever answers a request of it notes what it sees.
class ArmFigures {
 public:
  enum class Outcome { kOk, kClientError, kError, kLeft };

  ArmFigures();

  void note_request() { ++requests_; }
  // The first token of its answer has come so long behind the request.
  void note_first_token(double seconds) { first_token_s_.observe(seconds); }
  // The answer is over; `tokens`: of all its choices, which come side by side; `further_s`: from
  // the first to the last of them.
  struct End {
    Outcome outcome = Outcome::kOk;
    int64_t tokens = 0;
    int64_t tokens_longest = 0;  // of the choice that has the most
    double further_s = 0;
  };
  void note_end(const End& end);
  // Why one of its choices ended; workers of other kinds say that to their clients only.
  void note_finish(std::string_view reason);

  struct Labels {
    std::string_view model;
    std::string_view arm;
    std::string_view traffic;
  };
  void add_metrics(const Labels& labels, telemetry::PrometheusText& text) const;

 private:
  static constexpr std::array<std::string_view, 4> kOutcomes = {"ok", "client_error", "error",
                                                                "left"};
  static constexpr std::array<std::string_view, 5> kReasons = {"stop", "length", "repetition",
                                                               "cancelled", "other"};

  std::atomic<int64_t> requests_{0};
  std::array<std::atomic<int64_t>, kOutcomes.size()> outcomes_{};
  std::array<std::atomic<int64_t>, kReasons.size()> reasons_{};
  telemetry::Histogram first_token_s_;
  telemetry::Histogram token_s_;
  telemetry::Histogram output_tokens_;
};

class ArmTable {
 public:
  enum class Traffic { kClients, kShadow };

  // Null: there have been too many.
  std::shared_ptr<ArmFigures> find(std::string_view model, std::string_view arm, Traffic traffic);
  void add_metrics(telemetry::PrometheusText& text) const;

 private:
  static constexpr size_t kArmsMax = 1024;

  using Key = std::tuple<std::string, std::string, Traffic>;  // the model, the arm
  mutable std::mutex mutex_;
  std::map<Key, std::shared_ptr<ArmFigures>> arms_;  // guarded by mutex_
};

}  // namespace pelton::gateway
