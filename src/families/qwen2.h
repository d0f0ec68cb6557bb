// Qwen 2 and 2.5: Llama with biases on queries, keys and values; some files let upper layers slide.
#pragma once

#include "families/family.h"

namespace pelton::families {

extern const Family kQwen2;

}  // namespace pelton::families
