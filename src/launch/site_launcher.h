// A launcher over a site that may be slow: orders are taken at once and carried out by a thread of
// its own, which also looks what there is. An order that the site does not take within a time ends,
// with the reason; a site that does not answer changes nothing of what was known.
//
// One owner, one thread, besides its own.
#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "launch/launcher.h"
#include "launch/replica_site.h"

namespace pelton::launch {

class SiteLauncher final : public Launcher {
 public:
  struct Options {
    std::chrono::milliseconds look_soon{1'000};   // while something starts or stops
    std::chrono::milliseconds look_later{5'000};  // otherwise
    std::chrono::milliseconds try_again{500};     // what the site did not do
    std::chrono::milliseconds give_up{10'000};    // an order that it does not take
  };
  // Looks once; where the site does not answer its thread looks again, until it is known what runs.
  // Errors: kNotFound: the site answers that there is no such thing. `clock` and `log` outlive it.
  static Result<std::unique_ptr<SiteLauncher>> open(std::unique_ptr<ReplicaSite> site,
                                                    const Options& options,
                                                    const base::Clock& clock, base::Log& log);
  // What runs goes on.
  ~SiteLauncher() override;
  SiteLauncher(const SiteLauncher&) = delete;
  SiteLauncher& operator=(const SiteLauncher&) = delete;

  Result<void> start(const ReplicaOrder& order) override;
  void stop(const ReplicaOrder& order, std::chrono::milliseconds grace) override;
  std::vector<LaunchedReplica> list() override;
  uint64_t newest_token() const override;
  bool is_known(const std::string& pool) const override;

 private:
  using Place = std::pair<std::string, int>;  // pool, ordinal
  struct Start {
    ReplicaOrder order;
    int64_t ordered_ns = 0;
    bool is_sent = false;      // the site took it; its next list has it or it has vanished
    bool is_given_up = false;  // `ended` says why
    bool is_hopeless = false;
    std::string ended;
  };
  struct Stop {
    ReplicaOrder order;
    std::chrono::milliseconds grace{0};
    bool is_sent = false;
  };

  SiteLauncher(std::unique_ptr<ReplicaSite> site, const Options& options, const base::Clock& clock,
               base::Log& log);
  void run();
  void carry_out();
  bool is_stopping();
  void carry_out(const Start& start);
  void carry_out(const Stop& stop);
  Result<void> look();
  void note_first(const std::vector<LaunchedReplica>& seen);
  void take(std::vector<LaunchedReplica> seen);
  void note(const Result<void>& done);
  void wake();
  bool is_moving() const;  // under mutex_, as the next
  const LaunchedReplica* seen_at(const Place& place) const;
  std::optional<LaunchedReplica> shown(const Place& place) const;

  std::unique_ptr<ReplicaSite> site_;
  const Options options_;
  const base::Clock& clock_;
  base::Log& log_;
  std::string trouble_;      // the thread's
  bool has_failed_ = false;  // the thread's: something is to be tried again
  mutable std::mutex mutex_;
  std::condition_variable woken_;
  bool stopping_ = false;  // guarded by mutex_, as all below
  bool is_woken_ = false;
  bool is_known_ = false;  // it has been seen once what runs
  uint64_t newest_token_ = 0;
  std::map<Place, Start> starts_;  // not in `seen_` yet, or given up
  std::map<Place, Stop> stops_;
  std::map<Place, LaunchedReplica> seen_;
  std::thread thread_;
};

}  // namespace pelton::launch
