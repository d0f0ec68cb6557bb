// Which requests to a gateway's admin listener are lines of its audit log: all that may change
// something, whether or not anybody has thought of them here. Any thread.
#pragma once

#include <memory>
#include <string_view>

#include "access/audit_log.h"
#include "api/error.h"
#include "net/http_message.h"
#include "net/http_server.h"

namespace pelton::gateway {

// What may be asked by another method than GET and HEAD without a line of this one's.
enum class AuditedBy {
  kListener,  // its answer is a line (access/audited_exchange.h)
  kItself,    // whoever answers writes one that says more: who has signed in, what has changed
  kNobody,    // it changes nothing
};
AuditedBy audited_by(const net::HttpRequest& request);

// The way back of this request, which is a line of `audit` if it has to be; null: none is kept.
// `who` asks, as the log has it.
std::shared_ptr<net::Exchange> audited(const net::HttpRequest& request,
                                       const std::shared_ptr<net::Exchange>& exchange,
                                       access::AuditLog* audit, std::string_view who);
// Of one that whoever asked may not.
void audit_refusal(const net::HttpRequest& request, const api::ApiError& refusal,
                   access::AuditLog* audit);

}  // namespace pelton::gateway
