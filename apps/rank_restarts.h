// `serve --rank-restarts N`: a group that has lost a rank ends as a whole; here a process stays
// that starts it anew, so often an hour. It computes nothing, holds no memory of the model's, and
// is the one that whoever started the server sees.
#pragma once

#include <cstdint>
#include <deque>

#include "base/log.h"
#include "base/result.h"
#include "cli/command_line.h"

namespace pelton::apps {

// How often something may happen within an hour. Pure.
class HourlyBound {
 public:
  explicit HourlyBound(int64_t most) : most_(most) {}
  // Whether it may once more; if so, it has.
  bool take(int64_t now_ns);

 private:
  const int64_t most_;
  std::deque<int64_t> taken_ns_;
};

// Without --rank-restarts it returns at once. Otherwise it returns in a new process each time that
// the server is started; this one waits for that, hands signals on, and leaves with its exit code.
// No other thread runs yet. Error: kIo.
Result<void> start_anew_when_lost(const cli::Arguments& arguments, base::Log& log);

}  // namespace pelton::apps
