// Gemma 3, text: norms that multiply with 1 + w, four in each layer; embeddings times the root of
// the hidden size; GELU; five sliding layers to one that keeps every token, each kind with its own
// rotation. Source: transformers' models/gemma3/modular_gemma3.py.
#pragma once

#include "families/family.h"

namespace pelton::families {

extern const Family kGemma3;

}  // namespace pelton::families
