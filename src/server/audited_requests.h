// Which requests to a server are lines of its audit log (access/audit_log.h): those that change
// what it serves or erase what it keeps. Requests of models, and what callers do with responses,
// files and batches of their own, are not. Any thread.
#pragma once

#include <memory>
#include <string_view>

#include "access/audit_log.h"
#include "net/http_message.h"
#include "net/http_server.h"
#include "server/endpoint.h"
#include "server/services.h"

namespace pelton::server {

// Whether that row of the table of endpoints is such a one.
bool changes_server(const Endpoint& endpoint);

// The way back of a request to the public listener; `audit` null: none is kept.
std::shared_ptr<net::Exchange> audited(const net::HttpRequest& request,
                                       const std::shared_ptr<net::Exchange>& exchange,
                                       const Services& services, access::AuditLog* audit);
// To the admin listener and to gateways' own: all but what reads, whether or not anybody has
// thought of it here. `who`: who may be there, as the log has it.
std::shared_ptr<net::Exchange> audited_command(const net::HttpRequest& request,
                                               const std::shared_ptr<net::Exchange>& exchange,
                                               std::string_view who, access::AuditLog* audit);

}  // namespace pelton::server
