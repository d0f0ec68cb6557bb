// Requests that end workers. One that two workers were lost with while they began it is refused
// from then on, for a while: sent to a third it would end that one too, and its client tries again.
// Others that were on their way at the same workers are not blamed: once a request has been begun
// without harm its name is clear. Keeps keyed hashes, never words. Any thread; bounded.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>

#include "net/http_message.h"

namespace pelton::gateway {

class Quarantine {
 public:
  struct Options {
    std::string secret;  // of the hashes
    int crashes_max = 2;
    int64_t time_ns = 600'000'000'000;  // since its last crash
    size_t requests_max = 4096;         // kept; the oldest makes room
  };

  explicit Quarantine(Options options) : options_(std::move(options)) {}

  // It is not to be sent to anybody. Costs nothing while there is nobody to look for.
  bool holds(const net::HttpRequest& request, int64_t now_ns);
  // A worker was lost while it began this request. True: that was one too many.
  bool note_crash(const net::HttpRequest& request, int64_t now_ns);
  // Somebody has begun it and lives.
  void note_begun(const net::HttpRequest& request);

  size_t size() const { return size_; }

 private:
  struct Entry {
    int crashes = 0;
    int64_t last_ns = 0;
  };

  std::string name_of(const net::HttpRequest& request) const;
  void make_room(int64_t now_ns);

  const Options options_;
  std::atomic<size_t> size_ = 0;  // of entries_
  std::mutex mutex_;
  std::unordered_map<std::string, Entry> entries_;  // guarded by mutex_
};

}  // namespace pelton::gateway
