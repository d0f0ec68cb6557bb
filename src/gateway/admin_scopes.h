// Which role a request to a gateway's admin listener asks for (access/admin_gate.h): a table, and
// what stands in none of its rows is looked at by viewers and changed by role=admin. Pure.
#pragma once

#include <span>
#include <string_view>

#include "access/operator_keys.h"
#include "net/http_message.h"

namespace pelton::gateway {

struct AdminScope {
  std::string_view method;  // "GET" is HEAD and OPTIONS too; empty: any
  std::string_view path;    // ending in '*': and all below it
  access::OperatorRole role = access::OperatorRole::kAdmin;
};
// The first row that fits counts.
std::span<const AdminScope> admin_scopes();

access::OperatorRole role_needed(const net::HttpRequest& request);

}  // namespace pelton::gateway
