// One measurement at a time on a machine: two at once would both be wrong. Every `bench` verb takes
// this lock first; a script takes it by running its commands under tools/alone, which says so to
// the verbs among them. Main thread.
#pragma once

#include "base/result.h"
#include "cli/interrupt.h"

namespace pelton::apps {

class BenchLock {
 public:
  // Waits, and says so, while another process holds it. Errors: kCancelled by `interrupt` (null:
  // signals end the process).
  static Result<BenchLock> take(const cli::Interrupt* interrupt);

  BenchLock(BenchLock&& other) noexcept;
  BenchLock& operator=(BenchLock&&) = delete;
  ~BenchLock();

 private:
  explicit BenchLock(int file) : file_(file) {}
  int file_;  // negative: a caller of this process holds the lock
};

}  // namespace pelton::apps
