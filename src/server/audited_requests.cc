#include "server/audited_requests.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "access/audited_exchange.h"
#include "base/json.h"
#include "server/root_path.h"
#include "server/routes.h"

namespace pelton::server {
namespace {

// What a body says of which model or adapter is meant: never a text of its own.
constexpr std::array<std::string_view, 4> kNames = {"model", "name", "lora_name", "lora_path"};
constexpr size_t kBodyMax = size_t{1} << 16;

// vLLM's, for which any caller's key will do where --enable-sleep-mode lets callers have it.
constexpr std::array<std::string_view, 2> kSleep = {"/sleep", "/wake_up"};

void add_names(const net::HttpRequest& request, access::AuditEvent& event) {
  if (request.body.empty() || request.body.size() > kBodyMax) return;
  const Result<Json> body = Json::parse(request.body);
  if (!body.ok()) return;
  for (const std::string_view key : kNames) {
    if (const auto value = body->string(key)) {
      event.detail.push_back(fmt::format("{} = {}", key, *value));
    }
  }
}

std::shared_ptr<net::Exchange> audited_as(const net::HttpRequest& request,
                                          const std::shared_ptr<net::Exchange>& exchange,
                                          std::string_view who, access::AuditLog& audit,
                                          access::AuditedExchange::Done done) {
  access::AuditEvent event = access::audit_event_of(request, {});
  event.who = who;
  add_names(request, event);
  return std::make_shared<access::AuditedExchange>(exchange, audit, std::move(event), done);
}

}  // namespace

bool changes_server(const Endpoint& endpoint) {
  if (endpoint.method == "GET") return false;
  return endpoint.access == Endpoint::Access::kAdminKey ||
         std::ranges::find(kSleep, endpoint.path) != kSleep.end();
}

std::shared_ptr<net::Exchange> audited(const net::HttpRequest& request,
                                       const std::shared_ptr<net::Exchange>& exchange,
                                       const Services& services, access::AuditLog* audit) {
  if (audit == nullptr || access::is_reading(request)) return exchange;
  std::string path = request.path;
  strip_root_path(services.options.root_path, path);
  const EndpointMatch match = find_endpoint(request.method, path);
  if (match.endpoint == nullptr || !changes_server(*match.endpoint)) return exchange;
  const std::optional<access::Principal> caller =
      services.access_control.identify(access::AccessControl::credentials_of(request.headers));
  std::string who;
  const bool is_known = caller && !caller->account.empty();  // where a key is asked for at all
  if (is_known) who = caller->tenant.empty() && caller->is_admin ? "an operator" : caller->tenant;
  using Done = access::AuditedExchange::Done;
  const bool is_operators = match.endpoint->access == Endpoint::Access::kAdminKey;
  return audited_as(request, exchange, who, *audit, is_operators ? Done::kWritten : Done::kCounted);
}

std::shared_ptr<net::Exchange> audited_command(const net::HttpRequest& request,
                                               const std::shared_ptr<net::Exchange>& exchange,
                                               std::string_view who, access::AuditLog* audit) {
  if (audit == nullptr || access::is_reading(request)) return exchange;
  return audited_as(request, exchange, who, *audit, access::AuditedExchange::Done::kWritten);
}

}  // namespace pelton::server
