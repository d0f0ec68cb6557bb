// What platforms and operators ask about the server as a whole. Any thread.
#pragma once

#include <string_view>

#include "net/http_message.h"
#include "server/services.h"

namespace pelton::server {

// "loading" (those of the start), "serving", "draining", "empty" (all have been unloaded).
std::string_view state_name(const Services& services);
// New requests are taken, of every model that is served.
bool ready(const Services& services);

// Of all models: one that cannot answer is named.
net::HttpResponse live_reply(const Services& services);  // 503: a step is stuck, weights damaged
net::HttpResponse health_reply(
    const Services& services);  // 503 also at the start, without a model yet
net::HttpResponse ready_reply(
    const Services& services);  // 503 also without a model, while draining, or in doubt

}  // namespace pelton::server
