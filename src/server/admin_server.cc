#include "server/admin_server.h"

#include <string>
#include <string_view>

#include "server/health.h"
#include "server/ledger_report.h"
#include "server/metrics_page.h"
#include "server/models_report.h"
#include "server/reply.h"
#include "telemetry/prometheus_text.h"

namespace pelton::server {

void AdminServer::handle(const net::HttpRequest& request,
                         const std::shared_ptr<net::Exchange>& exchange) {
  exchange->send(answer(request));
}

net::HttpResponse AdminServer::answer(const net::HttpRequest& request) const {
  const std::string& path = request.path;
  using Page = net::HttpResponse (*)(const AdminServer&);
  struct Route {
    std::string_view path;
    Page page;
  };
  static constexpr Route kRoutes[] = {
      {"/debug/ledger",
       [](const AdminServer& admin) {
         return json_reply(ledger_report(admin.services_, admin.door_.connection_count()));
       }},
      {"/admin/models",
       [](const AdminServer& admin) {
         return json_reply(models_report(admin.services_.catalogue));
       }},
      {"/metrics",
       [](const AdminServer& admin) {
         return text_reply(telemetry::kPrometheusContentType, metrics_page(admin.services_));
       }},
      {"/health", [](const AdminServer& admin) { return health_reply(admin.services_); }},
      {"/health/live", [](const AdminServer& admin) { return live_reply(admin.services_); }},
      {"/health/ready", [](const AdminServer& admin) { return ready_reply(admin.services_); }},
      {"/ready", [](const AdminServer& admin) { return ready_reply(admin.services_); }},
      {"/",
       [](const AdminServer&) {
         return text_reply(
             "text/plain; charset=utf-8",
             "/admin/models\n/debug/ledger\n/metrics\n/health\n/health/live\n/health/ready\n");
       }},
  };
  for (const Route& route : kRoutes) {
    if (route.path != path) continue;
    if (request.method == "GET" || request.method == "HEAD") return route.page(*this);
    net::HttpResponse refused = error_reply(api::method_not_allowed(request.method, path));
    refused.headers.add("Allow", "GET, HEAD");
    return refused;
  }
  return error_reply(api::not_found(request.method, path));
}

}  // namespace pelton::server
