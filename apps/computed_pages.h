// What an operator's listener computes when it is asked, which takes seconds rather than none:
//
//   GET /v1/whatif?pool=&last=&set=&late_seconds=&seed=   `pelton whatif --json`, of the facts that
//                                                         this process records
//   GET /v1/capacity?without=                             `pelton capacity plan --explain --json`
//
// Each is that verb itself, as a process of its own with the least priority: no net thread waits
// for it, what it takes of time and memory is bounded, and its numbers are the verb's. One at a
// time; whoever comes meanwhile gets 503 and when to ask again. It ends with its client.
//
// Owned by the verb, whose listener stops before it goes; handle() runs on that listener's net
// threads.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"
#include "net/http_message.h"
#include "net/http_server.h"

namespace pelton::apps {

class ComputedPages {
 public:
  static constexpr std::chrono::seconds kWhatIfTimeMax{60};
  static constexpr std::chrono::seconds kCapacityTimeMax{30};
  static constexpr int64_t kMemoryMax = int64_t{2} << 30;

  struct Parts {
    std::string program;        // this one's file
    std::string facts_file;     // empty: none are recorded
    std::string capacity_file;  // empty: nobody has said which machines there are
  };
  explicit ComputedPages(Parts parts) : parts_(std::move(parts)) {}
  ~ComputedPages();
  ComputedPages(const ComputedPages&) = delete;
  ComputedPages& operator=(const ComputedPages&) = delete;

  bool has_what_if() const { return !parts_.facts_file.empty(); }
  bool has_capacity() const { return !parts_.capacity_file.empty(); }

  // Whether the request was one of these; then it has been answered, or will be.
  bool handle(const net::HttpRequest& request, const std::shared_ptr<net::Exchange>& exchange);

 private:
  using GivenUp = std::shared_ptr<std::atomic<bool>>;

  Result<std::vector<std::string>> arguments_of(const net::HttpRequest& request) const;
  void start(std::vector<std::string> words, std::chrono::seconds time_max,
             const std::shared_ptr<net::Exchange>& exchange);

  const Parts parts_;
  std::mutex mutex_;
  bool is_at_work_ = false;  // guarded by mutex_, as the next two
  GivenUp given_up_;         // of what is at work
  std::thread thread_;       // of the last one
};

}  // namespace pelton::apps
