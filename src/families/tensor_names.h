// What the tensors of published safetensors files are called here (expected_tensors.h): without the
// prefixes of exports and of wrappers with other modalities, and by the family's table. Pure.
#pragma once

#include <string>
#include <string_view>

#include "families/model_config.h"

namespace pelton::families {

// "language_model.model.layers.0.block_sparse_moe.gate.weight" ->
// "model.layers.0.mlp.router.weight". Empty if a text model computes without it: other modalities,
// layers that draft further tokens, tables of frequencies.
std::string tensor_name(const ModelConfig& config, std::string_view stored);

// What the family's own files call it.
std::string published_name(const ModelConfig& config, std::string_view name);

}  // namespace pelton::families
