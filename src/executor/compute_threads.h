// The threads that compute for all models of a process: one set, however many models there are,
// since steps of two models at once on the same processors would be slower than one after the
// other: a kernel's threads wait for each other several hundred times in a step. So a model that
// computes has all of them, for a step, and who waits longest has them next. Where there is one
// model, nobody ever waits. Shared by the executors; any thread.
//
// Encoders may be given a share: of the time in which models that generate are at work, too. A step
// of d seconds then owes these d (1 - share) / share, and until they have had that, or have not
// asked for 25 ms, no encoder begins another one. Example: with a share of 0.25 a step of 30 ms is
// followed by 90 ms of decoding.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>

#include "base/thread_pool.h"

namespace pelton::executor {

class ComputeThreads {
 public:
  enum class Work { kGenerates, kEncodes };

  explicit ComputeThreads(int threads) : pool_({.threads = threads}) {}

  // Its jobs are handed out by whoever has the turn.
  base::ThreadPool& pool() { return pool_; }
  // In (0, 1); before the first turn. Without it encoders are as all others.
  void set_encoding_share(double share) { encoding_share_ = share; }

  // A turn, for as long as it lives.
  class Turn {
   public:
    ~Turn() { threads_.end_turn(); }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    friend class ComputeThreads;
    Turn(ComputeThreads& threads, Work work) : threads_(threads) { threads_.begin_turn(work); }
    ComputeThreads& threads_;
  };
  // Waits for all who asked before.
  [[nodiscard]] Turn take_turn(Work work = Work::kGenerates) { return Turn(*this, work); }

 private:
  using Clock = std::chrono::steady_clock;
  struct Waiting {
    uint64_t ticket = 0;
    Work work = Work::kGenerates;
  };

  void begin_turn(Work work);
  void end_turn();
  // Who is next; none: whoever waits may not begin yet.
  std::optional<uint64_t> next_ticket() const;
  bool may_encode() const;

  base::ThreadPool pool_;
  std::optional<double> encoding_share_;
  std::mutex mutex_;
  std::condition_variable next_;
  // Guarded by mutex_.
  uint64_t tickets_ = 0;
  std::deque<Waiting> waiting_;  // in the order in which they asked
  bool is_taken_ = false;
  Work work_ = Work::kGenerates;  // of the turn, or the last one
  Clock::time_point begun_;
  Clock::duration owed_{0};      // to models that generate
  Clock::time_point generated_;  // the end of their last turn
};

}  // namespace pelton::executor
