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

// What packed weights are compared with, made when it is first needed: by then the first format has
// been written, so what cannot be packed, or has no room, is refused before anything is computed.
class Comparison {
 public:
  Comparison(const Checkpoint& source, std::span<const TokenId> sample, base::ThreadPool& pool,
             PackModelProgress progress)
      : source_(source), sample_(sample), pool_(pool), progress_(progress) {}

  // No format holds golden's limits: from now on they give way.
  void give_way() { gives_way_ = true; }

  // Of what was packed into `folder`. Nothing where there is no sample.
  Result<void> measure(const std::string& folder, PackedModel& made) {
    if (sample_.size() < 2) return {};
    if (!gate_) TRY(make_gate());
    TRY_ASSIGN(const Checkpoint packed, Checkpoint::open(folder));
    if (!progress_("comparing weights", 0, 1)) return kInterrupted;
    TRY_ASSIGN(const WeightLoss loss, gate_->measure(packed));
    if (!progress_("comparing weights", 1, 1)) return kInterrupted;
    made.measured = {.loss = loss, .in_bf16 = gate_->in_bf16(loss.compared)};
    made.excess = excess(
        loss, gives_way_ ? limits_beside(made.measured->in_bf16) : golden_limits(loss.compared));
    return {};
  }

 private:
  Result<void> make_gate() {
    TRY_ASSIGN(kernels_, kernels::make_kernels(kernels::KernelChoice::kAuto, pool_));
    TRY_ASSIGN(gate_,
               AccuracyGate::make(source_, *kernels_, sample_, [&](int64_t done, int64_t total) {
                 return progress_("computing a text as shipped", done, total);
               }));
    return {};
  }

  const Checkpoint& source_;
  std::span<const TokenId> sample_;
  base::ThreadPool& pool_;
  PackModelProgress progress_;
  std::unique_ptr<kernels::Kernels> kernels_;
  std::optional<AccuracyGate> gate_;
  bool gives_way_ = false;
};

// A model that is kept computes numbers, whatever it loses.
Result<PackedModel> kept(PackedModel made, const std::string& folder) {
  if (!made.measured || made.measured->loss.is_finite()) return made;
  return Error{ErrorCode::kBadCheckpoint,
               fmt::format("{}: computes NaN or infinity as {}, though not as shipped", folder,
                           text_of({made.weights, made.coarse_head}))};
}

Result<PackedModel> pack_as(const Checkpoint& source, Way way, const PackModelOptions& options,
                            Comparison& by, const std::string& folder, base::ThreadPool& pool,
                            PackModelProgress progress) {
  TRY_ASSIGN(std::string fingerprint, packed_fingerprint(source, options.weights));
  const Activations activations = options.activations.value_or(Activations::kInt16);
  TRY(layers::pack_weights(source,
                           {.matrices = way.weights,
                            .coarse_head = way.coarse_head,
                            .activations = activations,
                            .source = source.folder(),
                            .fingerprint = std::move(fingerprint)},
                           file_in(folder), pool, [&](int64_t done, int64_t total) {
                             return progress("packing weights", done, total);
                           }));
  TRY_ASSIGN(const Checkpoint packed, Checkpoint::open(folder));
  PackedModel made{.weights = way.weights,
                   .coarse_head = packed.has(families::kCoarseHead),
                   .has_experts = packed.config().has_experts(),
                   .activations = activations,
                   .measured = {},
                   .excess = {},
                   .refused = {}};
  TRY(by.measure(folder, made));
  return made;
}

// What lost little enough with 15 bits, with 8 if that is so then, too: prompts are computed some
// half faster.
Result<PackedModel> with_fewer_bits(PackedModel made, Comparison& by,
                                    const PackModelOptions& options, const std::string& folder) {
  if (options.activations || !made.measured) return made;
  PackedModel coarser = made;
  coarser.activations = Activations::kInt8;
  TRY(layers::rewrite_activations(file_in(folder), Activations::kInt8));
  TRY(by.measure(folder, coarser));
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
  Comparison by(source, options.sample, pool, progress);
  const auto pack = [&](Way way) {
    return pack_as(source, way, options, by, folder, pool, progress);
  };
  const Way int8{MatrixWeights::kInt8, true};
  const Way coarse{MatrixWeights::kAsShipped, true};
  const Way to_the_bit{MatrixWeights::kAsShipped, false};
  if (options.weights != WeightChoice::kAuto) {
    TRY_ASSIGN(PackedModel made, pack(options.weights == WeightChoice::kInt8 ? int8 : to_the_bit));
    return kept(std::move(made), folder);
  }

  std::string refused;
  const auto refuse = [&](const PackedModel& made) {
    refused += fmt::format("{}{} loses too much of this model ({})", refused.empty() ? "" : "; ",
                           text_of({made.weights, made.coarse_head}), made.excess);
  };
  TRY_ASSIGN(PackedModel first, pack(int8));
  if (first.excess.empty()) return with_fewer_bits(std::move(first), by, options, folder);
  refuse(first);

  // Whether golden's limits can be held at all is asked of the finest format, whatever activations
  // were asked for.
  PackModelOptions most_bits = options;
  most_bits.activations = Activations::kInt16;
  TRY_ASSIGN(const PackedModel finest,
             pack_as(source, to_the_bit, most_bits, by, folder, pool, progress));
  const bool give_way = !finest.excess.empty();
  if (give_way) {
    refused = "no format holds the limits of small models, so what this one loses in bf16 counts";
    by.give_way();
  }
  for (const Way way : {int8, coarse}) {
    if (way.weights == MatrixWeights::kInt8 && !give_way) continue;  // was tried
    TRY_ASSIGN(PackedModel made, pack(way));
    made.refused = refused;
    if (made.excess.empty()) return with_fewer_bits(std::move(made), by, options, folder);
    refuse(made);
  }
  TRY_ASSIGN(PackedModel made, pack(to_the_bit));
  made.refused = std::move(refused);
  return kept(std::move(made), folder);
}

Result<std::string> packed_fingerprint(const Checkpoint& source, WeightChoice weights) {
  TRY_ASSIGN(std::string fingerprint, checkpoint::fingerprint(source));
  if (weights == WeightChoice::kAuto) fingerprint += fmt::format(" {}", kAutoRule);
  return fingerprint;
}

std::string verdict(const PackedModel& packed) {
  const std::string what = fmt::format(
      "{}, {}, activations {}", packed.has_experts ? "experts as shipped" : "MLPs as attention",
      text_of({packed.weights, packed.coarse_head}), layers::name_of(packed.activations));
  if (!packed.excess.empty()) return what + "; they lose more than they should";
  if (!packed.measured) return what + "; what they lose was not measured";
  return fmt::format("{}; {:.1f} % of tokens as with the weights as shipped", what,
                     100 * packed.measured->loss.agreement);
}

std::string details(const PackedModel& packed) {
  std::string out = packed.refused.empty() ? "the first choice was kept" : packed.refused;
  if (!packed.measured) return out;
  const auto text = [](const WeightLoss& loss) {
    return fmt::format(
        "relative error {:.1e} (worst {:.1e}), divergence {:.1e} nats, the same best token at "
        "{:.1f} % of positions (where another, the two best up to {:.2f} apart)",
        loss.error_mean, loss.error_max, loss.divergence, 100 * loss.agreement, loss.lost_gap);
  };
  return out + fmt::format("; against the weights as shipped: {}; what those lose in bf16: {}",
                           text(packed.measured->loss), text(packed.measured->in_bf16));
}

}  // namespace pelton::models
