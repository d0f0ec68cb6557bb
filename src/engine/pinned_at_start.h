// The request id under which a server pins prefixes when it starts (--pin-prefix): those are its
// operator's and no tenant's, so that erasing whoever has no name leaves them.
#pragma once

#include <string_view>

namespace pelton::engine {

inline constexpr std::string_view kPinnedAtStart = "pin-prefix";

}  // namespace pelton::engine
