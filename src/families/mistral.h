// Mistral: Llama's arithmetic, with a sliding window on every layer (7B v0.1) or none.
#pragma once

#include "families/family.h"

namespace pelton::families {

extern const Family kMistral;

}  // namespace pelton::families
