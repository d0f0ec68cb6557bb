// Chats that ask for a chain, "chain:NAME". On the call's net thread.
#pragma once

#include "server/call.h"
#include "server/services.h"

namespace pelton::server {

// False: the chat asks for no chain; the call is left as it is. Else it has been taken.
bool run_chain_as_chat(Call& call, Services& services);

}  // namespace pelton::server
