#include "models/model.h"

#include <utility>

#include "models/encoder.h"
#include "models/transformer.h"

namespace pelton::models {

// A family of another build than a pre-norm decoder or an encoder gets its own Model here.
Result<std::unique_ptr<Model>> load_model(const checkpoint::Checkpoint& checkpoint,
                                          kernels::Kernels& kernels,
                                          const Model::Options& options) {
  if (checkpoint.config().is_encoder()) {
    TRY_ASSIGN(std::unique_ptr<Encoder> encoder, Encoder::load(checkpoint, kernels, options));
    return std::unique_ptr<Model>(std::move(encoder));
  }
  TRY_ASSIGN(std::unique_ptr<Transformer> model, Transformer::load(checkpoint, kernels, options));
  return std::unique_ptr<Model>(std::move(model));
}

}  // namespace pelton::models
