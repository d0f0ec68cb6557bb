#include "apps/footprint_estimate.h"

#include <filesystem>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "checkpoint/checkpoint.h"
#include "checkpoint/synthetic.h"
#include "cost_model/parameters.h"
#include "families/published_config.h"
#include "layers/pack_weights.h"
#include "node/packed_cache.h"

namespace pelton::apps {
namespace {

// A model of which only the shape is known: a published one by name, or a config.json.
bool is_shape(const std::string& model) {
  return families::published_config(model).ok() || model.ends_with(".json");
}

// What only named hardware can be planned with: `serve` has no such arithmetic.
Error not_of_this_machine(const std::string& model, const std::string& why) {
  return Error{ErrorCode::kUnsupported,
               fmt::format("what {} takes of this machine is not known: {}; with --gpu or "
                           "--instance it is planned for that hardware. Known here: {}, and a "
                           "folder, hub id or config.json of a family that serve runs",
                           model, why, families::kPublishedModels),
               "model"};
}

// Whether `serve` makes other files of a large model's own before it uses them.
bool is_packed_when_loaded(const checkpoint::Checkpoint& model) {
  return model.weight_layout() != families::WeightLayout::kTiled &&
         layers::can_be_packed(model.config()) && !node::packed_cache_folder().empty() &&
         model.weight_bytes() >= node::kPackedFromBytes;
}

bool has_shape_alone(const std::string& model) {
  return cost_model::is_known_model(model) && !is_shape(model) &&
         !std::filesystem::is_directory(model);
}

Result<families::ModelConfig> config_of_shape(const std::string& model) {
  TRY_ASSIGN(const checkpoint::SyntheticOptions shape, checkpoint::synthetic_like(model, 0));
  return families::parse_model_config(shape.config, nullptr, model);
}

Result<FootprintEstimate> of_shape(const families::ModelConfig& config,
                                   const cost_model::MemoryRequest& request) {
  TRY_ASSIGN(cost_model::Footprint footprint, cost_model::footprint(config, request));
  TRY(cost_model::check_fits(footprint));
  return FootprintEstimate{.footprint = std::move(footprint)};
}

Result<FootprintEstimate> estimate_files(const std::string& model,
                                         const cost_model::MemoryRequest& request) {
  FootprintEstimate estimate;
  if (is_shape(model) && !std::filesystem::is_directory(model)) {
    TRY_ASSIGN(const families::ModelConfig config, config_of_shape(model));
    return of_shape(config, request);
  }
  TRY_ASSIGN(const std::string folder, checkpoint::resolve_model(model));
  TRY_ASSIGN(checkpoint::Checkpoint used, checkpoint::Checkpoint::open(folder));
  if (is_packed_when_loaded(used)) {
    TRY_ASSIGN(const std::optional<std::string> packed,
               node::find_packed(node::packed_cache_folder(), used, models::WeightChoice::kAuto));
    estimate.will_be_packed = !packed;
    if (packed) {
      TRY_ASSIGN(used, checkpoint::Checkpoint::open(*packed));
    }
  }
  TRY_ASSIGN(estimate.footprint, cost_model::footprint(used, request));
  TRY(cost_model::check_fits(estimate.footprint));
  return estimate;
}

}  // namespace

Result<families::ModelConfig> planned_config(const std::string& model) {
  if (has_shape_alone(model)) return cost_model::find_model_config(model);
  if (is_shape(model) && !std::filesystem::is_directory(model)) return config_of_shape(model);
  TRY_ASSIGN(const std::string folder, checkpoint::resolve_model(model));
  TRY_ASSIGN(const checkpoint::Checkpoint used, checkpoint::Checkpoint::open(folder));
  return used.config();
}

Result<FootprintEstimate> estimate_footprint(const std::string& model,
                                             const cost_model::MemoryRequest& request) {
  if (has_shape_alone(model)) {
    TRY_ASSIGN(const families::ModelConfig config, cost_model::find_model_config(model));
    return of_shape(config, request);
  }
  Result<FootprintEstimate> result = estimate_files(model, request);
  if (result.ok() || result.error().code != ErrorCode::kUnsupported) return result;
  return not_of_this_machine(model, result.error().message);
}

}  // namespace pelton::apps
