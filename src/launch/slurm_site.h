// Replicas as Slurm's batch jobs: submitted by sbatch, seen by squeue, ended by scancel, each run
// bounded in time and in what it prints. A job's comment says whose replica it is, so that the next
// launcher finds it; where it listens its output says, a file in a folder that all nodes see.
//
//   STATE/POOL.ORDINAL.out   its stdout
//   STATE/POOL.ORDINAL.log   its stderr, of the last start
//
// A job that is requeued is the same replica, which starts again. One whose time limit comes near
// is shown as stopping as long before as another one takes to start. One thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "launch/child_program.h"
#include "launch/replica_site.h"
#include "launch/slurm_queue.h"

namespace pelton::launch {

class SlurmSite final : public ReplicaSite {
 public:
  struct Pool {
    std::vector<std::string> words;   // the program and its arguments; "{name}" is POOL-ORDINAL
    std::vector<std::string> sbatch;  // what else sbatch is given
    double start_s = 30;              // that a start takes
    double drain_s = 60;              // before its time limit a job is asked to end
  };
  struct Options {
    std::string folder;  // made if it is not there; of all who may lead the same one
    uint64_t epoch = 0;  // of whoever leads; 0: nobody else may
    std::map<std::string, Pool> pools;
    ProgramBounds bounds;
  };
  // Errors: kIo: the folder. `clock` and `log` outlive it.
  static Result<std::unique_ptr<SlurmSite>> open(Options options, const base::Clock& clock,
                                                 base::Log& log);

  bool knows(const std::string& pool) const override { return options_.pools.contains(pool); }
  Result<void> start(const ReplicaOrder& order) override;
  Result<void> stop(const ReplicaOrder& order, std::chrono::milliseconds grace) override;
  Result<std::vector<LaunchedReplica>> list() override;
  uint64_t newest_token() const override { return newest_token_; }
  void set_on_change(std::function<void()> /*changed*/) override {}  // it is asked, again and again

 private:
  using Place = std::pair<std::string, int>;  // pool, ordinal
  struct Replica {
    LaunchedReplica seen;
    SlurmJob job;
    bool has_run = false;
    int64_t said_bytes = -1;  // of its files, as progress was last seen
    int64_t cancel_ns = 0;    // of one that is being stopped: when it is cancelled; 0: it is not
  };

  SlurmSite(Options options, std::string fleet, const base::Clock& clock, base::Log& log);
  Result<std::string> run(const std::vector<std::string>& words, std::string_view input) const;
  // This site goes on, with this token or an older one. Errors: kInvalidArgument: somebody leads
  // who began later; kIo.
  Result<void> claim(uint64_t token);
  Result<std::vector<SlurmJob>> queue() const;
  Result<void> cancel(int64_t job, bool softly);
  std::string file_of(const Place& place, const char* ending) const;
  std::vector<std::string> batch_words(const ReplicaOrder& order) const;
  void follow(const SlurmJob& job);
  void follow_run(const Place& place, Replica& replica);
  void note_ended(Replica& replica) const;
  void cancel_overdue(Replica& replica);

  const Options options_;
  const std::string fleet_;  // in comments: this folder's, so that others' jobs are others'
  const base::Clock& clock_;
  base::Log& log_;
  uint64_t newest_token_ = 0;
  std::map<Place, Replica> replicas_;
};

}  // namespace pelton::launch
