// The workers that compute one step together: pinned, spinning briefly between jobs (a token is a
// few hundred jobs of microseconds each; a futex wake-up costs more than the job), then parked, so
// that an idle process uses no CPU. One thread at a time, the owner, hands out jobs and takes part
// as worker 0.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include <sched.h>

#include "base/function_ref.h"

namespace pelton::base {

class ThreadPool {
 public:
  struct Options {
    int threads = 0;  // 0: one for each usable processor
    bool pin = true;  // worker i stays on usable processor i
    int64_t spin_ns = 200'000;
  };

  explicit ThreadPool(const Options& options);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return size_; }

  // Runs body(worker) once on every worker and returns when all are done. Not reentrant.
  void run(FunctionRef<void(int worker)> body);

  // Runs body(begin, end, worker) over [0, count) in pieces of `grain` (the last may be less). A
  // worker gets neighbouring pieces in order for as long as it can. How they fall must not change
  // the result.
  void parallel_for(int64_t count, int64_t grain,
                    FunctionRef<void(int64_t begin, int64_t end, int worker)> body);

  // The calling thread as pinned worker 0, for as long as this lives. Then the thread may run where
  // it could before: threads inherit the affinity of the one that starts them, and usable_cpus()
  // counts by it. Lives and dies on that thread.
  class PinnedCaller {
   public:
    ~PinnedCaller();
    PinnedCaller(const PinnedCaller&) = delete;
    PinnedCaller& operator=(const PinnedCaller&) = delete;

   private:
    friend class ThreadPool;
    explicit PinnedCaller(const std::vector<int>& cpus);  // cpus: the pool's; empty: not pinned

    const std::thread::id thread_;
    bool pinned_ = false;
    cpu_set_t before_;
  };
  // The owner calls it once, from the thread that will call run.
  [[nodiscard]] PinnedCaller adopt_caller() { return PinnedCaller(cpus_); }

 private:
  struct Range;
  class Slice;
  struct Unstarted {};

  ThreadPool(const Options& options, Unstarted);
  void work(int worker);
  // Gives a worker that has none some of another's pieces; false: nobody has any.
  bool steal_for(int worker);

  const int size_;
  const int64_t spin_ns_;
  const std::unique_ptr<Slice[]> slices_;  // of parallel_for, one for each worker
  std::vector<int> cpus_;                  // empty: not pinned
  const FunctionRef<void(int)>* job_ = nullptr;
  alignas(64) std::atomic<uint32_t> generation_{0};
  alignas(64) std::atomic<int> pending_{0};
  alignas(64) std::atomic<int> parked_{0};
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> threads_;
};

}  // namespace pelton::base
