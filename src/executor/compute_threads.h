// The threads that compute for all models of a process: one set, however many models there are,
// since steps of two models at once on the same processors would be slower than one after the
// other: a kernel's threads wait for each other several hundred times in a step. So a model that
// computes has all of them, for a step, and who waits longest has them next. Where there is one
// model, nobody ever waits. Shared by the executors; any thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "base/thread_pool.h"

namespace pelton::executor {

class ComputeThreads {
 public:
  explicit ComputeThreads(int threads) : pool_({.threads = threads}) {}

  // Its jobs are handed out by whoever has the turn.
  base::ThreadPool& pool() { return pool_; }

  // A turn, for as long as it lives.
  class Turn {
   public:
    ~Turn() { threads_.end_turn(); }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    friend class ComputeThreads;
    explicit Turn(ComputeThreads& threads) : threads_(threads) { threads_.begin_turn(); }
    ComputeThreads& threads_;
  };
  // Waits for all who asked before.
  [[nodiscard]] Turn take_turn() { return Turn(*this); }

 private:
  void begin_turn();
  void end_turn();

  base::ThreadPool pool_;
  std::mutex mutex_;
  std::condition_variable next_;
  // Guarded by mutex_. Tickets: those below `serving_` have had their turn.
  uint64_t tickets_ = 0;
  uint64_t serving_ = 0;
};

}  // namespace pelton::executor
