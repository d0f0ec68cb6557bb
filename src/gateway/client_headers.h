// Which of a client's headers a worker hears, and which of a worker's the client. Pure.
#pragma once

#include "cluster/envelope.h"
#include "net/http_message.h"

namespace pelton::gateway {

// Without those of the connection, credentials (the gateway has seen them), and what only parts of
// a fleet may say to each other.
cluster::HeaderFields forwarded_headers(const net::HttpHeaders& headers);

// Without those of the connection; framing is the gateway's own.
net::HttpHeaders answer_headers(const cluster::AnswerHead& head);

}  // namespace pelton::gateway
