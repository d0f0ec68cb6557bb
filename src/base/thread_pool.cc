#include "base/thread_pool.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include <pthread.h>
#include <sched.h>

#include "base/check.h"
#include "base/machine.h"
#include "base/spin.h"

namespace pelton::base {
namespace {

constexpr int kSpinTurns = 20'000;  // about half a millisecond

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

struct ThreadPool::Range {
  uint32_t begin = 0;
  uint32_t end = 0;
  bool empty() const { return begin == end; }
};

// A slice of the pieces, of one worker: it takes from the front, others steal from the back. One
// word, so that both see the same.
class alignas(64) ThreadPool::Slice {
 public:
  void set(Range range) { word_.store(word_of(range), std::memory_order_relaxed); }

  // One from the front; none left: empty.
  Range take_front() {
    uint64_t word = word_.load(std::memory_order_relaxed);
    while (true) {
      const Range range = range_of(word);
      if (range.empty()) return {};
      const uint64_t rest = word_of({range.begin + 1, range.end});
      if (word_.compare_exchange_weak(word, rest, std::memory_order_relaxed)) {
        return {range.begin, range.begin + 1};
      }
    }
  }
  // The later half, rounded up.
  Range take_half() {
    uint64_t word = word_.load(std::memory_order_relaxed);
    while (true) {
      const Range range = range_of(word);
      if (range.empty()) return {};
      const uint32_t middle = range.begin + (range.end - range.begin) / 2;
      if (word_.compare_exchange_weak(word, word_of({range.begin, middle}),
                                      std::memory_order_relaxed)) {
        return {middle, range.end};
      }
    }
  }

 private:
  static uint64_t word_of(Range range) { return uint64_t{range.begin} << 32 | range.end; }
  static Range range_of(uint64_t word) {
    return {static_cast<uint32_t>(word >> 32), static_cast<uint32_t>(word)};
  }

  std::atomic<uint64_t> word_{0};
};

ThreadPool::ThreadPool(const Options& options, Unstarted)
    : size_(options.threads > 0 ? options.threads : static_cast<int>(usable_cpus().size())),
      spin_ns_(options.spin_ns),
      slices_(std::make_unique<Slice[]>(static_cast<size_t>(size_))) {
  // With more threads than processors pinning would stack them up: leave that to the kernel.
  if (options.pin) {
    cpus_ = usable_cpus();
    if (static_cast<int>(cpus_.size()) < size_) cpus_.clear();
  }
}

// Once the delegated constructor is done the destructor ends what was started before a refusal.
ThreadPool::ThreadPool(const Options& options) : ThreadPool(options, Unstarted{}) {
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

ThreadPool::PinnedCaller::PinnedCaller(const std::vector<int>& cpus)
    : thread_(std::this_thread::get_id()) {
  CPU_ZERO(&before_);
  if (cpus.empty()) return;
  pinned_ = pthread_getaffinity_np(pthread_self(), sizeof before_, &before_) == 0;
  if (pinned_) pin_this_thread(cpus[0]);
}

ThreadPool::PinnedCaller::~PinnedCaller() {
  CHECK(thread_ == std::this_thread::get_id(), "a pinned thread is released by itself");
  if (pinned_) pthread_setaffinity_np(pthread_self(), sizeof before_, &before_);
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
      spin_pause();
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
      spin_pause();
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
  // Each has one slice of neighbouring pieces, because memory is read fastest straight on; who is
  // done early steals half of what another has left, from its end.
  const int64_t pieces = (count + grain - 1) / grain;
  CHECK(pieces <= std::numeric_limits<uint32_t>::max());
  for (int worker = 0; worker < size_; ++worker) {
    slices_[worker].set({static_cast<uint32_t>(pieces * worker / size_),
                         static_cast<uint32_t>(pieces * (worker + 1) / size_)});
  }
  run([&](int worker) {
    Slice& own = slices_[worker];
    do {
      for (Range piece = own.take_front(); !piece.empty(); piece = own.take_front()) {
        body(piece.begin * grain, std::min(count, piece.end * grain), worker);
      }
    } while (steal_for(worker));
  });
}

bool ThreadPool::steal_for(int worker) {
  for (int i = 1; i < size_; ++i) {
    const Range stolen = slices_[(worker + i) % size_].take_half();
    if (stolen.empty()) continue;
    slices_[worker].set(stolen);
    return true;
  }
  return false;
}

}  // namespace pelton::base
