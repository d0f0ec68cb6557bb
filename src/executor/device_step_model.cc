#include "executor/device_step_model.h"

#include <algorithm>

#include <fmt/format.h>

namespace pelton::executor {
namespace {

// Of what the device has free; the driver and other programs want some as well.
constexpr double kShareByDefault = 0.9;
constexpr int kPositionsMin = 4096;
constexpr int kPooledSequencesMax = 128;

models::DeviceModel::Options options_for(const cost_model::MemoryRequest& request,
                                         cuda::KvType kv_type, int positions_max) {
  return {.batch_tokens_max = request.batch_tokens_max,
          // Embeddings take slots of their own (local_executor.cc).
          .sequences_max =
              std::min(request.batch_tokens_max, request.sequences_max + kPooledSequencesMax),
          .logit_rows_max = request.sequences_max + request.draft_rows_max,
          .positions_max = positions_max,
          .kv_type = kv_type};
}

// Of the same, with the KV cache that was planned.
models::DeviceModel::Options with_blocks(models::DeviceModel::Options options,
                                         const cost_model::Footprint& footprint) {
  for (const cost_model::KvAllocated::Group& group : footprint.kv.groups) {
    options.block_counts.push_back(group.block_count);
  }
  options.positions_max = std::max(kPositionsMin, footprint.context_tokens_max);
  return options;
}

Result<cuda::KvType> kv_type_of(tensor::DType dtype) {
  if (dtype == tensor::DType::kF16) return cuda::KvType::kF16;
  if (dtype == tensor::DType::kBf16) return cuda::KvType::kBf16;
  if (dtype == tensor::DType::kF8E4m3) return cuda::KvType::kFp8;
  return Error{ErrorCode::kUnsupported, "a device keeps keys and values in f16, bf16 or fp8",
               "kv-cache-dtype"};
}

Error no_room(const std::string& device, const cuda::ArenaLayout& arena, int64_t room) {
  return Error{ErrorCode::kDoesNotFit,
               fmt::format("{}: weights take {} bytes and working memory {}, of {} that may be "
                           "used; nothing is left for keys and values",
                           device, arena.weight_bytes, arena.workspace_bytes, room),
               "memory-utilization"};
}

}  // namespace

Result<cost_model::Footprint> DeviceStepModel::plan(const families::ModelConfig& config,
                                                    const cost_model::MemoryRequest& request,
                                                    const Memory& memory) {
  TRY(models::DeviceModel::check(config));
  if (request.adapter_rank_max > 0) {
    return Error{ErrorCode::kUnsupported,
                 "--enable-lora: adapters are computed with on the processors (--device cpu), not "
                 "yet on a GPU",
                 "enable-lora"};
  }
  TRY_ASSIGN(const cuda::KvType kv_type, kv_type_of(request.kv_dtype));
  if (request.block_tokens != cuda::kBlockTokens) {
    return Error{ErrorCode::kUnsupported, "a device keeps keys and values in blocks of 16 tokens",
                 "block-size"};
  }
  const models::DeviceModel::Options options =
      options_for(request, kv_type,
                  std::max(kPositionsMin, request.context_tokens.value_or(config.context_max)));
  const cuda::ArenaLayout bare = models::DeviceModel::layout(config, options);
  const double share = request.memory_utilization.value_or(kShareByDefault);
  const auto room = static_cast<int64_t>(share * static_cast<double>(memory.free_bytes));
  const int64_t left = room - bare.weight_bytes - bare.workspace_bytes;
  cost_model::MemoryRequest on_device = request;
  on_device.memory_utilization.reset();
  on_device.compact_from.reset();
  if (!on_device.kv_bytes) {
    if (left <= 0) return no_room(memory.device, bare, room);
    on_device.kv_bytes = left;
  }
  on_device.memory_bytes = memory.bytes;
  TRY_ASSIGN(cost_model::Footprint footprint, cost_model::footprint(config, on_device));
  // What the host's layout would take is not what the device takes.
  const cuda::ArenaLayout arena =
      models::DeviceModel::layout(config, with_blocks(options, footprint));
  footprint.weights = {.mapped = arena.weight_bytes};
  footprint.workspace = {.activations = arena.workspace_bytes,
                         .sampling = footprint.workspace.sampling,
                         .drafting = footprint.workspace.drafting};
  return footprint;
}

Result<std::unique_ptr<StepModel>> DeviceStepModel::load(const checkpoint::Checkpoint& checkpoint,
                                                         const Device& device,
                                                         const cost_model::MemoryRequest& request,
                                                         const cuda::TuningOptions& tuning,
                                                         base::ThreadPool& pool) {
  TRY_ASSIGN(const cost_model::Footprint footprint,
             plan(checkpoint.config(), request,
                  {.device = device.info.name,
                   .bytes = device.info.memory_bytes,
                   .free_bytes = device.info.memory_free_bytes}));
  TRY_ASSIGN(const cuda::KvType kv_type, kv_type_of(request.kv_dtype));
  models::DeviceModel::Options options =
      with_blocks(options_for(request, kv_type, kPositionsMin), footprint);
  options.device = device.index;
  options.tuning = tuning;

  std::unique_ptr<DeviceStepModel> made(new DeviceStepModel(device, footprint));
  TRY_ASSIGN(made->model_,
             models::DeviceModel::load(checkpoint, made->device_.library, options, pool));
  const cuda::DeviceTuning& chosen = made->model_->tuning();
  made->kernel_choice_ = {chosen.how, cuda::describe(chosen.configs), chosen.problems};
  for (int group = 0; group < footprint.swap.groups.size(); ++group) {
    made->swap_.push_back(std::vector<uint8_t>(static_cast<size_t>(
        footprint.swap.groups[group].block_count * made->model_->swapped_block_bytes(group))));
  }
  return std::unique_ptr<StepModel>(std::move(made));
}

uint8_t* DeviceStepModel::swapped(const engine::BlockCopy& copy, int32_t block) {
  std::vector<uint8_t>& swap = swap_[copy.group];
  const int64_t bytes = model_->swapped_block_bytes(copy.group);
  CHECK((block + int64_t{1}) * bytes <= static_cast<int64_t>(swap.size()));
  return swap.data() + block * bytes;
}

Result<void> DeviceStepModel::copy_block(const engine::BlockCopy& copy) {
  const bool from_device = copy.from_tier == kv::kDevice;
  const bool to_device = copy.to_tier == kv::kDevice;
  CHECK(from_device || copy.from_tier == kv::kHost, "a tier that a device does not have");
  CHECK(to_device || copy.to_tier == kv::kHost, "a tier that a device does not have");
  if (from_device && to_device) {
    return model_->copy_block({.group = copy.group, .from = copy.from, .to = copy.to});
  }
  if (from_device) return model_->read_block(copy.group, copy.from, swapped(copy, copy.to));
  if (to_device) return model_->write_block(copy.group, copy.to, swapped(copy, copy.from));
  std::copy_n(swapped(copy, copy.from), model_->swapped_block_bytes(copy.group),
              swapped(copy, copy.to));
  return {};
}

Result<void> DeviceStepModel::copy_blocks(const std::vector<engine::BlockCopy>& copies) {
  for (const engine::BlockCopy& copy : copies) TRY(copy_block(copy));
  return {};
}

void DeviceStepModel::begin(const models::ForwardInput& input, sampling::DeviceRows* draws,
                            models::HiddenTap*) {
  if (draws == nullptr) return model_->begin(input, {});
  model_->begin(input, {.sampling = &draws->sampling(), .sampled = draws->sampled()});
}

Result<float*> DeviceStepModel::finish() {
  return model_->finish();
}

Result<void> DeviceStepModel::logits_of(std::span<const int>,
                                        base::FunctionRef<void(size_t, float*, size_t)>) {
  return Error{ErrorCode::kUnsupported, "prompt_logprobs are reported on a CPU only",
               "prompt_logprobs"};
}

Result<void> DeviceStepModel::normed_rows(
    std::span<const int> rows, base::FunctionRef<void(size_t index, const float* state)> sees) {
  return model_->normed_rows(rows, sees);
}

}  // namespace pelton::executor
