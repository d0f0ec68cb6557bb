#include "gateway/admin_audit.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "access/audited_exchange.h"

namespace pelton::gateway {
namespace {

// Below which one of many gets a command: "/v1/workers/NAME/drain".
constexpr std::array<std::string_view, 2> kCollections = {"/v1/workers/", "/v1/rollouts/"};

// Ending in '/': all below it.
constexpr std::array<std::string_view, 7> kItself = {
    "/v1/config",               // apps/gateway_reload.cc, as the next
    "/v1/config/",              //
    "/v1/autoscaler/exchange",  // apps/scaling_exchange.cc: only what differs from the last one
    "/console/session",         // apps/console_operations.cc, as the next ones
    "/console/config",          //
    "/console/workers/",        //
    "/console/rollouts/"};
constexpr std::array<std::string_view, 1> kNobody = {"/v1/explain"};

template <size_t count>
bool is_of(std::string_view path, const std::array<std::string_view, count>& known) {
  return std::ranges::any_of(known, [&](std::string_view one) {
    return path == one || (one.ends_with('/') && path.starts_with(one));
  });
}

access::AuditEvent event_of(const net::HttpRequest& request) {
  const auto below = std::ranges::find_if(
      kCollections, [&](std::string_view one) { return request.path.starts_with(one); });
  return access::audit_event_of(request, below == kCollections.end() ? std::string_view() : *below);
}

}  // namespace

AuditedBy audited_by(const net::HttpRequest& request) {
  if (access::is_reading(request) || is_of(request.path, kNobody)) return AuditedBy::kNobody;
  return is_of(request.path, kItself) ? AuditedBy::kItself : AuditedBy::kListener;
}

std::shared_ptr<net::Exchange> audited(const net::HttpRequest& request,
                                       const std::shared_ptr<net::Exchange>& exchange,
                                       access::AuditLog* audit, std::string_view who) {
  if (audit == nullptr || audited_by(request) != AuditedBy::kListener) return exchange;
  access::AuditEvent event = event_of(request);
  event.who = who;
  return std::make_shared<access::AuditedExchange>(exchange, *audit, std::move(event));
}

void audit_refusal(const net::HttpRequest& request, const api::ApiError& refusal,
                   access::AuditLog* audit) {
  if (audit == nullptr || audited_by(request) == AuditedBy::kNobody) return;
  access::AuditEvent event = event_of(request);
  event.result = fmt::format("refused: {} {}", refusal.status, refusal.code);
  audit->note_often(event);
}

}  // namespace pelton::gateway
