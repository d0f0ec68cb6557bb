// What the gateway itself has to say to a client, in the words of the protocol that the client
// speaks: known by its path. Pure.
#pragma once

#include <string>
#include <string_view>

#include "api/error.h"
#include "net/http_message.h"

namespace pelton::gateway {

// Instead of an answer.
net::HttpResponse error_answer(std::string_view path, const api::ApiError& error,
                               std::string_view request_id);
// Amid a stream of events, as its last one; `number`: of the Responses API's events, the next.
std::string interruption_event(std::string_view path, const api::ApiError& error,
                               int64_t number = 0);
// The same of a live session (/v1/realtime, /v1/audio/speech/websocket), as one message of its
// WebSocket.
std::string live_session_error(const api::ApiError& error);
// A worker's whole answer that is an error, where the client has a stream's head already.
std::string error_event(std::string_view path, std::string_view body);

}  // namespace pelton::gateway
