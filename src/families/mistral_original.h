// Mistral's own layout (params.json, consolidated.safetensors): the tensors of its Hugging Face
// files under other names, rows of q and k of each head so that elements 2i and 2i + 1 rotate
// together. Pure.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace pelton::families {

// What a Hugging Face config.json would say. Errors: kUnsupported naming a key of params.json that
// means another arithmetic (experts, other scalings).
Result<Json> config_from_mistral(const Json& params, const std::string& file);

// What the tensor is called here; empty if the name is unknown.
std::string name_from_mistral(std::string_view stored);

}  // namespace pelton::families
