// What a name server says of a name: the hosts and ports of a service (SRV, RFC 2782), and
// addresses. The questions wait for their answers; on whichever thread asks. The parsers are pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "net/url.h"

namespace pelton::gateway {

struct SrvTarget {
  std::string host;
  int port = 0;
  int priority = 0;  // the lowest first; others only where none of these is there

  friend bool operator==(const SrvTarget&, const SrvTarget&) = default;
};

// Of an answer as it came, 12 bytes of header and all. kIo: it is no answer.
Result<std::vector<SrvTarget>> parse_srv_answer(std::string_view answer);
Result<std::vector<std::string>> parse_address_answer(std::string_view answer);

// Who is asked: a name server; port 0: those of /etc/resolv.conf. kUnavailable: there is no such
// name, or nobody answers.
Result<std::vector<SrvTarget>> look_up_srv(const std::string& name, const net::HostPort& server);
Result<std::vector<std::string>> look_up_addresses(const std::string& name,
                                                   const net::HostPort& server);

}  // namespace pelton::gateway
