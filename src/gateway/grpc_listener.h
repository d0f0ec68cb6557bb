// Clients' gRPC calls through the gateway: proto/pelton/v1/inference.proto and the standard health
// service, in the clear. A call is a request whose path is the method and whose body the message;
// its answer comes as its worker's gRPC listener would have sent it, so that it moves from worker
// to worker as others do. Messages pass as bytes; only the model's name is read. Calls live on one
// thread of its own; gRPC's threads only post there. Owned by the program's entry.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "base/log.h"
#include "base/result.h"
#include "net/allowed_hosts.h"
#include "net/http_server.h"

namespace pelton::gateway {

class GrpcListener {
 public:
  struct Options {
    std::string address = "127.0.0.1";
    int port = 0;             // 0: any free one
    net::AllowedHosts hosts;  // calls for others: PERMISSION_DENIED
    int message_bytes_max = 32 * 1024 * 1024;
    // Of all messages that are on their way here, together.
    size_t memory_bytes_max = size_t{256} << 20;
    int calls_max = 4096;  // at a time; beyond that RESOURCE_EXHAUSTED
    int connections_max = 1024;
    std::chrono::milliseconds first_call_time_max{20'000};
    std::chrono::milliseconds idle_time_max{300'000};
    // A client that does not take what is to be written in this time is cut off.
    std::chrono::milliseconds stall_time_max{30'000};
    std::chrono::milliseconds ping_time{30'000};  // while a connection with a call says nothing
  };
  // Answers a request over its exchange; on the calls' thread.
  using Handler =
      std::function<void(net::HttpRequest request, const std::shared_ptr<net::Exchange>& exchange)>;

  // Whether a call with these metadata has a key that may use the gateway; on the calls' thread.
  // What stays open for long, a session, is asked for it at its beginning.
  using Knows = std::function<bool(const net::HttpRequest& head)>;

  // `log` outlives it.
  GrpcListener(Handler handler, Knows knows, base::Log& log);
  ~GrpcListener();  // closes

  // Once. Errors: kAddressInUse, kIo.
  Result<void> open(const Options& options);
  int port() const;  // 0 before open()

  // Lets running calls go on for so long, then cancels them.
  void close(std::chrono::milliseconds grace);

 private:
  struct Parts;
  const Handler handler_;
  const Knows knows_;
  base::Log& log_;
  std::unique_ptr<Parts> parts_;
};

}  // namespace pelton::gateway
