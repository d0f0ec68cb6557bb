// Everything a request could leave behind, counted, as JSON: what GET /debug/ledger says. Any
// thread.
#pragma once

#include <string>

namespace pelton::server {

struct Services;

// `connections`: open at the public listener. Idle ones are their clients' business, so `clean`
// does not look at them, nor at what is kept on purpose: prefixes, pinned blocks, sampled turns.
std::string ledger_report(const Services& services, int connections);

}  // namespace pelton::server
