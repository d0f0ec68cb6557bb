#include "apps/footprint_estimate.h"

#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "checkpoint/checkpoint.h"
#include "checkpoint/synthetic.h"
#include "cost_model/parameters.h"
#include "families/published_config.h"
#include "layers/pack_weights.h"

namespace pelton::apps {
namespace {

bool is_folder(const std::string& model) {
  return std::filesystem::is_directory(model);
}

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
                           model, why, families::published_model_names()),
               "model"};
}

bool has_shape_alone(const std::string& model) {
  return cost_model::is_known_model(model) && !is_shape(model) && !is_folder(model);
}

Result<families::ModelConfig> config_of_shape(const std::string& model) {
  TRY_ASSIGN(const checkpoint::SyntheticOptions shape, checkpoint::synthetic_like(model, 0));
  return families::parse_model_config(shape.config, nullptr, model);
}

Result<cost_model::Footprint> of_shape(const families::ModelConfig& config,
                                       const cost_model::MemoryRequest& request) {
  TRY_ASSIGN(cost_model::Footprint footprint, cost_model::footprint(config, request));
  TRY(cost_model::check_fits(footprint));
  return footprint;
}

Result<cost_model::Footprint> estimate_files(const std::string& model,
                                             const cost_model::MemoryRequest& request) {
  if (is_shape(model) && !is_folder(model)) {
    TRY_ASSIGN(const families::ModelConfig config, config_of_shape(model));
    return of_shape(config, request);
  }
  TRY_ASSIGN(const std::string folder, checkpoint::resolve_model(model));
  TRY_ASSIGN(const checkpoint::Checkpoint used, checkpoint::Checkpoint::open(folder));
  TRY_ASSIGN(cost_model::Footprint footprint, cost_model::footprint(used, request));
  TRY(cost_model::check_fits(footprint));
  return footprint;
}

}  // namespace

Result<families::ModelConfig> planned_config(const std::string& model) {
  if (has_shape_alone(model)) return cost_model::find_model_config(model);
  if (is_shape(model) && !is_folder(model)) return config_of_shape(model);
  TRY_ASSIGN(const std::string folder, checkpoint::resolve_model(model));
  TRY_ASSIGN(const checkpoint::Checkpoint used, checkpoint::Checkpoint::open(folder));
  return used.config();
}

Result<cost_model::Footprint> estimate_footprint(const std::string& model,
                                                 const cost_model::MemoryRequest& request) {
  if (has_shape_alone(model)) {
    TRY_ASSIGN(const families::ModelConfig config, cost_model::find_model_config(model));
    return of_shape(config, request);
  }
  Result<cost_model::Footprint> result = estimate_files(model, request);
  if (result.ok() || result.error().code != ErrorCode::kUnsupported) return result;
  return not_of_this_machine(model, result.error().message);
}

Result<cost_model::Footprint> estimate_packed_footprint(const std::string& model,
                                                        const cost_model::MemoryRequest& request) {
  const bool has_files = !has_shape_alone(model) && (!is_shape(model) || is_folder(model));
  TRY_ASSIGN(const families::ModelConfig config, planned_config(model));
  bool can_be = !config.is_encoder() && layers::can_be_packed(config);
  if (has_files) {
    TRY_ASSIGN(const std::string folder, checkpoint::resolve_model(model));
    TRY_ASSIGN(const checkpoint::Checkpoint used, checkpoint::Checkpoint::open(folder));
    // It is already.
    if (used.weight_layout() == families::WeightLayout::kTiled) {
      return estimate_footprint(model, request);
    }
    can_be = can_be && layers::can_be_packed(used);
  }
  if (!can_be) {
    return Error{ErrorCode::kUnsupported,
                 fmt::format("--weights int8: {} is not packed; models with MXFP4 experts are, and "
                             "dense ones that are not quantized",
                             model),
                 "weights"};
  }
  TRY_ASSIGN(cost_model::Footprint footprint, cost_model::packed_footprint(config, request));
  TRY(cost_model::check_fits(footprint));
  return footprint;
}

}  // namespace pelton::apps
