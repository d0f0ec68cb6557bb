// How many requests were refused before anything was computed, by what was used up. Each model has
// its own: whoever refuses a request says which model it was for. Any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace pelton::access {

class RefusalCounts {
 public:
  enum class By { kQueue, kRequests, kTokens, kConcurrent, kFormats };
  static constexpr std::array<std::string_view, 5> kNames = {"queue", "requests", "tokens",
                                                             "concurrent", "formats"};

  void count(By by) { counts_[static_cast<size_t>(by)].fetch_add(1, std::memory_order_relaxed); }
  int64_t of(By by) const {
    return counts_[static_cast<size_t>(by)].load(std::memory_order_relaxed);
  }

 private:
  std::array<std::atomic<int64_t>, kNames.size()> counts_{};
};

}  // namespace pelton::access
