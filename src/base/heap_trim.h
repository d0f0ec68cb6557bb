// Gives free memory back to the system. The allocator keeps what was freed below anything that is
// still in use, for as long as that lives: after a moment of large requests a server that has 8 MB
// in use held 30 MB more for many minutes. From the first one on the allocator's thresholds are
// fixed, for the whole process. A thread of its own, "pelton-heap"; owned by the program's entry.
#pragma once

#include <chrono>
#include <cstdint>

#include "base/periodic_thread.h"

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
  HeapTrim(const HeapTrim&) = delete;
  HeapTrim& operator=(const HeapTrim&) = delete;

  // Is so much free that giving it back is worth that it will be asked for again?
  struct Books {
    int64_t used_bytes;
    int64_t free_bytes;
  };
  static bool worth_it(const Books& books);

 private:
  void look();

  const Options options_;

  // The thread's.
  int64_t settled_;  // resident bytes at the last look at the books
  std::chrono::steady_clock::time_point looked_;
  std::chrono::milliseconds patience_;  // until the next

  const PeriodicThread thread_;
};

}  // namespace pelton::base
