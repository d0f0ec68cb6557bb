// Sessions over gRPC, as a server and a gateway hold them: one stream, whose messages are turns of
// a conversation and whose chunks are their answers (proto/pelton/v1/inference.proto). A turn is a
// Generate over an exchange of its own. All but what gRPC's library calls runs on the listener's
// loop.
#pragma once

#include <chrono>
#include <memory>
#include <unordered_set>

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>
#include <pelton/v1/inference.pb.h>

#include "net/http_server.h"
#include "net/work_loop.h"

namespace pelton::rpc {

// What a listener does for one of its sessions, which owns it.
class SessionHost {
 public:
  virtual ~SessionHost() = default;
  // Whether it may be here; the other calls come behind a yes. False: it has been answered over
  // `opening`.
  virtual bool admit(std::shared_ptr<net::Exchange> opening) = 0;
  // Answers it over `exchange`, in frames (rpc/grpc_frame.h).
  virtual void start_turn(v1::GenerateRequest request,
                          const std::shared_ptr<net::Exchange>& exchange) = 0;
};

class Session;

// Those of a listener, which owns this; outlives them.
class Sessions {
 public:
  struct Options {
    std::chrono::milliseconds stall_time_max{30'000};    // as of other streams
    std::chrono::milliseconds idle_time_max{3'600'000};  // without a turn
    // Of what a session keeps for a turn that continues, and of all of them together.
    size_t history_bytes_max = size_t{4} << 20;
    size_t histories_bytes_max = size_t{256} << 20;
  };
  Sessions(net::WorkLoop& loop, Options options) : loop_(loop), options_(options) {}

  // gRPC's thread. It deletes itself when gRPC is done with it.
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* start(
      grpc::CallbackServerContext& context, std::unique_ptr<SessionHost> host);
  // Any thread: each ends behind its running turn, and what waits is refused, as are new ones.
  void drain();

 private:
  friend class Session;

  void begin_watch();  // for those that have been idle for too long; one timer for all

  net::WorkLoop& loop_;
  const Options options_;
  std::unordered_set<Session*> open_;
  size_t kept_bytes_ = 0;  // of their histories
  bool draining_ = false;
  bool watched_ = false;
};

}  // namespace pelton::rpc
