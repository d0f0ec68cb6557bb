// Which worker has what is asked for by its id (a stored response, a file, a batch, a video, an
// answer under way), of what went through this gateway lately: who asks for one is sent there
// first. What is not known here (another gateway made it, or it is long ago) is asked of one worker
// after the other. Owned by the gateway. Any thread; bounded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

namespace pelton::gateway {

class IdHomes {
 public:
  struct Home {
    std::string pool;
    size_t worker = 0;    // its place in the fleet
    uint64_t serial = 0;  // of the worker that was there then
    // Of what that worker shows whoever asks: whose it is. Empty: that worker knows it itself.
    std::string tenant = {};
  };

  explicit IdHomes(size_t ids_max = 65'536) : ids_max_(ids_max) {}

  void note(const std::string& id, Home home);
  std::optional<Home> find(const std::string& id) const;

 private:
  const size_t ids_max_;
  mutable std::mutex mutex_;
  std::unordered_map<std::string, Home> homes_;  // guarded by mutex_, as the next
  std::deque<std::string> order_;                // as they came; the oldest makes room
};

}  // namespace pelton::gateway
