// How many retries there may be: a share of the requests of the last ten seconds, so that workers
// that refuse everything are not asked three times as often for it (FT-42, GW-16). Retries after a
// worker has died are not charged: there are as many as there were requests at it. Any thread.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>

namespace pelton::gateway {

class RetryBudget {
 public:
  struct Options {
    double share = 0.1;
    // In ten seconds, however few requests there are: with Envoy's 3, a client of a small fleet saw
    // one error in twenty of a worker that fails one request in five.
    int least = 10;
  };

  explicit RetryBudget(const Options& options) : options_(options) {}

  // From the next retry on; 0: there are none.
  void set_share(double share);

  void note_request(int64_t now_ns);
  // Takes one if there is one left.
  bool take(int64_t now_ns);
  // How many there are left just now.
  int64_t left(int64_t now_ns);

 private:
  static constexpr int kSeconds = 10;
  struct Second {
    int64_t number = -1;  // of the clock's
    int64_t requests = 0;
    int64_t retries = 0;
  };

  Second& second_of(int64_t now_ns);
  int64_t left_locked(int64_t now_ns);

  std::mutex mutex_;
  Options options_;                       // guarded by mutex_
  std::array<Second, kSeconds> seconds_;  // guarded by mutex_; second n stands at n % 10
};

}  // namespace pelton::gateway
