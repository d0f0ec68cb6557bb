// A thread that does something every so often until its owner ends it, which it notices at once.
// The owner declares it last, so that it has ended before what it works with goes.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace pelton::base {

class PeriodicThread {
 public:
  struct Options {
    const char* name = "";  // at most 15 characters
    std::chrono::nanoseconds interval{0};
    int nice = 0;  // 19: only with what nobody else wants
  };

  // `turn` runs on the thread, the first time after one interval.
  PeriodicThread(const Options& options, std::function<void()> turn);
  ~PeriodicThread();  // waits for a turn under way
  PeriodicThread(const PeriodicThread&) = delete;
  PeriodicThread& operator=(const PeriodicThread&) = delete;

 private:
  void run();

  const Options options_;
  const std::function<void()> turn_;
  std::mutex mutex_;
  std::condition_variable stopped_;
  bool stopping_ = false;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace pelton::base
