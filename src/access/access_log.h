// One line for each request that is over, as text or JSON: who, what, how long, how many tokens;
// never what was said. Written by a thread of its own, so that a slow disk or pipe holds nobody up;
// lines that do not fit the queue, or the disk, are counted and gone, whole. Owned by the program's
// entry.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <string>
#include <thread>

#include "access/request_record.h"
#include "base/bounded_queue.h"
#include "base/log.h"

namespace pelton::access {

class AccessLog {
 public:
  enum class Format { kText, kJson };

  struct Options {
    Format format = Format::kText;
    std::FILE* file = stderr;  // outlives it
    size_t lines_max = 8192;   // that wait to be written
    base::Log* log = nullptr;  // outlives it; hears when lines are lost
  };

  explicit AccessLog(const Options& options);
  ~AccessLog();  // writes what waits

  void write(const RequestRecord& record);  // any thread
  int64_t dropped() const { return dropped_.load(); }

 private:
  void write_lines();

  const Options options_;
  base::BoundedQueue<std::string> lines_;
  std::atomic<int64_t> dropped_{0};
  std::thread thread_;
};

std::string access_line(const RequestRecord& record, AccessLog::Format format);

}  // namespace pelton::access
