// When a request is worth another try, and how long to wait before it. A value with one owner.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "hub/transfers.h"

namespace pelton::hub {

// A failure after which something is tried again.
struct RetryNote {
  std::string why;
  int failures = 0;
  int tries_max = 0;
  std::chrono::milliseconds wait{};
};

struct RetryOptions {
  int tries_max = 8;        // of the same request without any progress
  int first_tries_max = 4;  // of the first one, to a hub that has not answered yet
  std::chrono::milliseconds delay{500};
  std::chrono::milliseconds delay_max{20'000};
  std::function<void(const RetryNote&)> on_retry = {};  // may be empty; on the caller's thread
};

// Statuses that may be gone the next time: 408, 425, 429 and 5xx.
bool worth_a_retry(int status);

class Retry {
 public:
  explicit Retry(const RetryOptions& options) : options_(options) {}

  // Counts a failure and reports it. False: that was the last try.
  bool again(const ResponseHead& head, const std::string& why, int64_t now_ns);
  void progress() { failures_ = 0; }
  int64_t not_before_ns() const { return not_before_ns_; }

 private:
  RetryOptions options_;
  int failures_ = 0;
  int64_t not_before_ns_ = 0;
};

}  // namespace pelton::hub
