// Which of a client's headers a worker hears, and which of a worker's the client. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/result.h"
#include "cluster/envelope.h"
#include "net/http_message.h"

namespace pelton::gateway {

// Without those of the connection, credentials (the gateway has seen them), and what only parts of
// a fleet may say to each other.
cluster::HeaderFields forwarded_headers(const net::HttpHeaders& headers);

// The same for a worker that is no Pelton and is spoken to over HTTP: without what would change how
// its answer is written, and with this gateway's name behind those of others.
net::HttpHeaders foreign_headers(const net::HttpHeaders& headers, std::string_view gateway);

// Gateways that the request has come through, as foreign_headers() names them.
inline constexpr std::string_view kHopsHeader = "x-pelton-hops";
// Whether it has been at this one before, or at too many.
bool goes_in_circles(const net::HttpHeaders& headers, std::string_view gateway);

// The region whose workers alone may answer a client's request, which its key may narrow further.
inline constexpr std::string_view kRegionHeader = "x-pelton-region";
// Of a request that another region's gateway sends: whose it is, and that region which it may not
// leave; read only where the key is a gateway's.
inline constexpr std::string_view kRegionTenantHeader = "x-pelton-region-tenant";
inline constexpr std::string_view kRegionStaysHeader = "x-pelton-region-stays-in";

// What x-request-timeout-ms and x-request-deadline-ms give the answer, the less of the two; none:
// it has neither. Errors: kInvalidArgument, as a worker says it: one is no whole number up to a
// day.
Result<std::optional<int64_t>> time_left_ns(const net::HttpHeaders& headers);

// Without x-request-timeout-ms and x-request-deadline-ms, which count from when they are read:
// whoever sends the request on says what is left.
net::HttpHeaders without_deadlines(const net::HttpHeaders& headers);

// A WebSocket's handshake as our own workers check it, of a client's that has been checked.
void add_handshake(cluster::HeaderFields& headers);

// What its client wants of a pool without a ready replica: wait (also if it says nothing), or fail.
inline constexpr std::string_view kColdStartHeader = "x-pelton-cold-start";
// Errors: kInvalidArgument: it says something else.
Result<void> check_cold_start(const net::HttpHeaders& headers);

// Without those of the connection; framing is the gateway's own.
net::HttpHeaders answer_headers(const cluster::AnswerHead& head);

}  // namespace pelton::gateway
