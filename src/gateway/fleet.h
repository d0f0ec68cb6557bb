// The workers that this gateway knows: a watch to each of them, their states, and which of them a
// request goes to. Any thread; one lock, held for a look at the workers of a pool.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/periodic_thread.h"
#include "cluster/frame.h"
#include "cluster/worker_health.h"
#include "gateway/config.h"
#include "net/http_client.h"

namespace pelton::gateway {

// One attempt of a request at a worker, which hears when that worker is lost.
class WorkerLossListener {
 public:
  virtual ~WorkerLossListener() = default;
  // Any thread, without the fleet's lock.
  virtual void on_worker_lost(int attempt) = 0;
};

class Fleet {
 public:
  struct Options {
    std::vector<WorkerConfig> workers;
    std::string gateway;                         // this one's name, one for each start
    std::shared_ptr<const net::TlsTrust> trust;  // null: plain HTTP
  };

  // `clock` and `log` outlive it.
  Fleet(Options options, const base::Clock& clock, base::Log& log);

  // Where an attempt goes.
  struct Assignment {
    size_t worker = 0;
    std::string host;
    int port = 0;
    std::shared_ptr<const net::TlsTrust> trust;
    std::string incarnation;
    int64_t dispatch = 0;
  };
  // The least loaded worker of the pool that has the model (empty: any), but those in `excluded`;
  // none: no worker takes requests.
  struct Wanted {
    std::string_view pool;
    std::string_view model;
    const std::vector<size_t>& excluded;
    uint64_t draw = 0;
  };
  std::optional<Assignment> assign(const Wanted& wanted);
  // `listener` hears of the loss of its worker until the attempt is over.
  void listen(const Assignment& assignment, std::weak_ptr<WorkerLossListener> listener,
              int attempt);
  // The attempt is over: whether the worker failed it.
  enum class Outcome { kServed, kFailed, kNeither };
  void note_outcome(const Assignment& assignment, Outcome outcome);

  enum class Command { kDrain, kUndrain, kEject, kRestore };
  // False: no worker of that name.
  bool command(std::string_view name, Command command);

  struct Row {
    std::string name;
    std::string pool;
    std::string url;
    cluster::WorkerState state{};
    cluster::WorkerRecord record;
    cluster::WorkerLoad load;
    int uncounted = 0;
    int64_t report_age_ms = 0;
    int64_t requests = 0;
    int64_t failures = 0;
  };
  std::vector<Row> rows() const;
  // Some worker of this pool takes requests.
  bool serves(std::string_view pool) const;

 private:
  struct Listening {
    std::weak_ptr<WorkerLossListener> listener;
    int attempt = 0;
  };
  struct Worker {
    WorkerConfig config;
    std::string shown;  // HOST:PORT until its record says its name
    cluster::WorkerHealth health{cluster::WorkerHealth::Options{}};
    cluster::WorkerRecord record;
    cluster::FrameReader reader{size_t{1} << 20};
    bool watched = false;  // a watch is open or being opened
    int64_t watch_again_ns = 0;
    bool probing = false;
    int64_t probe_again_ns = 0;
    int64_t dispatched = 0;  // to this incarnation
    int64_t dispatched_ns = 0;
    int64_t requests = 0;
    int64_t failures = 0;
    cluster::WorkerState logged = cluster::WorkerState::kJoining;  // in the log
    std::vector<Listening> listening;
  };

  void turn();
  void watch(size_t index);
  void on_watch_bytes(size_t index, std::string_view bytes);
  void on_watch_done(size_t index, const Result<void>& result);
  void read_watch(Worker& worker, int64_t now_ns);
  void probe(size_t index);
  void on_probed(size_t index, const std::string& incarnation, bool passed);
  std::vector<Listening> note_state(Worker& worker, int64_t now_ns);
  int uncounted(const Worker& worker, int64_t now_ns) const;
  static bool has_model(const Worker& worker, std::string_view model);
  net::HttpCall call_to(const Worker& worker, std::string method, std::string target) const;

  const Options options_;
  const base::Clock& clock_;
  base::Log& log_;
  mutable std::mutex mutex_;
  std::vector<Worker> workers_;  // guarded by mutex_; never grows or shrinks
  int64_t turned_ns_ = 0;
  // In this order: what they call back works with all above.
  net::HttpClient client_;
  base::PeriodicThread ticker_;
};

}  // namespace pelton::gateway
