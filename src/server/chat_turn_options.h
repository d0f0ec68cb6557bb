// What a chat request, of whatever protocol, says of the turn it asks for.
#pragma once

#include "api/chat_request.h"
#include "server/chat_turn.h"
#include "server/served_model.h"

namespace pelton::server {

// Stop strings, and the opening of a call that the model is made to make. Where it is kept is the
// caller's to add.
ChatTurn::Options turn_options(const api::ChatRequest& request, const ServedModel& model);

}  // namespace pelton::server
