#include "planner/memory_plan.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace pelton::planner {
namespace {

using cost_model::ParameterCount;
using families::AttentionKind;
using families::ModelConfig;

// Not counted from anything: what drivers, graphs and libraries were seen to take on data-centre
// cards by others (0.4 to 0.6 GiB a context; graphs alike). Replace by measurement.
constexpr double kContextBytes = 512.0 * (1 << 20);
constexpr double kGraphBytes = 512.0 * (1 << 20);

double d(int64_t value) {
  return static_cast<double>(value);
}

// Of layers, on the stage that has most.
double stage_share(const ModelConfig& shape, const cost_model::Layout& layout) {
  const int64_t stages = layout.pipeline;
  return d((shape.layer_count() + stages - 1) / stages) / d(shape.layer_count());
}

void add_weights(const MemoryOptions& options, std::vector<MemoryLine>& lines) {
  const ModelConfig& shape = options.shape;
  const cost_model::Layout& layout = options.layout;
  const ParameterCount count = cost_model::count_parameters(shape);
  const double share = stage_share(shape, layout);
  const double tensor = layout.tensor;
  const auto add = [&](const char* name, int64_t parameters, double bits, double cut,
                       double of_layers) {
    if (parameters == 0) return;
    lines.push_back(
        {.name = name,
         .bytes = d(parameters) * bits / 8 * of_layers / cut,
         .formula = fmt::format("{} parameters x {} bits / 8{}{}", parameters, bits,
                                of_layers < 1 ? fmt::format(" x {:.3f} (stage)", of_layers) : "",
                                cut > 1 ? fmt::format(" / {}", cut) : "")});
  };
  add("experts", count.experts, shape.expert_bits, tensor * layout.expert, share);
  add("feed-forward", count.dense, shape.other_bits, tensor, share);
  add("attention", count.attention, shape.other_bits, tensor, share);
  add("embedding", count.embedding, shape.other_bits, tensor, 1);
  // The first stage has the embedding, the last the head: the larger of the two counts once.
  if (layout.pipeline == 1) add("head", count.head, shape.other_bits, tensor, 1);
  add("norms and routers", count.other, shape.other_bits, 1, share);
}

void add_working_memory(const MemoryOptions& options, std::vector<MemoryLine>& lines) {
  const ModelConfig& shape = options.shape;
  const double tensor = options.layout.tensor;
  const double tokens = options.batch_tokens_max;
  const double q = d(shape.head_count * (shape.latent.kv_rank > 0
                                             ? shape.latent.nope_size + shape.latent.rope_size
                                             : shape.head_size));
  const double kv = d(cost_model::kv_elements(shape, AttentionKind::kFull));
  const double inner =
      std::max(d(shape.intermediate_size) * (shape.expert_layers() == 0 ? 1 : 0),
               d(int64_t{shape.expert_intermediate_size} * shape.experts_per_token));
  constexpr double kBytes = 2;
  const double of_token = kBytes * (3 * d(shape.hidden_size) + (2 * q + kv + 2 * inner) / tensor +
                                    d(shape.experts_per_token * shape.hidden_size));
  lines.push_back({.name = "activations",
                   .bytes = tokens * of_token,
                   .formula = fmt::format("{} tokens x {:.0f} bytes: 2 x (3 hidden + (2 q + kv + 2 "
                                          "inner) / tensor + experts x hidden)",
                                          options.batch_tokens_max, of_token)});
  const double rows = options.sequences_max;
  if (!shape.is_encoder())
    lines.push_back({.name = "logits",
                     .bytes = rows * d(shape.vocab_size) * 4,
                     .formula = fmt::format("{} rows x {} x 4 bytes", rows, shape.vocab_size)});
  if (options.layout.devices() > 1) {
    lines.push_back(
        {.name = "exchange buffers",
         .bytes = 2 * tokens * d(shape.hidden_size) * kBytes,
         .formula = fmt::format("2 x {} tokens x {} x 2 bytes", tokens, shape.hidden_size)});
  }
  if (!options.hardware.is_processor()) {
    lines.push_back({.name = "driver context",
                     .bytes = kContextBytes,
                     .formula = "0.5 GiB, seen by others; not measured here"});
    lines.push_back({.name = "graphs",
                     .bytes = kGraphBytes,
                     .formula = "0.5 GiB, seen by others; not measured here"});
  }
}

void count_kv(const MemoryOptions& options, MemoryPlan& plan) {
  const ModelConfig& shape = options.shape;
  plan.sequence_groups = options.layout.expert;
  if (shape.is_encoder()) return;  // a text is computed whole, and nothing of it is kept
  const double share = stage_share(shape, options.layout);
  const bool latent = shape.count(AttentionKind::kLatent) > 0;
  // Kv heads fewer than devices are kept several times; a latent row cannot be cut.
  const double cut = latent ? 1 : std::min<double>(options.layout.tensor, d(shape.kv_head_count));
  for (const AttentionKind kind :
       {AttentionKind::kFull, AttentionKind::kSliding, AttentionKind::kLatent}) {
    const double bytes = d(shape.count(kind)) * d(cost_model::kv_elements(shape, kind)) *
                         options.kv_element_bytes * share / cut;
    if (kind == AttentionKind::kSliding) {
      plan.kv_sequence_bytes += bytes * d(shape.sliding_window);
    } else {
      plan.kv_token_bytes += bytes;
    }
  }
}

}  // namespace

Result<MemoryPlan> plan_memory(const MemoryOptions& options) {
  // The same layouts are possible as are timed.
  const cost_model::StepTimeModel::Options probe{
      .hardware = options.hardware,
      .shape = options.shape,
      .layout = options.layout,
      .arithmetic = options.hardware.rates.begin()->first};
  TRY(cost_model::StepTimeModel::make(probe));
  if (!(options.utilization > 0 && options.utilization <= 1)) {
    return Error{ErrorCode::kInvalidArgument, "memory utilization must be above 0 and at most 1",
                 "memory-utilization"};
  }
  MemoryPlan plan;
  add_weights(options, plan.lines);
  add_working_memory(options, plan.lines);
  for (const MemoryLine& line : plan.lines) plan.taken_bytes += line.bytes;
  plan.allowed_bytes = options.utilization * d(options.hardware.memory_bytes);
  plan.kv_bytes = plan.allowed_bytes - plan.taken_bytes;
  count_kv(options, plan);
  return plan;
}

int64_t MemoryPlan::kv_tokens(int64_t sequences) const {
  const double each = std::ceil(d(sequences) / sequence_groups);
  const double left = kv_bytes - each * kv_sequence_bytes;
  if (left <= 0) return 0;
  if (kv_token_bytes <= 0) return INT32_MAX;
  return static_cast<int64_t>(left / kv_token_bytes) * sequence_groups;
}

int64_t MemoryPlan::sequences_at(int64_t tokens, const MemoryOptions& options) const {
  if (!fits()) return 0;
  const int64_t block = options.block_tokens;
  const int64_t whole = (tokens + block - 1) / block * block;
  // A window lies across one block more than it fills.
  const double window =
      options.shape.sliding_window > 0
          ? kv_sequence_bytes *
                (1 + d(block) / d(std::max<int64_t>(options.shape.sliding_window, 1)))
          : 0;
  const double each = d(whole) * kv_token_bytes + window;
  if (each <= 0) return INT32_MAX;
  return static_cast<int64_t>(kv_bytes / each) * sequence_groups;
}

int64_t MemoryPlan::longest_context(const MemoryOptions& options) const {
  if (!fits()) return 0;
  return std::min<int64_t>(options.shape.context_max, kv_tokens(1) / sequence_groups);
}

}  // namespace pelton::planner
