// What tensors of published encoders (BERT's and RoBERTa's files) are called here. Pure.
#pragma once

#include <string>
#include <string_view>

#include "families/model_config.h"

namespace pelton::families {

// As tensor_name: empty for what neither embeddings nor labels need (the pooler of a model without
// labels, the head of a masked language model, stored position ids).
std::string encoder_tensor_name(const ModelConfig& config, std::string_view stored);

// The reverse, of an expected tensor: what BERT's or RoBERTa's files call it, without a prefix.
std::string encoder_published_name(const ModelConfig& config, std::string_view name);

}  // namespace pelton::families
