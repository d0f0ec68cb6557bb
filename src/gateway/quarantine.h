// Requests that end workers. One that two workers were lost with while they began it is refused
// from then on, for a while: sent to a third it would end that one too, and its client tries again.
// What was begun beside it when the first one was lost is under suspicion too; so that the second
// loss sets them apart, a worker begins at most one suspect at a time, a trial. Once a request has
// been begun without harm its name is clear. Keeps keyed hashes, never words. Any thread; bounded.
//
//   lost with w1: a, b, c (each once) -> a tried at w2, b at w3, c waits -> w2 is lost: a is
//   refused
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "net/http_message.h"

namespace pelton::gateway {

class Quarantine {
 public:
  struct Options {
    std::string secret;                 // of the hashes
    int crashes_max = 2;                // workers that were lost with it
    int64_t time_ns = 600'000'000'000;  // since its last crash
    size_t requests_max = 4096;         // kept; the oldest makes room
  };

  explicit Quarantine(Options options) : options_(std::move(options)) {}

  // The next three cost nothing while there is nobody to look for.

  // It is not to be sent to anybody.
  bool holds(const net::HttpRequest& request, int64_t now_ns);
  // Starts of workers that begin a suspect, if this request is one itself: others are for it.
  std::vector<std::string> tried_by_others(const net::HttpRequest& request);
  enum class Trial { kNone, kBegun, kTaken };  // kNone: it is no suspect; kTaken: another one's
  // It is being sent to this start of a worker; kBegun: to be ended by one of the next three.
  Trial begin_trial(const net::HttpRequest& request, std::string_view incarnation);

  // From being sent until it is known to be harmless, or lost: of another one like it no trial
  // begins meanwhile, as both might end a worker. Known by a cheap fingerprint, so that every
  // request can be counted.
  class InFlight {
   public:
    InFlight(Quarantine& quarantine, const net::HttpRequest& request);
    ~InFlight();
    InFlight(const InFlight&) = delete;
    InFlight& operator=(const InFlight&) = delete;

   private:
    Quarantine& quarantine_;
    const uint64_t fingerprint_;
  };

  // Neither begun nor lost.
  void end_trial(std::string_view incarnation);
  // This start of a worker was lost while it began the request. True: that was one too many.
  bool note_crash(const net::HttpRequest& request, std::string_view incarnation, int64_t now_ns);
  // That one has begun it and lives.
  void note_begun(const net::HttpRequest& request, std::string_view incarnation);

  size_t size() const { return size_; }  // suspects, and those that are refused

 private:
  struct Entry {
    int crashes = 0;          // starts of workers that were lost with it
    std::string incarnation;  // the last of these
    int64_t last_ns = 0;
  };

  std::string name_of(const net::HttpRequest& request) const;
  static uint64_t fingerprint_of(const net::HttpRequest& request);
  void make_room(int64_t now_ns);

  const Options options_;
  std::atomic<size_t> size_ = 0;  // of entries_
  std::mutex mutex_;
  std::unordered_map<std::string, Entry> entries_;          // guarded by mutex_, as the next
  std::map<std::string, std::string, std::less<>> trials_;  // by incarnation: whose
  std::unordered_map<uint64_t, int> in_flight_;             // by fingerprint
};

}  // namespace pelton::gateway
