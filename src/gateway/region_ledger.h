// What has gone to other regions: requests and bytes, by tenant and region. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

namespace pelton::gateway {

class RegionLedger {
 public:
  struct Sums {
    int64_t requests = 0;
    int64_t bytes_out = 0;  // of bodies that were sent there
    int64_t bytes_in = 0;   // of answers
  };
  using Rows = std::map<std::pair<std::string, std::string>, Sums>;  // by region and tenant

  void note(const std::string& region, const std::string& tenant, const Sums& more) {
    std::lock_guard lock(mutex_);
    auto found = rows_.find({region, tenant});
    if (found == rows_.end()) {
      // Beyond it they are counted together, under the name that no tenant has.
      const std::string whose = rows_.size() < kRowsMax ? tenant : std::string();
      found = rows_.try_emplace({region, whose}).first;
    }
    found->second.requests += more.requests;
    found->second.bytes_out += more.bytes_out;
    found->second.bytes_in += more.bytes_in;
  }
  Rows rows() const {
    std::lock_guard lock(mutex_);
    return rows_;
  }

 private:
  static constexpr size_t kRowsMax = 10'000;
  mutable std::mutex mutex_;
  Rows rows_;
};

}  // namespace pelton::gateway
