// A token's number in its model's vocabulary. Here, and not in tokenizer/, because the engine
// speaks tokens without ever seeing text.
#pragma once

#include <cstdint>

namespace pelton {

using TokenId = int32_t;

}  // namespace pelton
