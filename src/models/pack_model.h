// Packs a model's weights as far as it bears it: which of the formats lose little enough is
// measured with the packed weights themselves (models/accuracy_gate.h). The caller's thread owns
// the pool.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/function_ref.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "checkpoint/checkpoint.h"
#include "layers/pack_weights.h"
#include "models/accuracy_gate.h"

namespace pelton::models {

// Of attention, dense MLPs and head; experts stay as they are.
enum class WeightChoice {
  kAuto,  // the first of int8, and as shipped with an approximate lm_head, that holds golden's
          // limits; if not even what is to the bit does, that loses no more than the model does in
          // bf16
  kInt8,  // with an approximate lm_head, whatever it loses
  kShipped,  // to the bit, head too
};
Result<WeightChoice> parse_weight_choice(std::string_view name);  // auto, int8, shipped

using layers::can_be_packed;

struct PackModelOptions {
  WeightChoice weights = WeightChoice::kAuto;
  // Empty: 8 bits where --weights auto has chosen weights that then still lose little enough, 15
  // otherwise.
  std::optional<kernels::Activations> activations;
  std::span<const TokenId> sample;  // what loss is measured on; fewer than two: not at all
};

struct PackedModel {
  layers::MatrixWeights weights = layers::MatrixWeights::kInt8;  // of attention, dense MLPs
  bool coarse_head = false;
  bool has_experts = true;
  kernels::Activations activations = kernels::Activations::kInt16;
  struct Measured {
    WeightLoss loss;
    WeightLoss in_bf16;  // of the shipped weights, over the same logits
  };
  std::optional<Measured> measured;  // where there is a sample
  std::string excess;                // over the limits; empty if there is none
  std::string refused;  // what --weights auto tried and did not keep, and why; empty if nothing
};

// What is being done, bytes or steps so far and in all; false stops.
using PackModelProgress =
    base::FunctionRef<bool(std::string_view what, int64_t done, int64_t total)>;

// Writes model.safetensors into `folder`, which holds a config.json already. Errors: kUnsupported,
// kDoesNotFit, kIo, kCancelled; kBadCheckpoint for a model that computes NaN or infinity.
Result<PackedModel> pack_model(const checkpoint::Checkpoint& source,
                               const PackModelOptions& options, const std::string& folder,
                               base::ThreadPool& pool, PackModelProgress progress);

// The rule by which kAuto chooses. Another rule takes another name.
inline constexpr std::string_view kAutoRule = "golden-else-bf16";

// What the packed file remembers of where it comes from: the source's fingerprint, and where the
// weights were chosen, by which rule. A file that remembers something else is stale. Errors: kIo.
Result<std::string> packed_fingerprint(const checkpoint::Checkpoint& source, WeightChoice weights);

// For people: what the weights are, in a sentence; and why, with what they lose.
std::string verdict(const PackedModel& packed);
std::string details(const PackedModel& packed);

}  // namespace pelton::models
