// gpt-oss (20b, 120b and anything of that shape): alternating window and full attention with sinks,
// YaRN, a biased router over MXFP4 experts with clamped SwiGLU. Facts and sources:
// docs/formats/gpt_oss.md.
#pragma once

#include "families/family.h"

namespace pelton::families {

extern const Family kGptOss;

}  // namespace pelton::families
