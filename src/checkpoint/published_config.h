// The configuration files of the published models, as values: what synthetic checkpoints start
// from. Pure.
#pragma once

#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "checkpoint/model_config.h"

namespace pelton::checkpoint {

// config.json of "gpt-oss-20b" or "gpt-oss-120b", every key (kNotFound for another name).
Result<Json> published_config(std::string_view model);

// generation_config.json of the same models (they are equal), with the stop token <|call|>.
Json published_generation_config();

// Sets num_hidden_layers, and layer_types to the alternation that starts with a sliding layer.
void set_layer_count(Json& config, int layer_count);

}  // namespace pelton::checkpoint
