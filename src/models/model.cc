#include "models/model.h"

#include <utility>

#include "models/transformer.h"

namespace pelton::models {

// Every family so far is a pre-norm decoder; one of another build gets its own Model here.
Result<std::unique_ptr<Model>> load_model(const checkpoint::Checkpoint& checkpoint,
                                          kernels::Kernels& kernels,
                                          const Model::Options& options) {
  TRY_ASSIGN(std::unique_ptr<Transformer> model, Transformer::load(checkpoint, kernels, options));
  return std::unique_ptr<Model>(std::move(model));
}

}  // namespace pelton::models
