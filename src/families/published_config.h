// The configuration files of the published models, as values: what synthetic checkpoints start
// from. Pure.
#pragma once

#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "families/model_config.h"

namespace pelton::families {

// The names below, for messages.
inline constexpr std::string_view kPublishedModels =
    "gpt-oss-20b, gpt-oss-120b, deepseek-v3, gemma-3-4b, llama-3.1-8b, mistral-7b-v0.3, "
    "mixtral-8x7b, qwen2.5-0.5b, "
    "qwen3-0.6b, qwen3-30b-a3b";

// The same, one by one.
std::vector<std::string_view> published_models();

// config.json of one of these, every key (kNotFound for another name).
Result<Json> published_config(std::string_view model);

// generation_config.json of the gpt-oss models (they are equal), with the stop token <|call|>.
Json published_generation_config();

// Sets num_hidden_layers, and layer_types, if the file has them, to gpt-oss' alternation that
// starts with a sliding layer.
void set_layer_count(Json& config, int layer_count);

}  // namespace pelton::families
