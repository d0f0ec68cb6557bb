// Whether what a chain's steps name is there and fits: resolves names to steps, puts the steps in
// the order of their needs, and gives every step and the output its type. Internal to this room.
#pragma once

#include "base/result.h"
#include "chain/chain.h"

namespace pelton::chain {

// Errors: kBadConfig with the line.
Result<void> check_chain(Chain& chain);

}  // namespace pelton::chain
