// How busy the generator's own threads are: a load test whose generator is out of breath measures
// the generator. Each client thread samples its own use; the results are read when all have ended.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

namespace pelton::bench {

// One thread's processor time, in windows. That thread only.
class ThreadUse {
 public:
  // Cheap enough for every piece of every answer: looks at the processor's clock a few times a
  // second.
  void sample(int64_t now_ns) {
    if (now_ns - last_ns_ >= kWindowNs) take(now_ns);
  }
  // At the end of a request: the use until now, however short the last window is.
  void settle(int64_t now_ns);

  double share() const;  // of a core, from the first sample to the last settling
  int windows() const { return windows_; }
  int full_windows() const { return full_windows_; }  // more than kFullShare of a core

  static constexpr double kFullShare = 0.9;

 private:
  void take(int64_t now_ns);

  static constexpr int64_t kWindowNs = 200'000'000;

  int64_t first_ns_ = -1;
  int64_t last_ns_ = -1;
  int64_t first_cpu_ns_ = 0;
  int64_t last_cpu_ns_ = 0;
  int64_t settled_ns_ = -1;
  int64_t settled_cpu_ns_ = 0;
  int windows_ = 0;
  int full_windows_ = 0;
};

// All client threads of a run.
class ThreadWatch {
 public:
  ThreadUse& mine();  // the calling thread's

  // Once they have ended.
  struct Busiest {
    double share = 0;
    int windows = 0;
    int full_windows = 0;
  };
  Busiest busiest() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::thread::id, std::unique_ptr<ThreadUse>> uses_;  // under mutex_
};

int64_t process_cpu_ns();

}  // namespace pelton::bench
