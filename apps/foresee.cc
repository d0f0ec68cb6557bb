#include "apps/foresee.h"

#include <filesystem>

#include "checkpoint/checkpoint.h"
#include "checkpoint/synthetic.h"

namespace pelton::apps {
namespace {

// A model of which only the shape is known: a published one by name, or a config.json.
bool is_shape(const std::string& model) {
  return model == "gpt-oss-20b" || model == "gpt-oss-120b" || model.ends_with(".json");
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
  return cost_model::footprint(checkpoint, request);
}

}  // namespace pelton::apps
