// How fast this machine's memory can be read: what a decode step is compared with.
#pragma once

#include <cstdint>

#include "base/clock.h"

namespace pelton::apps {

struct BandwidthProbe {
  double best_bytes_per_second = 0;  // of the passes
  double median_bytes_per_second = 0;
  int threads = 0;
};

// Every thread reads its own part of one buffer, several times over. The buffer must be much larger
// than the caches (1 GiB is). Takes some seconds and `buffer_bytes` of memory.
BandwidthProbe probe_bandwidth(int threads, int64_t buffer_bytes, const base::Clock& clock);

}  // namespace pelton::apps
