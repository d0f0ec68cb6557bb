#include "server/reload_statistics.h"

namespace pelton::server {

void ReloadStatistics::write(telemetry::PrometheusText& text) const {
  using Type = telemetry::PrometheusText::Type;
  text.family("pelton_config_reloads_total", Type::kCounter, "SIGHUPs by what became of them.");
  text.sample({{"outcome", "fine"}}, static_cast<double>(reloads_.load()));
  text.sample({{"outcome", "failed"}}, static_cast<double>(reloads_failed_.load()));
  text.gauge("pelton_config_last_reload_successful",
             "0: the files on disk have a mistake, what was read before is in force.",
             last_reload_fine_.load() ? 1 : 0);
  if (const auto grpc = grpc_.load()) {
    text.gauge("pelton_grpc_connections", "Connections open to gRPC's port.", grpc->open.load());
    text.counter("pelton_grpc_connections_refused_total",
                 "Connections closed at once, because as many were open as may be.",
                 static_cast<double>(grpc->refused.load()));
    text.counter("pelton_grpc_connections_unclaimed_total",
                 "Connections closed because no call that counts had begun on them.",
                 static_cast<double>(grpc->unclaimed_closed.load()));
  }
  if (tls_.identity == nullptr) return;
  text.gauge("pelton_tls_certificate_expiry_timestamp_seconds",
             "When the certificate in force ends.",
             static_cast<double>(tls_.identity->expires_s()));
  text.counter("pelton_tls_handshakes_failed_total", "TLS handshakes that came to nothing.",
               static_cast<double>(tls_.handshakes_failed()));
}

}  // namespace pelton::server
