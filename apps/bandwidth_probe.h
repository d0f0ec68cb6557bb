// How fast this machine's memory can be read: what a decode step is compared with. Memory speed
// moves (other guests of the host take their part), so measure beside what is compared.
// Main thread, with the pool's workers.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/thread_pool.h"
#include "cli/command_line.h"

namespace pelton::apps {

class BandwidthProbe {
 public:
  // `--buffer-size`, and the bytes that it asks for; where it asks for none 4 GiB, or a fifth of
  // what this process may have: far more than any cache.
  static cli::Flag buffer_size_flag();
  static int64_t bytes_of(const cli::Arguments& arguments);

  // Allocates and touches the buffer. `pool` outlives it.
  BandwidthProbe(base::ThreadPool& pool, int64_t buffer_bytes);
  BandwidthProbe(const BandwidthProbe&) = delete;
  BandwidthProbe& operator=(const BandwidthProbe&) = delete;
  ~BandwidthProbe();

  // The whole buffer read once by all threads, in one way after the other. No way is the fastest
  // on all machines, or even always on one.
  struct Pass {
    std::string_view way;
    double bytes_per_second = 0;
  };
  std::vector<Pass> measure(const base::Clock& clock);

  // The fastest of one round of ways: a few passes, 0.1 s each at 40 GB/s.
  double bytes_per_second(const base::Clock& clock);

  int64_t buffer_bytes() const { return bytes_; }

 private:
  base::ThreadPool& pool_;
  const int64_t bytes_;  // whole chunks
  char* memory_;
  uint64_t sum_ = 0;  // of all that was read, so that it must be read
};

}  // namespace pelton::apps
