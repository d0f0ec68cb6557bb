// Sums over the runs of a process's chains, for operators: no run, caller or text is in them. Any
// thread.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "chain/chain.h"
#include "chain/chain_run.h"
#include "telemetry/prometheus_text.h"

namespace pelton::chain_http {

class ChainFigures {
 public:
  // In this order the calls below name them; they do not change.
  explicit ChainFigures(std::vector<std::shared_ptr<const chain::Chain>> chains);

  void on_begin(const chain::Chain& chain);
  void on_event(const chain::Chain& chain, const chain::RunEvent& event);
  void on_end(const chain::Chain& chain, const chain::ChainRun& run, double seconds);
  // There was no room for it.
  void on_refused(const chain::Chain& chain);

  // pelton_chain_*, by chain, and by step.
  void add_metrics(telemetry::PrometheusText& text) const;

 private:
  struct Step {
    telemetry::PrometheusText::Summary seconds;  // of those that have ended
    int64_t skipped = 0;
    int64_t retries = 0;
    int64_t prompt_tokens = 0;
    int64_t output_tokens = 0;
  };
  struct Sums {
    int64_t open = 0;
    int64_t refused = 0;
    int64_t ok = 0;
    int64_t failed = 0;
    int64_t deadline = 0;
    int64_t left = 0;                            // the caller did, or the process ended
    telemetry::PrometheusText::Summary seconds;  // of those with an output
    std::vector<Step> steps;
  };
  Sums& of(const chain::Chain& chain);  // with the lock held
  void add_runs(telemetry::PrometheusText& text) const;
  void add_steps(telemetry::PrometheusText& text) const;

  const std::vector<std::shared_ptr<const chain::Chain>> chains_;
  mutable std::mutex mutex_;
  std::vector<Sums> sums_;  // guarded by mutex_; by chain
};

}  // namespace pelton::chain_http
