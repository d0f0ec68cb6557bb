// What answers have in common in any version of HTTP: which headers are this room's to write, which
// have no body, and the limits of a listener's options. Pure functions; any thread. Internal to
// this room.
#pragma once

#include <string>
#include <string_view>

#include "net/head_scan.h"
#include "net/http_server.h"

namespace pelton::net {

HttpLimits limits_of(const HttpServer::Options& options);

// Framing is this room's business; whatever a caller says about it is left out.
bool is_framing_header(std::string_view name);
bool has_no_body(int status);

// A line break in a value (from a foreign server, say) would be a header, or an answer, of its own.
void append_header_text(std::string& out, std::string_view text);

}  // namespace pelton::net
