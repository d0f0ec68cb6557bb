// What a server forgets on request (/reset_prefix_cache, /erase_tenant).
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "server/call.h"
#include "server/services.h"

namespace pelton::server {

// Nothing that was computed for this tenant, or for anybody, is found any more: in no tier, and by
// no later start. Then `then` gets the call, on its net thread, also if its client has left; where
// some model cannot say so it has been answered.
void forget_computed(Call call, Services& services, const std::optional<std::string>& tenant,
                     std::function<void(Call call)> then);

}  // namespace pelton::server
