#include "cost_model/footprint.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "checkpoint/compact_weights.h"
#include "cost_model/byte_text.h"
#include "cost_model/kv_budget.h"
#include "families/kv_groups.h"
#include "tensor/kv_block.h"

namespace pelton::cost_model {
namespace {

using families::ExpectedTensor;
using families::ModelConfig;
using families::TensorKind;

constexpr int64_t kFloatBytes = 4;

int64_t& group_of(Weights& weights, TensorKind kind) {
  switch (kind) {
    case TensorKind::kExperts:
      return weights.experts;
    case TensorKind::kMlp:
      return weights.mlp;
    case TensorKind::kAttention:
      return weights.attention;
    case TensorKind::kEmbedding:
      return weights.embedding;
    case TensorKind::kHead:
      return weights.head;
    default:
      return weights.other;
  }
}

// What layers/weights.cc keeps of where an expert's matrix lies that has a tensor of its own.
constexpr int64_t kExpertMatrixBytes = 32;

bool is_expert_apart(const ExpectedTensor& tensor) {
  return tensor.kind == TensorKind::kExperts && !tensor.is_scales && tensor.shape.size() == 2 &&
         (tensor.name.ends_with("_proj.weight") || tensor.numbers > 1);
}

// Scales of FP8 become float32, but for those of blocks that are.
int64_t widened_scales(const ExpectedTensor& tensor, const ModelConfig& config) {
  using families::WeightQuantization;
  if (config.quantization == WeightQuantization::kF8Blocks) {
    const bool widened = tensor.is_scales && tensor.dtype != tensor::DType::kF32 &&
                         tensor.name.ends_with(".weight_scale_inv");
    return widened ? tensor.shape[0] * tensor.shape[1] : 0;
  }
  const bool of_f8 = config.quantization == WeightQuantization::kF8Rows ||
                     config.quantization == WeightQuantization::kF8Tensor;
  return of_f8 && tensor.is_scales && tensor.name.ends_with(".weight_scale") ? tensor.shape[0] : 0;
}

// How often layers/weights.cc keeps a tensor's elements as float32 beside the file: vectors once,
// and the biases of fused gate and up rows once more, taken apart.
int copies(const ExpectedTensor& tensor) {
  if (tensor.name.ends_with("gate_up_exps_bias")) return 2;
  return tensor.shape.size() == 1 || tensor.name.ends_with("bias") ? 1 : 0;
}

// Integer weights become blocks of 32 beside the file (layers/int_weights.h).
int64_t repacked_bytes(const ExpectedTensor& tensor, const ModelConfig& config) {
  if (tensor.numbers == 1 && tensor.dtype != tensor::DType::kI8) return 0;
  constexpr int64_t kBlock = 32;
  return tensor.parameters() / kBlock *
         tensor::row_bytes(families::int_weight_type(config), kBlock);
}

// GPTQ's act order, kept beside the file.
int64_t input_orders(const ExpectedTensor& tensor, const ModelConfig& config) {
  const bool kept = config.int_weights.reordered && tensor.name.ends_with(".g_idx");
  return kept ? tensor.shape[0] * int64_t{sizeof(int32_t)} : 0;
}

// The most columns that a matrix of a layer has, as models/transformer.cc has it for the kernels.
int64_t widest_input(const ModelConfig& config) {
  return std::max<int64_t>(
      {config.hidden_size, config.expert_intermediate_size, config.widest_mlp(), config.q_size()});
}

// Held in 12 bits already, or, if `compacts`, to be.
Weights count_weights(const std::vector<ExpectedTensor>& tensors, const ModelConfig& config,
                      bool compacts, bool has_coarse_head) {
  Weights weights;
  for (const ExpectedTensor& tensor : tensors) {
    const bool is_compact = tensor.dtype == tensor::DType::kCompactBf16;
    if (is_compact || (compacts && checkpoint::can_be_compact(tensor, config, has_coarse_head))) {
      const int64_t bytes = checkpoint::compact_bytes(tensor);
      weights.owned += bytes + (is_expert_apart(tensor) ? kExpertMatrixBytes : 0);
      weights.compact += bytes;
      weights.dropped += 2 * tensor.parameters();
      group_of(weights, tensor.kind) += bytes + (is_expert_apart(tensor) ? kExpertMatrixBytes : 0);
      continue;
    }
    const int64_t mapped = tensor.bytes();
    const int64_t owned = copies(tensor) * kFloatBytes * tensor.parameters() +
                          kFloatBytes * widened_scales(tensor, config) +
                          repacked_bytes(tensor, config) + input_orders(tensor, config) +
                          (is_expert_apart(tensor) ? kExpertMatrixBytes : 0);
    weights.mapped += mapped;
    weights.owned += owned;
    group_of(weights, tensor.kind) += mapped + owned;
  }
  return weights;
}

// How a checkpoint's matrices are multiplied, where they are tiled.
struct Tiles {
  bool used = false;
  int activation_bits = 0;
  bool coarse_head = false;
};

// What kernels/cpu/tile_kernels keeps: activations quantised, tiles spread out, outputs.
int64_t tile_bytes(const ModelConfig& config, const MemoryRequest& request, int activation_bits) {
  const int64_t hidden = config.hidden_size;
  const int64_t inner = config.expert_intermediate_size;
  const int64_t widest = widest_input(config);
  const int64_t assignments = int64_t{request.batch_tokens_max} * config.experts_per_token;
  const int64_t planes = activation_bits / 8;
  constexpr int64_t kRowViewBytes = 24;
  const auto quantised = [&](int64_t elements) {  // values, their sums, scales
    return elements * planes + elements / 32 * 4 * (planes + 1);
  };
  const int64_t of_thread = 2 * 16 * widest + kFloatBytes * 64 * request.batch_tokens_max;
  return request.threads * of_thread + quantised(request.batch_tokens_max * widest) +
         quantised(assignments * inner) + assignments * (kRowViewBytes + kFloatBytes * hidden);
}

// What layers/output_head keeps to find the logits that matter.
int64_t head_bytes(int64_t vocab) {
  constexpr int64_t kBlockLogits = 128;
  constexpr int64_t kComputed = 512;
  constexpr int64_t kMassBytes = 8;
  constexpr int64_t kTogether = 32;
  const int64_t blocks = (vocab + kBlockLogits - 1) / kBlockLogits;
  const int64_t sorted = blocks < kComputed ? std::max(vocab, blocks) : blocks;
  const int64_t marks = kTogether * ((vocab + 63) / 64 * 8);
  return blocks * (kFloatBytes + kMassBytes) + kFloatBytes * sorted + marks;
}

// Of a token, in layers/attention's working memory: queries compressed and whole, the cache's row,
// queries and what heads mix in the width of the cache.
int64_t latent_elements(const ModelConfig& config) {
  const families::LatentConfig& latent = config.latent;
  const int64_t heads = config.head_count;
  const int64_t row = latent.kv_rank + latent.rope_size;
  return latent.q_rank + std::max<int64_t>(config.q_size(), heads * latent.value_size) + row +
         heads * (row + latent.kv_rank);
}

// What sampling::Sampler::bytes_for and the executor's masks take.
int64_t sampling_bytes(const ModelConfig& config, const MemoryRequest& request) {
  constexpr int64_t kBlockLogits = 128;
  constexpr int64_t kLogitBytes = 16;
  constexpr int64_t kBlockBytes = 12;
  const int64_t blocks = (config.vocab_size + kBlockLogits - 1) / kBlockLogits;
  // What a grammar allows next, a bit for each token of each sequence.
  constexpr int64_t kMaskBits = 64;
  return request.threads * (kFloatBytes * config.vocab_size +
                            blocks * (kBlockLogits * kLogitBytes + kBlockBytes)) +
         request.sequences_max * ((config.vocab_size + kMaskBits - 1) / kMaskBits) * 8;
}

// As models/encoder and layers/encoder_layer allocate it: activations, and one layer's keys and
// values in blocks.
Workspace count_encoder_workspace(const ModelConfig& config, const MemoryRequest& request) {
  constexpr int64_t kBlockTokens = 16;
  constexpr int64_t kPartialBlocks = 64;
  constexpr int64_t kIndexBytes = 4;
  constexpr int64_t kPointerBytes = 8;
  const int64_t tokens = request.batch_tokens_max;
  const int64_t hidden = config.hidden_size;
  const int64_t blocks = (tokens + kBlockTokens - 1) / kBlockTokens + kPartialBlocks;
  Workspace space;
  space.activations =
      kFloatBytes * (tokens * (5 * hidden + config.intermediate_size) +
                     blocks * 2 * kBlockTokens * hidden + (config.label_count > 0 ? hidden : 0)) +
      kIndexBytes * (blocks + tokens);
  if (request.kernels == KernelKind::kCpu) {
    space.kernels = tokens * (kPointerBytes + kIndexBytes) + kIndexBytes;
  }
  space.sampling = sampling_bytes(config, request);
  space.drafting = request.draft_bytes;
  return space;
}

// What layers/step_adapters and kernels/cpu/low_rank_workspace keep.
int64_t adapter_workspace(const ModelConfig& config, const MemoryRequest& request) {
  if (request.adapter_rank_max == 0) return 0;
  constexpr int64_t kOfRow = 8 + 16 + 4 + 24 + 8;  // adapter, group, row, product, experts
  const int64_t tokens = request.batch_tokens_max;
  int64_t bytes = tokens * kOfRow;
  if (request.kernels == KernelKind::kReference) return bytes;
  constexpr int64_t kProductBytes = 56;
  constexpr int64_t kTaskBytes = 12;
  constexpr int64_t kTaskRanks = 8;
  const int64_t rank = request.adapter_rank_max;
  const int64_t assignments =
      request.expert_adapters && config.has_experts() ? tokens * config.experts_per_token : 0;
  const int64_t places = std::max(tokens, assignments);
  const int64_t products = std::max(tokens, 2 * assignments);
  bytes += products * (kProductBytes + (rank + kTaskRanks - 1) / kTaskRanks * kTaskBytes);
  bytes += places * (8 + kFloatBytes * rank) + tokens * 8;  // inputs, factors; rows, products
  if (assignments == 0) return bytes;
  constexpr int64_t kEntryBytes = 24;
  return bytes + 2 * places * kFloatBytes * rank +
         assignments * (kEntryBytes + 4 + kFloatBytes * config.expert_intermediate_size);
}

// As models/transformer, layers and kernels allocate it; executor/local_executor CHECKs that it is
// so.
Workspace count_workspace(const ModelConfig& config, const MemoryRequest& request, Tiles tiles) {
  if (config.is_encoder()) return count_encoder_workspace(config, request);
  const int64_t tokens = request.batch_tokens_max;
  const int64_t rows = request.sequences_max + request.draft_rows_max;
  const int64_t hidden = config.hidden_size;
  const int64_t q = config.q_size();
  const int64_t kv = config.kv_size();
  const int64_t experts = config.expert_count;
  const int64_t chosen = config.experts_per_token;
  constexpr int64_t kChoiceBytes = 8;  // an expert and its weight

  Workspace space;
  const int64_t tables = config.sliding_rope ? 2 : 1;
  const int64_t residual = hidden + tables * config.rotary_size();  // and the rotary tables' rows
  const int64_t attention = hidden + (config.is_latent() ? latent_elements(config) : 2 * (q + kv));
  space.activations =
      tokens * (kFloatBytes * (residual + attention + hidden + 2 * config.widest_mlp() + experts) +
                kChoiceBytes * chosen) +
      kFloatBytes * rows * hidden;
  space.logits = kFloatBytes * rows * config.vocab_size;
  if (tiles.coarse_head) space.logits += head_bytes(config.vocab_size);
  if (request.kernels == KernelKind::kCpu) {
    constexpr int64_t kPointerBytes = 8;
    constexpr int64_t kIndexBytes = 4;
    const int64_t assignments = tokens * chosen;
    const int64_t of_token = kPointerBytes + kIndexBytes;  // a row's place and its sequence
    space.kernels = tokens * of_token;
    if (config.int_weights.reordered) space.kernels += kFloatBytes * tokens * widest_input(config);
    const int64_t grouping = kIndexBytes * (assignments + experts + 1 + 3 * experts);
    if (tiles.used) {
      space.kernels += grouping + tile_bytes(config, request, tiles.activation_bits);
    } else {
      space.kernels +=
          grouping + kPointerBytes * assignments +
          kFloatBytes * (tokens * hidden + assignments * config.expert_intermediate_size +
                         assignments * hidden);
    }
  }
  space.sampling = sampling_bytes(config, request);
  space.drafting = request.draft_bytes;
  space.adapters = adapter_workspace(config, request);
  return space;
}

KvFormula count_formula(const ModelConfig& config, tensor::DType dtype) {
  KvFormula formula;
  for (const kv::GroupSpec& group :
       families::kv_groups(config, {.dtype = dtype, .block_tokens = 1}).specs) {
    if (group.slides()) {
      formula.per_sequence += group.sliding_window * group.block_bytes;
    } else {
      formula.per_token += group.block_bytes;
    }
  }
  return formula;
}

// `flag`, "--kv-cache-memory": what the user asked for; `taken`: by all else.
Error asks_for_too_much(const std::string& flag, int64_t asked, int64_t taken, int64_t memory) {
  return Error{ErrorCode::kDoesNotFit,
               fmt::format("{} asks for {} of {} of memory, of which all else takes {}: at most {} "
                           "is left for it",
                           flag, byte_text(asked), byte_text(memory), byte_text(taken),
                           byte_text(std::max<int64_t>(memory - taken, 0))),
               flag.substr(2)};
}

Error does_not_fit(const Footprint& so_far, const MemoryRequest& request, int64_t allowed) {
  return Error{ErrorCode::kDoesNotFit,
               fmt::format("--memory-utilization {} of {} of memory are {}; weights take {}, "
                           "working memory {}, --swap-space {}, which leaves nothing for the KV "
                           "cache",
                           *request.memory_utilization, byte_text(request.memory_bytes),
                           byte_text(allowed), byte_text(so_far.weights.bytes()),
                           byte_text(so_far.workspace.bytes()), byte_text(request.swap_bytes)),
               "memory-utilization"};
}

// What keys and values lack is seldom theirs to give: the weights, where these alone are too many.
Error with_weights(const Footprint& so_far, const MemoryRequest& request, Error error) {
  const int64_t taken =
      so_far.weights.bytes() + so_far.workspace.bytes() + request.swap_bytes + so_far.adapter_bytes;
  // Whoever names the memory of keys and values knows that.
  const bool named = request.kv_bytes || request.memory_utilization;
  if (named || error.code != ErrorCode::kDoesNotFit || taken < so_far.memory_bytes) return error;
  const auto gib = [](int64_t bytes) { return static_cast<double>(bytes) / (1 << 30); };
  error.message = fmt::format(
      "the weights take {:.1f} GiB and working memory {:.1f} GiB, of {:.1f} GiB of memory: short "
      "by "
      "{:.1f} GiB before the first key and value",
      gib(so_far.weights.bytes()), gib(so_far.workspace.bytes()), gib(so_far.memory_bytes),
      gib(taken - so_far.memory_bytes));
  error.field = "MODEL";
  return error;
}

Result<int64_t> bytes_for_kv(const Footprint& so_far, const MemoryRequest& request) {
  if (request.kv_bytes && request.memory_utilization) {
    return Error{ErrorCode::kInvalidArgument,
                 "--kv-cache-memory and --memory-utilization both say how much memory keys and "
                 "values get; give one of them",
                 "memory-utilization"};
  }
  if (request.kv_bytes) return *request.kv_bytes;
  const int64_t taken =
      so_far.weights.bytes() + so_far.workspace.bytes() + request.swap_bytes + so_far.adapter_bytes;
  if (!request.memory_utilization) {
    if (request.swap_bytes > request.memory_bytes / 2 && taken > request.memory_bytes) {
      return asks_for_too_much("--swap-space", request.swap_bytes, taken - request.swap_bytes,
                               request.memory_bytes);
    }
    return std::max<int64_t>(request.memory_bytes - taken, 0) / 2;
  }
  const auto allowed =
      static_cast<int64_t>(*request.memory_utilization * static_cast<double>(request.memory_bytes));
  if (allowed <= taken) return does_not_fit(so_far, request, allowed);
  return allowed - taken;
}

// With bf16 matrices in 12 bits where there are enough of them and all then fits; a model that is
// read from the disk again and again keeps what the system can drop.
Weights weights_of(const std::vector<ExpectedTensor>& tensors, const ModelConfig& config,
                   const MemoryRequest& request, bool has_coarse_head) {
  const Weights as_files_have_them = count_weights(tensors, config, false, has_coarse_head);
  if (!request.compact_from || request.kernels != KernelKind::kCpu) return as_files_have_them;
  const Weights compact = count_weights(tensors, config, true, has_coarse_head);
  const bool fits = request.memory_bytes == 0 || compact.bytes() <= request.memory_bytes / 10 * 9;
  return compact.dropped >= *request.compact_from && fits ? compact : as_files_have_them;
}

Result<Footprint> add_up(const ModelConfig& config, const std::vector<ExpectedTensor>& tensors,
                         const MemoryRequest& request, Tiles tiles) {
  Footprint footprint{.weights = weights_of(tensors, config, request, tiles.coarse_head),
                      .workspace = count_workspace(config, request, tiles),
                      .kv_formula = count_formula(config, request.kv_dtype),
                      .adapter_bytes = request.adapter_bytes,
                      .sequences_max = request.sequences_max,
                      .batch_tokens_max = request.batch_tokens_max,
                      .memory_bytes = request.memory_bytes,
                      .kv_bytes_asked = request.kv_bytes};
  TRY_ASSIGN(const int64_t allowed, bytes_for_kv(footprint, request));
  const Result<KvBudget> planned = plan_kv(config, request, allowed);
  if (!planned) return with_weights(footprint, request, planned.error());
  const KvBudget& budget = *planned;
  footprint.kv = budget.kv;
  footprint.context_tokens_max = budget.context_tokens_max;
  footprint.swap = plan_swap(footprint.kv, request.swap_bytes);
  return footprint;
}

Tiles tiles_of(const checkpoint::Checkpoint& checkpoint) {
  return {.used = checkpoint.weight_layout() == families::WeightLayout::kTiled,
          .activation_bits = checkpoint.activation_bits(),
          .coarse_head = checkpoint.has(families::kCoarseHead)};
}

// As layers/pack_weights.cc writes it: matrices of whole tiles in bytes, vectors in float32, a head
// of whole tiles as it is and in 4 bits beside. Queries, keys and values are one matrix.
std::vector<ExpectedTensor> packed_tensors(const ModelConfig& config) {
  constexpr int64_t kTileColumns = 32;
  const auto whole = [](int64_t rows) { return rows % tensor::kTileRows == 0; };
  const bool coarse = whole(config.vocab_size) && config.hidden_size % kTileColumns == 0;
  auto tensors = families::expected_tensors(config, families::WeightLayout::kTiled);
  for (ExpectedTensor& tensor : tensors) {
    if (tensor.shape.size() == 1 || tensor.name.ends_with("bias")) {
      tensor.dtype = tensor::DType::kF32;
      continue;
    }
    const bool is_byte_matrix =
        tensor.shape.size() == 2 &&
        (tensor.kind == TensorKind::kAttention || tensor.kind == TensorKind::kMlp ||
         (tensor.kind == TensorKind::kHead && !coarse));
    const bool whole_parts = !tensor.name.ends_with("qkv_proj.weight") ||
                             (whole(config.q_size()) && whole(config.kv_size()));
    if (is_byte_matrix && whole_parts && whole(tensor.shape[0]) &&
        tensor.shape[1] % kTileColumns == 0) {
      tensor.dtype = tensor::DType::kInt8Tiles;
    }
  }
  if (coarse) tensors.push_back(families::coarse_head_tensor(config));
  return tensors;
}

Json kv_json(const KvAllocated& kv) {
  Json json;
  json.set("dtype", tensor::kv_type_name(kv.dtype)).set("block_tokens", kv.block_tokens);
  for (const KvAllocated::Group& group : kv.groups) {
    json.set(group.spec.name + "_block_bytes", group.spec.block_bytes);
    json.set(group.spec.name + "_blocks", group.block_count);
    if (group.spec.slides()) json.set(group.spec.name + "_blocks_live", group.live_count);
  }
  json.set("bytes", kv.bytes());
  return json;
}

}  // namespace

int Footprint::max_sequences() const {
  int64_t most = sequences_max;
  for (const KvAllocated::Group& group : kv.groups) {
    // There are blocks for the windows of all that may run.
    if (group.spec.slides()) continue;
    most = std::min(
        most, group.block_count / group.spec.blocks_at_once(context_tokens_max, kv.block_tokens));
  }
  return static_cast<int>(most);
}

kv::PerGroup<kv::GroupCapacity> Footprint::kv_capacity() const {
  kv::PerGroup<kv::GroupCapacity> groups;
  for (int group = 0; group < kv.groups.size(); ++group) {
    kv::GroupCapacity capacity{.spec = kv.groups[group].spec};
    capacity.block_counts[kv::kDevice] = kv.groups[group].block_count;
    capacity.block_counts[kv::kHost] = swap.groups[group].block_count;
    groups.push_back(capacity);
  }
  return groups;
}

int64_t KvAllocated::bytes() const {
  int64_t bytes = 0;
  for (const Group& group : groups) bytes += group.bytes();
  return bytes;
}

int64_t KvAllocated::token_count() const {
  if (groups.empty()) return 0;
  return int64_t{groups[kv::widest_group(groups)].block_count} * block_tokens;
}

Result<void> check_fits(const Footprint& footprint) {
  const Weights& weights = footprint.weights;
  const bool streamed = weights.mapped > footprint.memory_bytes / 10 * 9;
  const int64_t taken = weights.owned + (streamed ? 0 : weights.mapped) +
                        footprint.workspace.bytes() + footprint.adapter_bytes;
  const int64_t asked = footprint.kv.bytes() + footprint.swap.bytes();
  const bool is_known = footprint.memory_bytes > 0;
  if (is_known && !footprint.keeps_kv() && taken > footprint.memory_bytes) {
    return Error{ErrorCode::kDoesNotFit,
                 fmt::format("weights take {} and working memory {}, of {} of memory; lower "
                             "--max-num-batched-tokens",
                             byte_text(weights.bytes()), byte_text(footprint.workspace.bytes()),
                             byte_text(footprint.memory_bytes)),
                 "max-num-batched-tokens"};
  }
  if (!is_known || asked == 0 || taken + asked <= footprint.memory_bytes) return {};
  const bool by_swap = footprint.swap.bytes() > footprint.kv.bytes();
  const int64_t own = by_swap ? footprint.swap.bytes() : footprint.kv.bytes();
  // Blocks are counted in 32 bits: of what was asked for, not all may be planned.
  const int64_t named = by_swap ? own : footprint.kv_bytes_asked.value_or(own);
  return asks_for_too_much(by_swap ? "--swap-space" : "--kv-cache-memory", named,
                           taken + asked - own, footprint.memory_bytes);
}

Result<Footprint> footprint(const checkpoint::Checkpoint& checkpoint,
                            const MemoryRequest& request) {
  return add_up(checkpoint.config(), checkpoint.expected(), request, tiles_of(checkpoint));
}

int encoder_step_tokens(const ModelConfig& config, int64_t memory_bytes) {
  constexpr int64_t kTokensMax = 16384;  // beyond, larger steps only make others wait
  const int64_t of_token =
      kFloatBytes * (7 * int64_t{config.hidden_size} + config.intermediate_size);
  const int64_t suggested = std::clamp<int64_t>(memory_bytes / 16 / of_token, 512, kTokensMax);
  return static_cast<int>(std::max<int64_t>(suggested, config.context_max));
}

// Steps are filled with texts alone, the next step's while this one's are computed.
int encoder_sequences_max(int batch_tokens_max) {
  constexpr int kSequencesMax = 2048;
  return std::min(2 * batch_tokens_max, kSequencesMax);
}

int64_t model_bytes(const checkpoint::Checkpoint& checkpoint, const MemoryRequest& request) {
  const Workspace space = count_workspace(checkpoint.config(), request, tiles_of(checkpoint));
  const Weights weights = count_weights(checkpoint.expected(), checkpoint.config(), false,
                                        checkpoint.has(families::kCoarseHead));
  return weights.bytes() + space.activations + space.logits + space.kernels;
}

Result<Footprint> footprint(const ModelConfig& config, const MemoryRequest& request) {
  return add_up(config, families::expected_tensors(config, families::WeightLayout::kPublished),
                request, {});
}

Result<Footprint> packed_footprint(const ModelConfig& config, const MemoryRequest& request) {
  constexpr int kActivationBits = 16;
  const std::vector<ExpectedTensor> tensors = packed_tensors(config);
  const bool coarse = !tensors.empty() && tensors.back().name == families::kCoarseHead;
  return add_up(config, tensors, request,
                {.used = true, .activation_bits = kActivationBits, .coarse_head = coarse});
}

std::string log_line(const Footprint& footprint) {
  std::vector<std::string> blocks;
  for (const KvAllocated::Group& group : footprint.kv.groups) {
    blocks.push_back(fmt::format("{} {}", group.block_count, group.spec.name));
  }
  return fmt::format(
      "memory, exactly: weights {} workspace {} kv_allocated {} kv_formula {} swap {} adapters "
      "{} total {} bytes; "
      "max_sequences {} of {} tokens, {} tokens in all; {} blocks of {} tokens in {}",
      footprint.weights.bytes(), footprint.workspace.bytes(), footprint.kv.bytes(),
      footprint.kv_formula_bytes(), footprint.swap.bytes(), footprint.adapter_bytes,
      footprint.bytes(), footprint.max_sequences(), footprint.context_tokens_max,
      footprint.kv.token_count(), fmt::join(blocks, " and "), footprint.kv.block_tokens,
      tensor::kv_type_name(footprint.kv.dtype));
}

Json to_json(const Footprint& footprint) {
  const Weights& weights = footprint.weights;
  Json groups;
  groups.set("experts", weights.experts).set("mlp", weights.mlp);
  groups.set("attention", weights.attention);
  groups.set("embedding", weights.embedding).set("head", weights.head);
  groups.set("other", weights.other).set("mapped", weights.mapped).set("owned", weights.owned);
  groups.set("compact", weights.compact);
  const Workspace& space = footprint.workspace;
  Json working;
  working.set("activations", space.activations).set("logits", space.logits);
  working.set("kernels", space.kernels).set("sampling", space.sampling);
  working.set("drafting", space.drafting).set("adapters", space.adapters);
  Json formula;
  formula.set("per_token", footprint.kv_formula.per_token);
  formula.set("per_sequence", footprint.kv_formula.per_sequence);

  Json json;
  json.set("weights", weights.bytes());
  json.set("kv_formula", footprint.kv_formula_bytes());
  json.set("kv_allocated", footprint.kv.bytes());
  json.set("workspace", space.bytes());
  json.set("max_sequences", footprint.max_sequences());
  json.set("swap", footprint.swap.bytes()).set("adapters", footprint.adapter_bytes);
  json.set("total", footprint.bytes());
  json.set("memory", footprint.memory_bytes);
  json.set("max_model_len", footprint.context_tokens_max);
  json.set("max_num_seqs", footprint.sequences_max);
  json.set("kv_tokens", footprint.kv.token_count());
  json.set("weights_detail", std::move(groups)).set("workspace_detail", std::move(working));
  json.set("kv_formula_detail", std::move(formula));
  json.set("kv_allocated_detail", kv_json(footprint.kv));
  return json;
}

}  // namespace pelton::cost_model
