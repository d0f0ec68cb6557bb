#include "apps/foresee.h"

#include <filesystem>
#include <optional>

#include "checkpoint/checkpoint.h"
#include "checkpoint/synthetic.h"
#include "families/published_config.h"
#include "node/packed_cache.h"

namespace pelton::apps {
namespace {

// A model of which only the shape is known: a published one by name, or a config.json.
bool is_shape(const std::string& model) {
  return families::published_config(model).ok() || model.ends_with(".json");
}

// Whether `serve` makes other files of a large model's own before it uses them.
bool is_packed_when_loaded(const checkpoint::Checkpoint& model) {
  return model.weight_layout() != families::WeightLayout::kTiled &&
         !node::packed_cache_folder().empty() && model.weight_bytes() >= node::kPackedFromBytes;
}

}  // namespace

Result<Foreseen> foresee(const std::string& model, const cost_model::MemoryRequest& request) {
  Foreseen foreseen;
  if (is_shape(model) && !std::filesystem::is_directory(model)) {
    TRY_ASSIGN(const checkpoint::SyntheticOptions shape, checkpoint::synthetic_like(model, 0));
    TRY_ASSIGN(const families::ModelConfig config,
               families::parse_model_config(shape.config, nullptr, model));
    TRY_ASSIGN(foreseen.footprint, cost_model::footprint(config, request));
    TRY(cost_model::check_fits(foreseen.footprint));
    return foreseen;
  }
  TRY_ASSIGN(const std::string folder, checkpoint::resolve_model(model));
  TRY_ASSIGN(checkpoint::Checkpoint used, checkpoint::Checkpoint::open(folder));
  if (is_packed_when_loaded(used)) {
    TRY_ASSIGN(const std::optional<std::string> packed,
               node::find_packed(node::packed_cache_folder(), used, models::WeightChoice::kAuto));
    foreseen.will_be_packed = !packed;
    if (packed) {
      TRY_ASSIGN(used, checkpoint::Checkpoint::open(*packed));
    }
  }
  TRY_ASSIGN(foreseen.footprint, cost_model::footprint(used, request));
  TRY(cost_model::check_fits(foreseen.footprint));
  return foreseen;
}

}  // namespace pelton::apps
