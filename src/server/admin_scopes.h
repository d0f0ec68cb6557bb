// Which role a request to a server's admin listener asks for (access/admin_gate.h). Pure.
#pragma once

#include "access/operator_keys.h"
#include "net/http_message.h"

namespace pelton::server {

// What is looked at: view; prefixes pinned: operate; all else, and what nobody has thought of here:
// admin. Probes, and the console's page, which holds nothing: none.
access::OperatorRole role_needed(const net::HttpRequest& request);

}  // namespace pelton::server
