// Qwen 3 with experts: Qwen 3's attention; layers of experts, with dense ones between on request.
#pragma once

#include "families/family.h"

namespace pelton::families {

extern const Family kQwen3Moe;

}  // namespace pelton::families
