// Drives one run of a chain: makes its calls, brings it their answers, and passes what it reports
// to a sink, whose reader it follows. Lives on the runs' thread; held by whoever started it until
// the sink has had its end, and by what it waits for only weakly.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "chain/chain_run.h"
#include "chain_http/step_carrier.h"
#include "net/work_loop.h"

namespace pelton::chain_http {

// Who reads of a run. On the runs' thread.
class RunSink {
 public:
  virtual ~RunSink() = default;
  virtual void on_events(const chain::ChainRun::Work& work) = 0;
  virtual void on_end(const chain::ChainRun& run) = 0;
  // Bytes that have been passed on and that the reader has not taken.
  virtual size_t backlog_bytes() = 0;
};

class RunDriver : public std::enable_shared_from_this<RunDriver> {
 public:
  struct Parts {
    std::shared_ptr<net::WorkLoop::Queue> loop;
    std::shared_ptr<const chain::Chain> chain;
    CarryOut carry_out;
    std::shared_ptr<RunSink> sink;
    const base::Clock& clock;  // outlives it
  };

  RunDriver(Parts parts, Json input, const chain::ChainRun::Options& options);

  void start() { turn(); }
  // Every call ends at once.
  void cancel();
  // The sink's reader has taken what there was.
  void on_drained();

 private:
  void turn();
  void turn_soon();
  void start_call(const chain::StepCall& call);
  void end_call(uint64_t id);
  void set_timer();

  const Parts parts_;
  chain::ChainRun run_;
  struct Call {
    std::unique_ptr<RunningCall> running;
    size_t bytes = 0;  // of its answer, so far
  };
  std::map<uint64_t, Call> calls_;
  size_t answers_bytes_ = 0;         // theirs
  std::optional<int64_t> timer_ns_;  // the earliest that is set
  bool turn_posted_ = false;
  bool ended_ = false;
};

}  // namespace pelton::chain_http
