// A follower's end of a group (group.h): it takes its job and its steps from the leader, takes part
// in exchanges, and ends when the leader is gone or silent. Owned by the verb `rank`; its thread,
// beside one that watches.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "parallel/channel.h"
#include "parallel/exchange.h"
#include "parallel/transport.h"

namespace pelton::parallel {

// Where the leader leaves its ends for the process that it starts.
struct MemberDescriptors {
  int control = 3;
  int steps = 4;
  int data = 5;  // the group's shared memory, or the socket where this rank listens
};

// What each side sends the other twice a second on the control connection.
struct Heartbeat {
  int64_t exchanges = 0;
  int64_t bytes = 0;
  int64_t wait_ns = 0;
  int64_t copy_ns = 0;
  int64_t rows = 0;
};

class Member {
 public:
  // What became of the leader: it has gone, or is there and does nothing.
  struct Loss {
    std::string why;
    bool is_silent = false;
  };
  struct Options {
    MemberDescriptors descriptors = {};
    std::string secret = {};  // of a group on several hosts (rendezvous.h)
    int64_t job_limit_ms = 60'000;
    int64_t silence_max_ns = 3'000'000'000;
    // On the watching thread, or on the one that joins. Does not return.
    std::function<void(const Loss& loss)> on_lost;
  };

  // Errors: kUnavailable where the leader says that the group does not begin (one that is lost
  // goes to on_lost instead), kBadConfig where what came is no job.
  static Result<std::unique_ptr<Member>> join(const Options& options);
  ~Member();
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  int rank() const { return transport_->rank(); }
  int ranks() const { return transport_->ranks(); }
  const std::vector<int>& processors() const { return processors_; }  // empty: any
  const Json& job() const { return job_; }
  Exchange& exchange() { return *exchange_; }

  Result<void> answer(std::string_view message) { return steps_.send(message); }
  // Of a follower whose step has ended. Error: kUnavailable, what broke off its exchanges; only
  // after the leader has had time to find a cause that lies deeper, and to end this process.
  Result<void> check_exchange() const;
  // Waits for the next message; empty: the group ends.
  Result<std::optional<std::string>> next();

 private:
  Member(const Options& options, Channel steps);
  Result<void> take_job(std::string_view text);
  Result<void> join_exchange(const Json& job);
  void begin_watching();
  void watch();
  void lose(const Loss& loss);

  const Options options_;
  Channel control_;
  Channel steps_;
  Json job_;
  std::vector<int> processors_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Exchange> exchange_;
  std::atomic<bool> has_job_{false};
  std::atomic<bool> joined_{false};  // those two are there
  std::atomic<bool> ending_{false};
  std::thread thread_;
};

}  // namespace pelton::parallel
