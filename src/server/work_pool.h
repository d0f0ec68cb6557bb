// Threads on which requests' work is done that would hold up everything else on a net thread, on
// gRPC's or on the engine's: compiling output formats (server/format_compiler.h), reading and
// tokenising large bodies (Services::prepare_beside). One or two lanes: a job is first tried for a
// short time; one that needs more starts again in the lane of the long ones, whose threads run at a
// low priority. So what is done quickly waits for no more than the short tries of those before it,
// as long as jobs end when Attempt says so. Within a lane tenants (accounts: without API keys all
// clients are one) take turns by the processor time spent on them (admission::FairQueue), within a
// tenant whoever came first. Owned by the Services; any thread may submit. Knows nothing of the
// work.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "telemetry/histogram.h"

namespace pelton::server {

class WorkPool {
 public:
  struct Lane {
    int64_t cpu_us_max = 0;  // of one job
    int threads = 1;
    int nice = 0;
    int waiting_max = 0;             // jobs
    int waiting_per_tenant_max = 0;  // of these
  };
  struct Options {
    // What is worked on, for refusals; and the threads' name, of at most 13 letters.
    std::string jobs = "output formats";
    std::string waiting = "wait to be compiled";
    std::string expired = "its output format was compiled";
    std::string work = "compile the format";
    std::string thread_name = "pelton-format";
    Lane short_lane = {
        .cpu_us_max = 10'000, .nice = 5, .waiting_max = 1024, .waiting_per_tenant_max = 256};
    Lane long_lane = {  // without threads: no job may ask for it
        .cpu_us_max = 1'000'000,
        .nice = 10,
        .waiting_max = 128,
        .waiting_per_tenant_max = 32};
    // Of all requests whose jobs wait in a lane, and of one tenant's; one may always wait.
    int64_t waiting_bytes_max = int64_t{64} << 20;
    int64_t waiting_bytes_per_tenant_max = int64_t{32} << 20;
  };

  // One try at a job.
  struct Attempt {
    int64_t cpu_us_max;                // the thread's processor time that it may take
    bool is_last;                      // there is no longer one
    const std::atomic<bool>& stopped;  // nobody wants it any more
  };
  enum class Outcome { kDone, kOutOfTime };  // kOutOfTime: once more, from the beginning

  struct Job {
    std::string tenant;  // its billing account
    double weight = 1.0;
    int64_t bytes = 0;                        // that the request holds while it waits
    std::optional<int64_t> deadline_ns = {};  // not begun after that; on the pool's clock
    std::function<Outcome(const Attempt&)> run;
    // On one of the pool's threads, once, unless it is cancelled: an Error if it never came to its
    // end: kOverloaded, kDeadline, kUnavailable.
    std::function<void(std::optional<Error>)> done;
  };

  // Whoever holds it wants the job. cancel(), or letting it go: once that returns, `done` neither
  // runs nor will; `run` may, for a moment, so what that one uses it holds. Any thread, but not
  // within `done`. It may outlive the pool.
  class Ticket;

  WorkPool(const Options& options, const base::Clock& clock);
  ~WorkPool();  // stops
  WorkPool(const WorkPool&) = delete;
  WorkPool& operator=(const WorkPool&) = delete;

  // Error: kOverloaded; then `done` is not called.
  Result<std::shared_ptr<Ticket>> submit(Job job);

  // Drops what waits, stops what runs and waits for it: afterwards no job runs any more. For
  // whoever owns what jobs use and leaves before the pool does.
  void stop();

  // Of a request whose deadline passes while it is here.
  Error expired() const;

  // When it is worth asking again: about when all that wait now have been compiled.
  int64_t retry_after_ns() const;

  enum class End { kDone, kRefused, kCancelled, kExpired };
  static constexpr std::array<std::string_view, 4> kEndNames = {"done", "refused", "cancelled",
                                                                "expired"};
  struct Stats {
    std::array<int, 2> waiting{};  // in the short lane, in the long one
    int running = 0;
    std::array<int64_t, kEndNames.size()> ended{};
    int64_t cpu_us = 0;  // spent
  };
  Stats stats() const;
  // From submit() until it was done.
  const telemetry::Histogram& seconds() const;

 private:
  struct Entry;
  class State;

  static void work(State& state, size_t lane);

  // Shared with tickets.
  const std::shared_ptr<State> state_;
  std::vector<std::thread> threads_;
};

class WorkPool::Ticket {
 public:
  Ticket(std::weak_ptr<State> state, std::shared_ptr<Entry> entry);
  ~Ticket();
  Ticket(const Ticket&) = delete;
  Ticket& operator=(const Ticket&) = delete;

  void cancel();

 private:
  const std::weak_ptr<State> state_;
  const std::shared_ptr<Entry> entry_;
};

}  // namespace pelton::server
