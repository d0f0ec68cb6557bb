#include "server/admin_scopes.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "access/audited_exchange.h"

namespace pelton::server {
namespace {

constexpr std::array<std::string_view, 4> kProbes = {"/health", "/health/live", "/health/ready",
                                                     "/ready"};
constexpr std::string_view kLive = "/console/live";  // what the page shows

bool is_page(std::string_view path) {
  return path == "/console" || (path.starts_with("/console/") && !path.starts_with(kLive));
}

}  // namespace

access::OperatorRole role_needed(const net::HttpRequest& request) {
  using enum access::OperatorRole;
  if (access::is_reading(request)) {
    const bool is_probe = std::ranges::find(kProbes, request.path) != kProbes.end();
    return is_probe || is_page(request.path) ? kNone : kView;
  }
  const std::string_view path = request.path;
  return path == "/admin/prefixes" || path.starts_with("/admin/prefixes/") ? kOperate : kAdmin;
}

}  // namespace pelton::server
