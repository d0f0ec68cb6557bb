// What a worker is called by those that exchange blocks with it: one name for each start, which
// ends with what its blocks are. So a gateway never names a source to a worker that would refuse
// it. Pure.
#pragma once

#include <string>
#include <string_view>

#include "kv_transfer/peer_messages.h"

namespace pelton::kv_transfer {

// `drawn` "." 16 hexadecimal digits of the layout.
std::string peer_id(std::string_view drawn, const PeerLayout& layout);

// The digits; empty: its version does not say. Workers of equal ones understand each other.
std::string_view layout_of(std::string_view id);

}  // namespace pelton::kv_transfer
