#include "base/thread_pool.h"

#include <algorithm>
#include <chrono>

#include <pthread.h>
#include <sched.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/check.h"
#include "base/machine.h"

namespace pelton::base {
namespace {

constexpr int kShares = 2;  // of what is left a worker takes one in so many times the workers
constexpr int kSpinTurns = 20'000;  // about half a millisecond

void relax() {
#if defined(__x86_64__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

void pin_this_thread(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);  // a refusal only costs speed
}

int64_t now_ns() {
  return std::chrono::steady_clock::now().time_since_epoch().count();
}

}  // namespace

ThreadPool::ThreadPool(const Options& options)
    : size_(options.threads > 0 ? options.threads : static_cast<int>(usable_cpus().size())),
      spin_ns_(options.spin_ns) {
  // With more threads than processors pinning would stack them up: leave that to the kernel.
  if (options.pin) {
    cpus_ = usable_cpus();
    if (static_cast<int>(cpus_.size()) < size_) cpus_.clear();
  }
  for (int worker = 1; worker < size_; ++worker) {
    threads_.emplace_back([this, worker] { work(worker); });
  }
}

ThreadPool::~ThreadPool() {
  stopping_.store(true);
  generation_.fetch_add(1);
  generation_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::adopt_caller() {
  if (!cpus_.empty()) pin_this_thread(cpus_[0]);
}

void ThreadPool::run(FunctionRef<void(int worker)> body) {
  if (size_ == 1) {
    body(0);
    return;
  }
  CHECK(pending_.load(std::memory_order_relaxed) == 0, "ThreadPool::run is not reentrant");
  job_ = &body;
  pending_.store(size_ - 1, std::memory_order_relaxed);
  // Sequentially consistent with the worker's parked_ count: either the worker sees the new
  // generation before it parks, or we see that it parked.
  generation_.fetch_add(1);
  if (parked_.load() > 0) generation_.notify_all();
  body(0);
  // Others finish within microseconds, unless the machine has fewer free processors than workers:
  // then let them have ours.
  for (int turn = 0; pending_.load(std::memory_order_acquire) != 0; ++turn) {
    if (turn < kSpinTurns) {
      relax();
    } else {
      std::this_thread::yield();
    }
  }
}

void ThreadPool::work(int worker) {
  if (!cpus_.empty()) pin_this_thread(cpus_[static_cast<size_t>(worker)]);
  uint32_t seen = 0;
  while (true) {
    const int64_t spin_until = now_ns() + spin_ns_;
    for (int turn = 0; generation_.load(std::memory_order_acquire) == seen; ++turn) {
      relax();
      if (turn % 64 == 63 && now_ns() > spin_until) {
        parked_.fetch_add(1);
        generation_.wait(seen);
        parked_.fetch_sub(1);
      }
    }
    seen = generation_.load(std::memory_order_acquire);
    if (stopping_.load()) return;
    (*job_)(worker);
    pending_.fetch_sub(1, std::memory_order_release);
  }
}

void ThreadPool::parallel_for(int64_t count, int64_t grain,
                              FunctionRef<void(int64_t, int64_t, int)> body) {
  CHECK(grain > 0);
  if (count <= 0) return;
  if (size_ == 1 || count <= grain) {
    body(0, count, 0);
    return;
  }
  alignas(64) std::atomic<int64_t> next{0};
  run([&](int worker) {
    int64_t begin = next.load(std::memory_order_relaxed);
    while (begin < count) {
      // Long stretches first, which memory is read the faster by; short ones to end together.
      const int64_t share = (count - begin) / (int64_t{kShares} * size_) / grain * grain;
      const int64_t end = std::min(count, begin + std::max(grain, share));
      if (!next.compare_exchange_weak(begin, end, std::memory_order_relaxed)) continue;
      body(begin, end, worker);
      begin = next.load(std::memory_order_relaxed);
    }
  });
}

}  // namespace pelton::base
