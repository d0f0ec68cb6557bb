// Requests that end workers. One that two workers were lost with while they began it, and nothing
// else, is refused from then on, for a while: sent to a third it would end that one too, and its
// client tries again. Where a worker that began many is lost, each may be the cause or none: one of
// those is refused after its fourth loss. Once a request has been begun without harm its name is
// clear. Keeps keyed hashes, never words. Any thread; bounded.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "net/http_message.h"

namespace pelton::gateway {

class Quarantine {
 public:
  struct Options {
    std::string secret;                 // of the hashes
    int alone_max = 2;                  // losses with nothing else begun there
    int crashes_max = 4;                // losses of any kind
    int64_t time_ns = 600'000'000'000;  // since its last crash
    size_t requests_max = 4096;         // kept; the oldest makes room
  };

  explicit Quarantine(Options options) : options_(std::move(options)) {}

  // It is not to be sent to anybody. Costs nothing while there is nobody to look for.
  bool holds(const net::HttpRequest& request, int64_t now_ns);
  // This start of a worker was lost while it began the request.
  void note_crash(const net::HttpRequest& request, std::string_view incarnation, int64_t now_ns);
  // To be asked once the others that were lost with it have been noted too, which takes a moment.
  // True: that was one too many.
  bool judge(const net::HttpRequest& request);
  // Somebody has begun it and lives.
  void note_begun(const net::HttpRequest& request);

  size_t size() const { return size_; }

 private:
  struct Entry {
    int crashes = 0;
    int alone = 0;            // of these, with nothing else begun there
    std::string incarnation;  // of the last
    int64_t last_ns = 0;
  };
  struct Loss {  // of a worker
    std::string incarnation;
    int requests = 0;  // that it had begun
  };

  std::string name_of(const net::HttpRequest& request) const;
  bool refuses(const Entry& entry) const;
  void make_room(int64_t now_ns);

  const Options options_;
  std::atomic<size_t> size_ = 0;  // of entries_
  std::mutex mutex_;
  std::unordered_map<std::string, Entry> entries_;  // guarded by mutex_, as the next
  std::deque<Loss> losses_;                         // the last ones
};

}  // namespace pelton::gateway
