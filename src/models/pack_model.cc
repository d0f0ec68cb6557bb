#include "models/pack_model.h"

#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "checkpoint/fingerprint.h"
#include "kernels/kernels.h"

namespace pelton::models {
namespace {

using checkpoint::Checkpoint;
using layers::MatrixWeights;

const Error kInterrupted{ErrorCode::kCancelled, "interrupted"};

Result<PackedModel> pack_as(const Checkpoint& source, MatrixWeights weights,
                            const PackModelOptions& options, const std::string& folder,
                            base::ThreadPool& pool, PackModelProgress progress) {
  TRY_ASSIGN(std::string fingerprint, checkpoint::fingerprint(source));
  const std::string packing = fmt::format("packing, weights {}", layers::name_of(weights));
  TRY(layers::pack_weights(source,
                           {.matrices = weights,
                            .activations = options.activations,
                            .source = source.folder(),
                            .fingerprint = std::move(fingerprint)},
                           folder + "/model.safetensors", pool, [&](int64_t done, int64_t total) {
                             return progress(packing, done, total);
                           }));
  PackedModel made{.weights = weights, .loss = {}, .excess = {}, .refused = {}};
  if (options.sample.size() < 2) return made;
  TRY_ASSIGN(const Checkpoint packed, Checkpoint::open(folder));
  TRY_ASSIGN(const auto kernels, kernels::make_kernels(kernels::KernelChoice::kAuto, pool));
  if (!progress("comparing", 0, 1)) return kInterrupted;
  TRY_ASSIGN(made.loss, measure_loss(source, packed, *kernels, options.sample));
  if (!progress("comparing", 1, 1)) return kInterrupted;
  made.excess = excess(*made.loss, {});
  if (!std::isfinite(made.loss->error_mean)) {
    return Error{
        ErrorCode::kBadCheckpoint,
        fmt::format("{}: computes NaN or infinity; pelton verify tells where", source.folder())};
  }
  return made;
}

}  // namespace

Result<WeightChoice> parse_weight_choice(std::string_view name) {
  if (name == "auto") return WeightChoice::kAuto;
  if (name == "int8") return WeightChoice::kInt8;
  if (name == "shipped") return WeightChoice::kShipped;
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("weights are 'auto', 'int8' or 'shipped', not '{}'", name)};
}

Result<PackedModel> pack_model(const Checkpoint& source, const PackModelOptions& options,
                               const std::string& folder, base::ThreadPool& pool,
                               PackModelProgress progress) {
  std::string refused;
  if (options.weights != WeightChoice::kShipped) {
    TRY_ASSIGN(PackedModel made,
               pack_as(source, MatrixWeights::kInt8, options, folder, pool, progress));
    if (options.weights == WeightChoice::kInt8 || made.excess.empty()) return made;
    refused = fmt::format("int8 loses too much of this model ({})", made.excess);
  }
  TRY_ASSIGN(PackedModel made,
             pack_as(source, MatrixWeights::kAsShipped, options, folder, pool, progress));
  made.refused = std::move(refused);
  return made;
}

std::string describe(const PackedModel& packed) {
  std::string out = fmt::format("experts as shipped, attention and head {}",
                                packed.weights == MatrixWeights::kInt8 ? "int8" : "as shipped");
  if (!packed.refused.empty()) out += ": " + packed.refused;
  if (!packed.loss) return out;
  const WeightLoss& loss = *packed.loss;
  return out + fmt::format(
                   "; against the weights as shipped: relative error {:.1e} (worst {:.1e}), "
                   "divergence {:.1e} nats, the same best token at {:.1f} % of positions",
                   loss.error_mean, loss.error_max, loss.divergence, 100 * loss.agreement);
}

}  // namespace pelton::models
