// Llama (3.x and before) and what others published in its class (SmolLM2, TinyLlama, Yi,
// R1-Distill- Llama): full attention without norms on queries and keys, no biases, SwiGLU, from 3.1
// on with frequencies scaled in bands; small ones tie the head to the embedding. Source:
// transformers' models/llama/modeling_llama.py and the published config.json files.
#pragma once

#include "families/family.h"

namespace pelton::families {

extern const Family kLlama;

}  // namespace pelton::families
