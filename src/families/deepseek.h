// DeepSeek V3 (also R1, V3.1, Kimi K2, Moonlight) and V2: latent attention (arXiv 2405.04434),
// neighbours rotated, many small experts in groups beside shared ones, dense layers ahead of them.
// Sources: deepseek-ai/DeepSeek-V3 inference/model.py; transformers' models/deepseek_v2,
// deepseek_v3.
#pragma once

#include "families/family.h"

namespace pelton::families {

extern const Family kDeepseekV2;
extern const Family kDeepseekV3;

}  // namespace pelton::families
