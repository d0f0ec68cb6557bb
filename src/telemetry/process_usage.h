// What this process holds of the machine, read from /proc at the moment. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/json_writer.h"

namespace pelton::telemetry {

struct ProcessUsage {
  std::map<std::string, int> descriptors;  // open ones by kind: "socket", "file", "eventpoll", …
  int64_t descriptors_max = 0;             // the soft limit
  std::map<std::string, int> threads;      // by name
  int64_t resident_bytes = 0;
  int64_t resident_peak_bytes = 0;
  // The allocator's own books: what the program has, what lies free between it and is not given
  // back to the system, and of the first what is mapped by itself because it is large.
  int64_t heap_used_bytes = 0;
  int64_t heap_free_bytes = 0;
  int64_t heap_mapped_bytes = 0;
  double cpu_seconds = 0.0;         // user and system
  double start_time_seconds = 0.0;  // since 1970

  int descriptor_count() const;
  int thread_count() const;
};

// The descriptor by which /proc itself is being read is not counted.
ProcessUsage process_usage();
// The same as one JSON object, as ledgers have it (GET /debug/ledger).
void write_process(base::JsonWriter& json);

}  // namespace pelton::telemetry
