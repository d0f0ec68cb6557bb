#include "models/device_model.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "families/registry.h"
#include "models/device_upload.h"

namespace pelton::models {
namespace {

cuda::ModelShape shape_of(const families::ModelConfig& config) {
  cuda::ModelShape shape{
      .layers = config.layer_count(),
      .hidden = config.hidden_size,
      .inner = config.expert_intermediate_size,
      .heads = config.head_count,
      .kv_heads = config.kv_head_count,
      .head_size = config.head_size,
      .experts = config.expert_count,
      .choices = config.experts_per_token,
      .vocab = config.vocab_size,
      .kv_groups = 0,
      .windows = {},
      .epsilon = static_cast<float>(config.rms_norm_epsilon),
      .attention_scale = static_cast<float>(1.0 / std::sqrt(double{1.0} * config.head_size)),
      .swiglu_alpha = static_cast<float>(config.swiglu_alpha),
      .swiglu_limit = static_cast<float>(config.swiglu_limit)};
  // The device's groups are the model's, in their order; load() has refused what does not fit.
  const families::KvGroups groups = families::kv_groups(config, {});
  shape.kv_groups = std::min(groups.specs.size(), cuda::kKvGroupsMax);
  for (int group = 0; group < shape.kv_groups; ++group) {
    shape.windows[group] = groups.specs[group].sliding_window;
  }
  for (int i = 0; i < config.layer_count() && i < cuda::kLayersMax; ++i) {
    shape.group_of_layer[i] = static_cast<uint8_t>(
        std::min(groups.of_layer[static_cast<size_t>(i)], shape.kv_groups - 1));
  }
  return shape;
}

cuda::Limits limits_of(const DeviceModel::Options& options) {
  cuda::Limits limits{.rows_max = options.batch_tokens_max,
                      .sequences_max = options.sequences_max,
                      .logit_rows_max = options.logit_rows_max,
                      .positions_max = options.positions_max,
                      .kv_blocks = {},
                      .kv_type = options.kv_type,
                      .partial_bytes_max = options.partial_bytes_max};
  for (int group = 0; group < options.block_counts.size() && group < cuda::kKvGroupsMax; ++group) {
    limits.kv_blocks[group] = options.block_counts[group];
  }
  return limits;
}

}  // namespace

Result<void> DeviceModel::check(const families::ModelConfig& config) {
  if (!families::on_devices(*config.family)) {
    return Error{ErrorCode::kUnsupported,
                 fmt::format("no device computes {} yet; --device cpu does", config.architecture)};
  }
  if (config.layer_count() > cuda::kLayersMax || config.hidden_size % 32 != 0 ||
      config.expert_intermediate_size % 32 != 0) {
    return Error{ErrorCode::kUnsupported, "config.json: a shape that no device kernel takes"};
  }
  if (const int groups = families::kv_groups(config, {}).specs.size();
      groups > cuda::kKvGroupsMax) {
    return Error{ErrorCode::kUnsupported,
                 fmt::format("a device computes models with at most {} KV groups; this one has {}",
                             cuda::kKvGroupsMax, groups),
                 "device"};
  }
  return {};
}

cuda::ArenaLayout DeviceModel::layout(const families::ModelConfig& config, const Options& options) {
  return cuda::arena_layout(shape_of(config), limits_of(options));
}

DeviceModel::DeviceModel(const families::ModelConfig& config, const cuda::DeviceLibrary& library,
                         const Options& options)
    : config_(config),
      groups_(families::kv_groups(config, {})),
      library_(library),
      options_(options),
      arena_(layout(config, options)),
      state_(static_cast<size_t>(config.hidden_size)) {}

DeviceModel::~DeviceModel() {
  if (session_ != nullptr) library_.table().close(session_);
}

Result<std::unique_ptr<DeviceModel>> DeviceModel::load(const checkpoint::Checkpoint& checkpoint,
                                                       const cuda::DeviceLibrary& library,
                                                       const Options& options,
                                                       base::ThreadPool& pool) {
  const families::ModelConfig& config = checkpoint.config();
  TRY(check(config));
  std::unique_ptr<DeviceModel> model(new DeviceModel(config, library, options));
  const cuda::ModelShape shape = shape_of(config);
  const cuda::Limits limits = limits_of(options);
  model->session_ = library.table().open(options.device, &shape, &limits);
  TRY(library.check("opening the device"));
  CHECK(model->session_ != nullptr);
  TRY(model->upload(checkpoint, pool));
  TRY_ASSIGN(const cuda::DeviceInfo info, library.device(options.device));
  TRY_ASSIGN(model->tuning_,
             cuda::choose_configs(library, info, model->session_, shape, limits, options.tuning));
  return model;
}

Result<void> DeviceModel::upload(const checkpoint::Checkpoint& checkpoint, base::ThreadPool& pool) {
  DeviceUpload upload(checkpoint, library_, session_, arena_, pool);
  TRY_ASSIGN(norm_, upload.run(options_.positions_max));
  return {};
}

Result<float*> DeviceModel::forward(const ForwardInput& input) {
  begin(input, Draws{});
  return finish();
}

void DeviceModel::begin(const ForwardInput& input, const Draws& draws) {
  sequences_.clear();
  for (const ForwardInput::Sequence& sequence : input.sequences) {
    cuda::StepSequence& added = sequences_.emplace_back();
    added.start = sequence.start;
    added.count = sequence.count;
    for (int group = 0; group < groups_.specs.size(); ++group) {
      added.blocks[group] = sequence.tables[group];
    }
  }
  const cuda::Step step{.tokens = input.tokens.data(),
                        .row_count = static_cast<int32_t>(input.tokens.size()),
                        .sequences = sequences_.data(),
                        .sequence_count = static_cast<int32_t>(sequences_.size()),
                        .logit_rows = input.logit_rows.data(),
                        .logit_row_count = static_cast<int32_t>(input.logit_rows.size()),
                        .sampling = draws.sampling,
                        .sampled = draws.sampled};
  library_.table().begin_step(session_, &step);
}

bool DeviceModel::is_done() const {
  return library_.table().is_step_done(session_) != 0;
}

Result<float*> DeviceModel::finish() {
  float* const logits = library_.table().finish_step(session_);
  TRY(library_.check("a step on the device"));
  return logits;
}

Result<void> DeviceModel::normed_rows(
    std::span<const int> rows, base::FunctionRef<void(size_t index, const float* state)> sees) {
  const auto hidden = static_cast<int64_t>(state_.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    const int64_t bytes = hidden * int64_t{sizeof(float)};
    library_.table().read(session_, arena_.x.offset + rows[i] * bytes, state_.data(), bytes);
    TRY(library_.check("reading a state"));
    double squares = 0;
    for (const float value : state_) squares += double{value} * value;
    const double scale =
        1.0 / std::sqrt(squares / static_cast<double>(hidden) + config_.rms_norm_epsilon);
    for (size_t d = 0; d < state_.size(); ++d) {
      state_[d] = static_cast<float>(state_[d] * scale * norm_[d]);
    }
    sees(i, state_.data());
  }
  return {};
}

void DeviceModel::for_each_layer(int group, int32_t block,
                                 base::FunctionRef<void(int64_t)> visit) const {
  const int64_t bytes = cuda::kv_block_bytes(shape_of(config_), options_.kv_type);
  for (size_t layer = 0; layer < groups_.of_layer.size(); ++layer) {
    if (groups_.of_layer[layer] != group) continue;
    visit(arena_.layers[layer].kv.offset + block * bytes);
  }
}

Result<void> DeviceModel::copy_block(const BlockCopy& copy) {
  const int64_t bytes = cuda::kv_block_bytes(shape_of(config_), options_.kv_type);
  const int64_t back = (int64_t{copy.to} - copy.from) * bytes;
  for_each_layer(copy.group, copy.from, [&](int64_t offset) {
    library_.table().copy(session_, offset + back, offset, bytes);
  });
  return library_.check("copying a block");
}

int64_t DeviceModel::swapped_block_bytes(int group) const {
  int64_t layers = 0;
  for_each_layer(group, 0, [&](int64_t) { ++layers; });
  return layers * cuda::kv_block_bytes(shape_of(config_), options_.kv_type);
}

Result<void> DeviceModel::read_block(int group, int32_t block, uint8_t* out) {
  const int64_t bytes = cuda::kv_block_bytes(shape_of(config_), options_.kv_type);
  for_each_layer(group, block, [&](int64_t offset) {
    library_.table().read(session_, offset, out, bytes);
    out += bytes;
  });
  return library_.check("swapping a block out");
}

Result<void> DeviceModel::write_block(int group, int32_t block, const uint8_t* from) {
  const int64_t bytes = cuda::kv_block_bytes(shape_of(config_), options_.kv_type);
  for_each_layer(group, block, [&](int64_t offset) {
    library_.table().write(session_, offset, from, bytes);
    from += bytes;
  });
  return library_.check("swapping a block in");
}

DeviceModel::Counts DeviceModel::counts() const {
  Counts counts;
  library_.table().step_counts(session_, &counts.steps, &counts.replayed, &counts.graphs);
  return counts;
}

}  // namespace pelton::models
