// Mixtral: Mistral with experts, of which the softmax over the best two logits is the weight.
#pragma once

#include "families/family.h"

namespace pelton::families {

extern const Family kMixtral;

}  // namespace pelton::families
