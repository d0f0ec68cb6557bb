// The configuration files of the published models, as values: what synthetic checkpoints start
// from. A family's own stand in its file (Family::published). Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "families/model_config.h"

namespace pelton::families {

// The names of all families' published models, gpt-oss first.
std::vector<std::string_view> published_models();
// The same with commas between, for messages.
std::string published_model_names();

// config.json of one of these, every key (kNotFound for another name).
Result<Json> published_config(std::string_view model);

// generation_config.json of the gpt-oss models (they are equal), with the stop token <|call|>.
Json published_generation_config();
// generation_config.json as it is published for models like `config`; none where no family's file
// has one, or its tokens are not in the vocabulary.
std::optional<Json> published_generation(const Json& config);

// Sets num_hidden_layers, and layer_types, if the file has them, to gpt-oss' alternation that
// starts with a sliding layer.
void set_layer_count(Json& config, int layer_count);

// For the families' files: what those of Llama's descendants say alike.
struct PublishedSizes {
  const char* architecture;
  const char* model_type;
  int layers;
  int hidden;
  int heads;
  int kv_heads;
  int intermediate;
  int vocab;
  int context;
  double theta;
  double epsilon;
  bool tied = false;
};
Json published_decoder(const PublishedSizes& sizes);
// Sets what Qwen's files say alike: tokens, and a window from `first_sliding` on that is off.
void add_qwen_keys(Json& config, int first_sliding);

}  // namespace pelton::families
