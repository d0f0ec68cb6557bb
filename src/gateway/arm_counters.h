// How many requests each arm of each route has been given. Any thread; bounded by the configuration
// files that there have been.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

namespace pelton::gateway {

class ArmCounters {
 public:
  using Counts = std::map<std::pair<std::string, std::string>, int64_t>;  // by model and arm

  void note(std::string_view model, std::string_view arm) {
    std::lock_guard lock(mutex_);
    if (counts_.size() < kArmsMax) ++counts_[{std::string(model), std::string(arm)}];
  }
  Counts counts() const {
    std::lock_guard lock(mutex_);
    return counts_;
  }

 private:
  static constexpr size_t kArmsMax = 1024;

  mutable std::mutex mutex_;
  Counts counts_;  // guarded by mutex_
};

}  // namespace pelton::gateway
