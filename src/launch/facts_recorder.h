// Keeps what deciders are given and what they decide, in a file of lines (autoscaler/facts_log.h),
// for `pelton autoscale --replay`. Bounded: a file that has become too long, or that was there at
// the beginning, is renamed to FILE.1,
// in the place of the one before it, and the next one begins with what the deciders remember then,
// so that each is replayed by itself. A disk that is full costs lines, not decisions; the log says
// so once. One owner, one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "autoscaler/facts_log.h"
#include "base/log.h"
#include "base/output_file.h"

namespace pelton::launch {

class FactsRecorder {
 public:
  static constexpr int64_t kBytesMax = int64_t{64} << 20;

  // What is there becomes FILE.1: it may be what led to the end of whoever recorded it. Errors:
  // kIo. `log` outlives it.
  static Result<std::unique_ptr<FactsRecorder>> open(std::string path, int64_t bytes_max,
                                                     base::Log& log);

  void begin(std::string_view pool, const autoscaler::PoolPolicy& policy, std::string_view state);
  void note(std::string_view pool, int64_t now_ns, const autoscaler::PoolFacts& facts,
            const autoscaler::PoolDecision& decision);
  // The file is long enough: the caller calls renew(), and then begin() for each pool.
  bool is_full() const { return bytes_ >= bytes_max_; }
  void renew();

 private:
  FactsRecorder(std::string path, int64_t bytes_max, base::OutputFile file, base::Log& log);
  void write(std::string line);

  const std::string path_;
  const int64_t bytes_max_;
  base::OutputFile file_;
  base::Log& log_;
  int64_t bytes_ = 0;
  bool failed_ = false;  // and the log says so
};

}  // namespace pelton::launch
