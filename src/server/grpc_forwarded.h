// A gRPC call that a gateway forwards: its method is the path, its message the body; the answer
// goes back as the call would have sent it (rpc/grpc_frame.h, or a whole reply's bytes).
#pragma once

#include "server/call.h"
#include "server/services.h"

namespace pelton::server {

void answer_forwarded_grpc(Call call, Services& services);

}  // namespace pelton::server
