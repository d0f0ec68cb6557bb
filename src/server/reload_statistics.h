// What operators do to a running server, counted for /metrics: reloads and certificates; and the
// connections of its listeners. Owned by the server; any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "net/connection_acceptor.h"
#include "net/tls_identity.h"
#include "telemetry/prometheus_text.h"

namespace pelton::server {

class ReloadStatistics {
 public:
  // Before the first request; what it asks outlives the requests.
  struct Tls {
    std::shared_ptr<const net::TlsIdentity> identity;  // null: there is no TLS
    std::function<int64_t()> handshakes_failed;
  };
  void watch(Tls tls) { tls_ = std::move(tls); }

  // Those of gRPC's port, once that is open.
  void watch_grpc(std::shared_ptr<const net::ConnectionAcceptor::Counts> counts) {
    grpc_ = std::move(counts);
  }

  void count_reload(bool fine) {
    (fine ? reloads_ : reloads_failed_).fetch_add(1);
    last_reload_fine_ = fine;
  }

  void write(telemetry::PrometheusText& text) const;

 private:
  Tls tls_;
  std::atomic<std::shared_ptr<const net::ConnectionAcceptor::Counts>> grpc_;  // null: no port
  std::atomic<int64_t> reloads_{0};
  std::atomic<int64_t> reloads_failed_{0};
  std::atomic<bool> last_reload_fine_{true};
};

}  // namespace pelton::server
