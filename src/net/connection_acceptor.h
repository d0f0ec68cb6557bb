// A port whose connections a foreign library serves (gRPC's): accepts them, hands their sockets
// over, and keeps them within bounds that no library has. No more than so many at once; those on
// which nothing has been asked for in time are closed, and when all places are taken whoever has
// the least claim makes room; whose machine has vanished, or who takes nothing, is reset, by the
// rules that our own connections follow. A thread of its own, "pelton-accept"; owned by whoever
// owns the library's server, which it outlives.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>

#include "base/log.h"
#include "base/result.h"
#include "net/lost_peer.h"

namespace pelton::net {

class ConnectionAcceptor {
 public:
  struct Options {
    std::string address = "127.0.0.1";
    int port = 0;  // 0: any free one
    int connections_max = 1024;
    // From being accepted until a first claim().
    std::chrono::milliseconds claim_time_max{20'000};
    // Of a caller's: between its calls that have come whole. A call that never does holds nothing.
    std::chrono::milliseconds idle_time_max{320'000};
    // One without a claim may be closed for a new one when it is so old.
    std::chrono::milliseconds patience{1'000};
    std::chrono::milliseconds stall_time_max{30'000};  // of one who takes nothing of what is sent
    std::chrono::milliseconds lost_time_max{30'000};   // of one that nothing is sent to
  };

  // What a connection has shown for itself, the least first: when all places are taken, of those
  // with the least claim below kCaller the oldest makes room.
  enum class Claim { kNone, kAnybody, kCaller };

  // `log` outlives it.
  ConnectionAcceptor(const Options& options, base::Log& log);
  ~ConnectionAcceptor();  // stops
  ConnectionAcceptor(const ConnectionAcceptor&) = delete;
  ConnectionAcceptor& operator=(const ConnectionAcceptor&) = delete;

  // Binds. Errors: kAddressInUse, kInvalidArgument.
  Result<void> listen();
  int port() const { return port_; }
  int descriptor() const { return listener_; }

  // `take` owns the socket that it is given, which does not block; on our thread.
  using Take = std::function<void(int socket)>;
  Result<void> start(Take take);
  // Accepts no more; goes on looking after those that are there.
  void stop_accepting();
  void stop();  // that too

  // Any thread. The connection from `remote` ("127.0.0.1:51234", "[::1]:51234") has a claim to its
  // place.
  void claim(std::string_view remote, Claim claim);
  // A caller's call has come whole and is being answered: until end_call() of what this returns.
  uint64_t begin_call(std::string_view remote);
  void end_call(std::string_view remote, uint64_t connection);

  struct Counts {
    std::atomic<int> open{0};
    std::atomic<int64_t> unclaimed_closed{0};  // for want of a claim
    std::atomic<int64_t> refused{0};           // found no place
  };
  // Whoever holds them may read them, also when this is gone.
  std::shared_ptr<const Counts> counts() const { return counts_; }
  int connection_count() const { return counts_->open.load(std::memory_order_relaxed); }

 private:
  using Time = std::chrono::steady_clock::time_point;

  struct Connection {
    int socket = -1;     // the library's: it may be closed at any time, and be another's by then
    uint64_t inode = 0;  // which shows whether it is
    std::string remote;
    Time accepted;
    PeerPatience patience;
    bool leaving = false;
    Claim claim = Claim::kNone;
    int calls = 0;    // of a caller, being answered
    Time call_ended;  // of a caller without any
  };
  using Connections = std::list<Connection>;  // oldest first

  void run();
  void notify() const;
  void accept_all();
  bool make_room();
  void take_in(int socket, std::string remote);
  void close_unclaimed();
  void look();
  void look_at(Connection& connection);
  void drop_closed();
  void close(Connection& connection);
  void warn(std::string_view what);

  const Options options_;
  base::Log& log_;
  Take take_;
  int listener_ = -1;
  int notifier_ = -1;  // an eventfd: readable when one of the next two has changed
  std::atomic<bool> accepting_{true};
  std::atomic<bool> stopping_{false};
  int port_ = 0;
  std::optional<Time> warned_;
  const std::shared_ptr<Counts> counts_ = std::make_shared<Counts>();

  std::mutex mutex_;
  Connections connections_;  // guarded by mutex_, as is the one below
  std::unordered_map<std::string, Connections::iterator> by_remote_;

  std::thread thread_;
};

}  // namespace pelton::net
