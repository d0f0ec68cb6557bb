#include "gateway/admin_scopes.h"

#include <algorithm>
#include <array>

#include "access/audited_exchange.h"

namespace pelton::gateway {
namespace {

using enum access::OperatorRole;

constexpr std::array<AdminScope, 18> kScopes = {{
    // Probes of the platform carry no key.
    {"GET", "/health", kNone},
    {"GET", "/health/live", kNone},
    {"GET", "/health/ready", kNone},
    {"GET", "/ready", kNone},
    // The page holds nothing; what it commands asks for a session (apps/console_operations.h).
    {"GET", "/console/fleet", kView},
    {"", "/console", kNone},
    {"", "/console/*", kNone},
    {"GET", "*", kView},
    {"POST", "/v1/explain", kView},  // sends it to nobody
    {"POST", "/v1/workers/*", kOperate},
    {"POST", "/v1/rollouts/*", kOperate},
    {"POST", "/v1/reset_prefix_cache", kOperate},
    // Says where requests are sent, with their keys.
    {"POST", "/v1/autoscaler/exchange", kAdmin},
    {"POST", "/v1/erase_tenant", kAdmin},
    {"PUT", "/v1/config*", kAdmin},
    {"PATCH", "/v1/config*", kAdmin},
    {"DELETE", "/v1/config*", kAdmin},
    {"POST", "/v1/config/history/*", kAdmin},
}};

bool fits(const AdminScope& scope, const net::HttpRequest& request) {
  const std::string_view method =
      access::is_reading(request) ? std::string_view("GET") : std::string_view(request.method);
  if (!scope.method.empty() && scope.method != method) return false;
  if (!scope.path.ends_with('*')) return scope.path == request.path;
  return request.path.starts_with(scope.path.substr(0, scope.path.size() - 1));
}

}  // namespace

std::span<const AdminScope> admin_scopes() {
  return kScopes;
}

access::OperatorRole role_needed(const net::HttpRequest& request) {
  const auto found =
      std::ranges::find_if(kScopes, [&](const AdminScope& scope) { return fits(scope, request); });
  return found == kScopes.end() ? kAdmin : found->role;
}

}  // namespace pelton::gateway
