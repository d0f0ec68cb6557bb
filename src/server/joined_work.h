// The outcome of several things that are done at once: the first error, passed on when all are
// over. Any thread.
#pragma once

#include <mutex>
#include <optional>
#include <utility>

#include "base/result.h"
#include "server/waiting_call.h"

namespace pelton::server {

class JoinedWork {
 public:
  JoinedWork(size_t count, WorkDone done) : left_(count), done_(std::move(done)) {}
  void one(const Result<void>& outcome) {
    {
      const std::lock_guard lock(mutex_);
      if (!outcome.ok() && !error_) error_ = outcome.error();
      if (--left_ > 0) return;
    }
    done_(error_);
  }

 private:
  std::mutex mutex_;
  size_t left_;
  std::optional<Error> error_;
  const WorkDone done_;
};

}  // namespace pelton::server
