#include "bench/thread_watch.h"

#include <ctime>

namespace pelton::bench {
namespace {

int64_t cpu_ns(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

void ThreadUse::take(int64_t now_ns) {
  const int64_t cpu = cpu_ns(CLOCK_THREAD_CPUTIME_ID);
  if (first_ns_ < 0) {
    first_ns_ = now_ns;
    first_cpu_ns_ = cpu;
  } else if (now_ns > last_ns_) {
    ++windows_;
    const double share =
        static_cast<double>(cpu - last_cpu_ns_) / static_cast<double>(now_ns - last_ns_);
    if (share > kFullShare) ++full_windows_;
  }
  last_ns_ = now_ns;
  last_cpu_ns_ = cpu;
}

void ThreadUse::settle(int64_t now_ns) {
  sample(now_ns);
  settled_ns_ = now_ns;
  settled_cpu_ns_ = cpu_ns(CLOCK_THREAD_CPUTIME_ID);
}

double ThreadUse::share() const {
  if (settled_ns_ <= first_ns_) return 0;
  return static_cast<double>(settled_cpu_ns_ - first_cpu_ns_) /
         static_cast<double>(settled_ns_ - first_ns_);
}

ThreadUse& ThreadWatch::mine() {
  std::lock_guard lock(mutex_);
  std::unique_ptr<ThreadUse>& use = uses_[std::this_thread::get_id()];
  if (!use) use = std::make_unique<ThreadUse>();
  return *use;
}

ThreadWatch::Busiest ThreadWatch::busiest() const {
  std::lock_guard lock(mutex_);
  Busiest busiest;
  for (const auto& [id, use] : uses_) {
    if (use->share() < busiest.share) continue;
    busiest = {
        .share = use->share(), .windows = use->windows(), .full_windows = use->full_windows()};
  }
  return busiest;
}

int64_t process_cpu_ns() {
  return cpu_ns(CLOCK_PROCESS_CPUTIME_ID);
}

}  // namespace pelton::bench
