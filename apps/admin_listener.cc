#include "apps/admin_listener.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <variant>

#include "api/error.h"
#include "apps/console_flags.h"
#include "apps/listener_flags.h"
#include "net/json_response.h"
#include "net/url.h"
#include "server/admin_scopes.h"
#include "server/audited_requests.h"

namespace pelton::apps {

using cli::Flag;

namespace {

net::HttpResponse refused(const api::ApiError& error) {
  net::HttpResponse response = net::json_response(api::error_body(error), error.status);
  if (error.status == 401) response.headers.add("WWW-Authenticate", "Bearer");
  return response;
}

}  // namespace

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
           .help = "where that listens; beyond this machine only with --admin-keys, "
                   "--tls-client-ca or --open",
           .default_text = "127.0.0.1",
           .only_with = {{"--admin-port"}}},
          {.name = "--admin-keys",
           .help = "ask for operators' keys there: --admin-api-key, or those of --api-key-file "
                   "with role=view, role=operate or role=admin; no console then",
           .kind = Flag::Kind::kSwitch,
           .only_with = {{"--admin-port"}}},
          {.name = "--no-admin-tls",
           .help = "plain HTTP there, also with --tls-cert",
           .kind = Flag::Kind::kSwitch,
           .only_with = {{"--admin-port"}}}};
}

Result<void> AdminListener::open(const cli::Arguments& arguments, int replica,
                                 std::shared_ptr<const net::TlsIdentity> tls,
                                 access::AuditLog* audit, const access::AdminGate& gate) {
  if (!arguments.has("--admin-port")) return {};
  if (!gate.asks()) open_console(arguments, tls != nullptr);  // a page has no key to ask with
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
      [this, audit, &gate](net::HttpRequest request, std::shared_ptr<net::Exchange> exchange) {
        const auto who = gate.admit(request, server::role_needed(request));
        const auto* name = std::get_if<std::string>(&who);
        exchange = server::audited_command(request, exchange, name == nullptr ? "" : *name, audit);
        if (name == nullptr) return exchange->send(refused(std::get<api::ApiError>(who)));
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
