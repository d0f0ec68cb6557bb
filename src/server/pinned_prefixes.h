// Beginnings of prompts that an operator wants kept computed while a server runs (/admin/prefixes):
// listed, added, removed, each one tenant's. What is pinned the engine knows; here is nothing but
// the way there. Any net thread.
#pragma once

#include <memory>
#include <string_view>

#include "net/http_message.h"
#include "net/http_server.h"
#include "server/services.h"

namespace pelton::server {

// Of one model, at once.
inline constexpr size_t kPinnedPrefixesMax = 64;

// {"prefixes":[{"id","model","tenant","tokens"}]}
net::HttpResponse list_prefixes(const Services& services);

// The body is a chat request's, or its messages alone (application/json), or text as a prompt of
// /v1/completions begins (text/plain). Query: "tenant" (none: those without a name), "model" (none:
// the only one). Answered once it is computed and pinned; a caller who leaves before that pins
// nothing.
void add_prefix(const Services& services, const net::HttpRequest& request,
                const std::shared_ptr<net::Exchange>& exchange);

net::HttpResponse remove_prefix(const Services& services, std::string_view id);

}  // namespace pelton::server
