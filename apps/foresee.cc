#include "apps/foresee.h"

#include <filesystem>
#include <optional>

#include "checkpoint/checkpoint.h"
#include "checkpoint/synthetic.h"
#include "node/packed_cache.h"

namespace pelton::apps {
namespace {

// A model of which only the shape is known: a published one by name, or a config.json.
bool is_shape(const std::string& model) {
  return model == "gpt-oss-20b" || model == "gpt-oss-120b" || model.ends_with(".json");
}

// What `serve` would use instead of a large model's own files, once it has made it.
Result<std::optional<std::string>> packed_folder(const checkpoint::Checkpoint& model) {
  const std::string cache = node::packed_cache_folder();
  if (model.weight_layout() == checkpoint::WeightLayout::kTiled || cache.empty() ||
      model.weight_bytes() < node::kPackedFromBytes) {
    return std::optional<std::string>();
  }
  return node::find_packed(cache, model, models::WeightChoice::kAuto);
}

}  // namespace

Result<cost_model::Footprint> foresee(const std::string& model,
                                      const cost_model::MemoryRequest& request) {
  if (is_shape(model) && !std::filesystem::is_directory(model)) {
    TRY_ASSIGN(const checkpoint::SyntheticOptions shape, checkpoint::synthetic_like(model, 0));
    TRY_ASSIGN(const checkpoint::ModelConfig config,
               checkpoint::parse_model_config(shape.config, nullptr, model));
    return cost_model::footprint(config, request);
  }
  TRY_ASSIGN(const std::string folder, checkpoint::resolve_model(model));
  TRY_ASSIGN(const checkpoint::Checkpoint checkpoint, checkpoint::Checkpoint::open(folder));
  TRY_ASSIGN(const std::optional<std::string> packed, packed_folder(checkpoint));
  if (!packed) return cost_model::footprint(checkpoint, request);
  TRY_ASSIGN(const checkpoint::Checkpoint used, checkpoint::Checkpoint::open(*packed));
  return cost_model::footprint(used, request);
}

}  // namespace pelton::apps
