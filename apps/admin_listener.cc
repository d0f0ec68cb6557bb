#include "apps/admin_listener.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "apps/console_flags.h"
#include "apps/listener_flags.h"
#include "net/url.h"
#include "server/audited_requests.h"

namespace pelton::apps {

using cli::Flag;

std::vector<Flag> admin_flags() {
  return {{.name = "--admin-port",
           .value = "N",
           .help = "the operator's own listener: models loaded and unloaded (/admin/models), "
                   "/debug/ledger, /metrics, health; "
                   "0: any free port",
           .kind = Flag::Kind::kInteger,
           .most = 65535},
          {.name = "--admin-host",
           .value = "ADDRESS",
           .help = "where that listens; it asks for no key, so beyond this machine only with "
                   "--tls-client-ca or --open",
           .default_text = "127.0.0.1",
           .only_with = {{"--admin-port"}}},
          {.name = "--no-admin-tls",
           .help = "plain HTTP there, also with --tls-cert",
           .kind = Flag::Kind::kSwitch,
           .only_with = {{"--admin-port"}}}};
}

Result<void> AdminListener::open(const cli::Arguments& arguments, int replica,
                                 std::shared_ptr<const net::TlsIdentity> tls,
                                 access::AuditLog* audit) {
  if (!arguments.has("--admin-port")) return {};
  open_console(arguments, tls != nullptr);
  if (arguments.has("--no-admin-tls")) tls = nullptr;
  tls_ = tls != nullptr;
  host_ = arguments.text("--admin-host");
  TRY_ASSIGN(const net::AllowedHosts hosts, allowed_hosts(arguments));
  http_ = std::make_unique<net::HttpServer>(
      net::HttpServer::Options{.address = host_,
                               .port = port_of(arguments, "--admin-port", replica),
                               .connections_max = server::AdminServer::kConnectionsMax,
                               .descriptors_spared = 0,
                               .hosts = hosts.at(host_),
                               .tls = std::move(tls),
                               .body_bytes_max = server::AdminServer::kBodyBytesMax},
      [this, audit](net::HttpRequest request, std::shared_ptr<net::Exchange> exchange) {
        exchange = server::audited_command(request, exchange, "an operator", audit);
        if (console_ != nullptr && console_->handle(request, exchange)) return;
        admin_.handle(request, exchange);
      },
      log_);
  Result<void> started = with_flag(http_->start(), "admin-host");
  if (!started) {
    http_.reset();
    return started;
  }
  return {};
}

void AdminListener::close() {
  if (http_ != nullptr) http_->stop(std::chrono::milliseconds(0));
  http_.reset();
  console_.reset();
}

// `tls`: of the public listener.
void AdminListener::open_console(const cli::Arguments& arguments, bool tls) {
  if (!has_operators_console(arguments)) return;
  console_ = std::make_unique<server::LiveConsole>(server::LiveConsole::Parts{
      .services = services_,
      .chat_port = has_console(arguments) ? std::max(public_.port(), 0) : 0,
      .chat_tls = tls});
}

std::string AdminListener::line() const {
  if (http_ == nullptr) return "";
  return std::string("admin on ") + (tls_ ? "https://" : "http://") +
         net::format_host_port(host_, http_->port()) + "\n";
}

}  // namespace pelton::apps
