// Whether a text is the numeric address of a host, as listeners take it. Any thread.
#pragma once

#include <string_view>

namespace pelton::net {

// IPv4 or IPv6, without brackets and port.
bool is_ip_address(std::string_view text);

}  // namespace pelton::net
