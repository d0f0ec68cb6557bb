// The gRPC listener: proto/pelton/v1/inference.proto, the standard health service and reflection,
// beside the HTTP server and with the same model, keys and limits. Calls live on one thread of its
// own; gRPC's threads and the engine's only post there. Owned by the program's entry.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "base/log.h"
#include "base/result.h"
#include "net/allowed_hosts.h"
#include "net/tls_identity.h"

namespace pelton::server {

struct Services;

class GrpcListener {
 public:
  struct Options {
    std::string address = "127.0.0.1";
    int port = 0;                                 // 0: any free one
    net::AllowedHosts hosts;                      // calls for others: PERMISSION_DENIED
    std::shared_ptr<const net::TlsIdentity> tls;  // null: in the clear
    int message_bytes_max = 32 * 1024 * 1024;
    // Of all messages that are on their way here, together: beyond it they come slower, and calls
    // are ended with RESOURCE_EXHAUSTED.
    size_t memory_bytes_max = size_t{256} << 20;
    int calls_max = 4096;  // at a time; beyond that RESOURCE_EXHAUSTED
    int connections_max = 1024;
    // Of descriptors, so many stay free for everything else, and for those whom HTTP may take.
    int descriptors_spared = 320;
    int descriptors_promised = 0;
    // A connection must have begun a call in this time, or, where keys are asked for, one with a
    // key; when all places are taken, those without make room. One without calls is closed later.
    std::chrono::milliseconds first_call_time_max{20'000};
    std::chrono::milliseconds idle_time_max{300'000};
    // A client that does not take what is to be written in this time is cut off.
    std::chrono::milliseconds stall_time_max{30'000};
    // A session without a turn for so long is ended.
    std::chrono::milliseconds session_idle_time_max{3'600'000};
  };

  // Both outlive it.
  GrpcListener(Services& services, base::Log& log);
  ~GrpcListener();  // closes

  // Once. Errors: kAddressInUse, kIo.
  Result<void> open(const Options& options);
  // 0 before open().
  int port() const;
  // Open now, and as many as may be: what was asked for, or what descriptors there are for.
  int connection_count() const;
  int connections_max() const;

  // The identity has other certificates by now.
  Result<void> renew_certificates();

  // What the health service says from now on.
  void set_serving(bool serving);

  // Lets running calls go on for so long, then cancels them.
  void close(std::chrono::milliseconds grace);

 private:
  struct Parts;
  Services& services_;
  base::Log& log_;
  std::unique_ptr<Parts> parts_;
};

}  // namespace pelton::server
