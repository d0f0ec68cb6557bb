#include "models/pack_model.h"

#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "checkpoint/fingerprint.h"
#include "kernels/kernels.h"

namespace pelton::models {
namespace {

using checkpoint::Checkpoint;
using kernels::Activations;
using layers::MatrixWeights;

const Error kInterrupted{ErrorCode::kCancelled, "interrupted"};

struct Way {
  MatrixWeights weights;
  bool coarse_head;
};

std::string text_of(const Way& way) {
  const bool int8 = way.weights == MatrixWeights::kInt8;
  return fmt::format("attention {}, head {}", int8 ? "int8" : "as shipped",
                     way.coarse_head ? "int4 and as shipped"
                     : int8          ? "int8"
                                     : "as shipped");
}

std::string file_in(const std::string& folder) {
  return folder + "/model.safetensors";
}

// What a packed model is compared by, of which some parts are made only where there is a sample.
struct Comparison {
  std::unique_ptr<kernels::Kernels> kernels;
  std::optional<WeightGate> gate;
};
Result<Comparison> comparison(const Checkpoint& source, std::span<const TokenId> sample,
                              base::ThreadPool& pool, PackModelProgress progress) {
  Comparison made;
  if (sample.size() < 2) return made;
  TRY_ASSIGN(made.kernels, kernels::make_kernels(kernels::KernelChoice::kAuto, pool));
  if (!progress("computing a text as shipped", 0, 1)) return kInterrupted;
  TRY_ASSIGN(made.gate, WeightGate::make(source, *made.kernels, sample));
  if (!progress("computing a text as shipped", 1, 1)) return kInterrupted;
  return made;
}

// Of what was packed into `folder`. Nothing where there is no sample.
Result<void> measure(const Comparison& by, const std::string& folder, PackModelProgress progress,
                     PackedModel& made) {
  if (!by.gate) return {};
  TRY_ASSIGN(const Checkpoint packed, Checkpoint::open(folder));
  if (!progress("comparing", 0, 1)) return kInterrupted;
  TRY_ASSIGN(made.loss, by.gate->measure(packed));
  if (!progress("comparing", 1, 1)) return kInterrupted;
  made.in_bf16 = by.gate->in_bf16(made.loss->coarse_head);
  made.excess = excess(*made.loss, by.gate->limits(made.loss->coarse_head));
  return {};
}

Result<PackedModel> pack_as(const Checkpoint& source, Way way, const PackModelOptions& options,
                            const Comparison& by, const std::string& folder, base::ThreadPool& pool,
                            PackModelProgress progress) {
  TRY_ASSIGN(std::string fingerprint, checkpoint::fingerprint(source));
  const std::string packing = "packing, " + text_of(way);
  const Activations activations = options.activations.value_or(Activations::kInt16);
  TRY(layers::pack_weights(source,
                           {.matrices = way.weights,
                            .coarse_head = way.coarse_head,
                            .activations = activations,
                            .source = source.folder(),
                            .fingerprint = std::move(fingerprint)},
                           file_in(folder), pool, [&](int64_t done, int64_t total) {
                             return progress(packing, done, total);
                           }));
  TRY_ASSIGN(const Checkpoint packed, Checkpoint::open(folder));
  PackedModel made{.weights = way.weights,
                   .coarse_head = packed.has(checkpoint::kCoarseHead),
                   .activations = activations,
                   .loss = {},
                   .in_bf16 = {},
                   .excess = {},
                   .refused = {}};
  TRY(measure(by, folder, progress, made));
  return made;
}

// What lost little enough with 15 bits, with 8 if that is so then, too: prompts are computed some
// half faster.
Result<PackedModel> with_fewer_bits(PackedModel made, const Comparison& by,
                                    const PackModelOptions& options, const std::string& folder,
                                    PackModelProgress progress) {
  if (options.activations || !made.loss) return made;
  PackedModel coarser = made;
  coarser.activations = Activations::kInt8;
  TRY(layers::rewrite_activations(file_in(folder), Activations::kInt8));
  TRY(measure(by, folder, progress, coarser));
  if (coarser.excess.empty()) return coarser;
  TRY(layers::rewrite_activations(file_in(folder), Activations::kInt16));
  made.refused += fmt::format("{}activations int8 lose too much of this model ({})",
                              made.refused.empty() ? "" : "; ", coarser.excess);
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
  TRY_ASSIGN(const Comparison by, comparison(source, options.sample, pool, progress));
  std::string refused;
  if (options.weights != WeightChoice::kShipped) {
    for (const MatrixWeights weights : {MatrixWeights::kInt8, MatrixWeights::kAsShipped}) {
      const Way way{weights, true};
      TRY_ASSIGN(PackedModel made, pack_as(source, way, options, by, folder, pool, progress));
      made.refused = refused;
      if (options.weights == WeightChoice::kInt8) return made;
      if (made.excess.empty()) {
        return with_fewer_bits(std::move(made), by, options, folder, progress);
      }
      if (weights == MatrixWeights::kAsShipped && !made.coarse_head) return made;  // to the bit
      refused += fmt::format("{}{} loses too much of this model ({})", refused.empty() ? "" : "; ",
                             text_of(way), made.excess);
    }
  }
  const Way as_shipped{MatrixWeights::kAsShipped, false};
  TRY_ASSIGN(PackedModel made, pack_as(source, as_shipped, options, by, folder, pool, progress));
  made.refused = std::move(refused);
  return made;
}

std::string describe(const PackedModel& packed) {
  std::string out = fmt::format("experts as shipped, {}, activations {}",
                                text_of({packed.weights, packed.coarse_head}),
                                layers::name_of(packed.activations));
  if (!packed.refused.empty()) out += ": " + packed.refused;
  if (!packed.loss) return out;
  const WeightLoss& loss = *packed.loss;
  return out +
         fmt::format(
             "; against the weights as shipped, in float32: relative error {:.1e} (worst {:.1e}), "
             "divergence {:.1e} nats, the same best token at {:.1f} % of positions (in bf16, as "
             "models are published: {:.1e}, {:.1e}, {:.1e}, {:.1f} %)",
             loss.error_mean, loss.error_max, loss.divergence, 100 * loss.agreement,
             packed.in_bf16->error_mean, packed.in_bf16->error_max, packed.in_bf16->divergence,
             100 * packed.in_bf16->agreement);
}

}  // namespace pelton::models
