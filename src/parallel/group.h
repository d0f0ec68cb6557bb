// The life of a group of ranks, as its leader sees it (rank 0, the process that serves). It starts
// the others on its host (`pelton rank`), or waits for those that somebody else starts on several
// hosts (rendezvous.h), hands each its job, and watches: all are there or none. A rank that ends or
// falls silent is the end of the group: everybody leaves their waits, the processes are ended, and
// the owner learns who it was and why. Nothing is left in the system: the shared memory has no
// name, and a follower whose leader is gone ends by itself.
//
// Owned by the leader's model. `send`, `answer_of` and the exchange are the executor's thread's;
// the group's own thread ("pelton-group") starts, watches and ends the processes.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <sys/types.h>

#include "base/json.h"
#include "base/result.h"
#include "parallel/channel.h"
#include "parallel/exchange.h"
#include "parallel/rendezvous.h"
#include "parallel/transport.h"

namespace pelton::parallel {

class MpiTransport;
class TcpTransport;

class Group {
 public:
  struct Options {
    int ranks = 2;
    std::string program = "/proc/self/exe";  // its verb `rank` is a follower
    // Of each rank, the leader's included: where it may run; of none: anywhere.
    std::vector<std::vector<int>> processors = {};
    // Of ranks that somebody else has started MPI where that is said, else TCP; never MPI of
    // others.
    TransportKind transport = TransportKind::kShm;
    // Where ranks that it does not start come to; empty: it starts them.
    std::optional<Meeting> meeting = {};
    size_t part_bytes = size_t{4} << 20;
    int64_t spin_ns = 200'000;
    int64_t silence_max_ns = 3'000'000'000;
    // Once, on the group's thread, when the other processes have ended: the group is lost.
    std::function<void(const Error& error)> on_lost = {};
  };

  // What is known of a rank from outside.
  struct RankState {
    int rank = 0;
    pid_t process = 0;                // 0: on another host
    std::string host = {};            // empty: this one
    std::string_view transport = {};  // of its numbers: "shm", "tcp", "mpi"
    Exchange::Counts counts;          // a follower's as of its last heartbeat
    // What it holds of the model; whoever knows that says so (executor/rank_bytes.h).
    int64_t weight_bytes = 0;
    int64_t cache_bytes = 0;
    bool has_whole_experts = false;  // its own, dealt out; otherwise a part of each
  };

  // Starts the processes; each gets `job`. Errors: kIo, kUnavailable naming the rank.
  static Result<std::unique_ptr<Group>> start(const Options& options, const Json& job);
  ~Group();  // the others end too
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int ranks() const { return options_.ranks; }
  Exchange& exchange() { return *exchange_; }

  // To all followers. Error: the group is lost.
  Result<void> send(std::string_view message);
  // What a follower says, in the order in which it does. Errors: the group is lost; kDeadline,
  // which is its end as well.
  Result<std::string> answer_of(int rank, int64_t timeout_ms);

  // Of an exchange that has failed: why. What the group's thread finds within a moment goes before
  // what this rank saw of it: a connection that ends is a sign, a process that was killed a cause.
  Error loss_of_exchange();

  // Why the group is lost; empty: it is not. Any thread.
  std::optional<Error> lost() const;
  // Ends it for that reason, unless it is lost already. Any thread.
  void lose(const Error& error);

  std::vector<RankState> states() const;  // any thread

 private:
  std::string_view transport_name() const;
  struct Follower;
  explicit Group(const Options& options);

  Result<void> open();
  Result<void> open_tcp();
  Result<void> open_hosts();
  Result<void> open_processes();
  void make_tcp();
  Result<void> make_mpi();
  Result<void> spawn(Follower& follower);
  Result<void> begin(const Json& job);
  void watch();
  int64_t silence_max_ns(const Follower& follower) const;
  bool hear(Follower& follower);
  void end_processes(bool kindly);
  std::string fate_of(Follower& follower);

  const Options options_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Exchange> exchange_;
  std::vector<std::unique_ptr<Follower>> followers_;
  // Until all have theirs, of each rank: the file, or the socket where it listens.
  std::vector<int> data_;
  std::vector<int> ports_;          // of those sockets
  std::vector<std::string> hosts_;  // and their addresses, on several hosts
  std::string session_;             // of this start, on several hosts
  std::string token_;               // which a rank shows when it connects
  // The transport, where it is one.
  TcpTransport* tcp_ = nullptr;
  MpiTransport* mpi_ = nullptr;
  int wake_ = -1;  // an eventfd: the thread has something to look at

  mutable std::mutex mutex_;
  std::optional<Error> lost_;  // guarded by mutex_
  std::atomic<bool> ending_{false};
  std::thread thread_;
};

}  // namespace pelton::parallel
