// Qwen3, dense (0.6B to 32B): full attention with an RMS norm over each head of queries and keys,
// no biases, SwiGLU; small ones tie the head to the embedding. Source: transformers'
// models/qwen3/modeling_qwen3.py and the published config.json files.
#pragma once

#include "families/family.h"

namespace pelton::families {

extern const Family kQwen3;

}  // namespace pelton::families
