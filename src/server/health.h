// What platforms and operators ask about the server as a whole. Any thread.
#pragma once

#include <string_view>

#include "net/http_message.h"
#include "server/services.h"

namespace pelton::server {

std::string_view state_name(const Services& services);  // "loading", "serving", "draining"
// New requests are taken, of every model that is served.
bool ready(const Services& services);

// Of all models: one that cannot answer is named.
net::HttpResponse live_reply(const Services& services);    // 503: a step is stuck, weights damaged
net::HttpResponse health_reply(const Services& services);  // 503 also while there is no model
net::HttpResponse ready_reply(const Services& services);   // 503 also while draining, or in doubt

}  // namespace pelton::server
