// Gives free memory back to the system. The allocator keeps what was freed below anything that is
// still in use, for as long as that lives: after a moment of large requests a server that has 8 MB
// in use held 30 MB more for many minutes. A thread of its own, "pelton-heap"; owned by the
// program's entry.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

namespace pelton::base {

class HeapTrim {
 public:
  struct Options {
    // How often the process' memory is looked at, which costs next to nothing; and how long it may
    // be until the allocator's books are, for which it walks through all that is free, while memory
    // does not grow.
    std::chrono::milliseconds interval{2000};
    std::chrono::milliseconds books_interval{60'000};
  };

  explicit HeapTrim(const Options& options);
  ~HeapTrim();
  HeapTrim(const HeapTrim&) = delete;
  HeapTrim& operator=(const HeapTrim&) = delete;

  // Is so much free that giving it back is worth that it will be asked for again?
  struct Books {
    int64_t used_bytes;
    int64_t free_bytes;
  };
  static bool worth_it(const Books& books);

 private:
  void run();

  const Options options_;
  std::mutex mutex_;
  std::condition_variable stopped_;
  bool stopping_ = false;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace pelton::base
