#include "executor/host_model.h"

#include <algorithm>
#include <string>
#include <utility>

namespace pelton::executor {
namespace {

models::KvStorage::Options storage_of(const cost_model::KvAllocated& kv) {
  models::KvStorage::Options options{.dtype = kv.dtype, .block_tokens = kv.block_tokens};
  for (const cost_model::KvAllocated::Group& group : kv.groups) {
    options.block_counts.push_back(group.block_count);
  }
  return options;
}

bool has_blocks(const cost_model::KvAllocated& kv) {
  return std::ranges::any_of(kv.groups, [](const auto& group) { return group.block_count > 0; });
}

// Of several ranks each keeps its heads' keys and values.
families::ModelConfig kept_by(const families::ModelConfig& model, const layers::RankPart* part) {
  families::ModelConfig config = model;
  if (part != nullptr) config.kv_head_count = part->kv_heads().count(part->rank());
  return config;
}

}  // namespace

Result<std::unique_ptr<StepModel>> HostModel::load(const checkpoint::Checkpoint& checkpoint,
                                                   const Options& options,
                                                   const cost_model::Footprint& footprint,
                                                   base::ThreadPool& pool) {
  TRY_ASSIGN(auto kernels, kernels::make_kernels(options.kernels, pool));
  const families::ModelConfig config = kept_by(checkpoint.config(), options.part);
  std::vector<models::KvStorage> tiers;
  TRY_ASSIGN(models::KvStorage kv, models::KvStorage::allocate(config, storage_of(footprint.kv)));
  tiers.push_back(std::move(kv));
  if (has_blocks(footprint.swap)) {
    TRY_ASSIGN(models::KvStorage host,
               models::KvStorage::allocate(config, storage_of(footprint.swap)));
    tiers.push_back(std::move(host));
  }
  TRY_ASSIGN(auto model, models::load_model(checkpoint, *kernels,
                                            {.batch_tokens_max = options.batch_tokens_max,
                                             .logit_rows_max = options.logit_rows_max,
                                             .adapter_rank_max = options.adapter_rank_max,
                                             .expert_adapters = options.expert_adapters,
                                             .part = options.part}));
  std::unique_ptr<HostModel> made(
      new HostModel(footprint, pool, std::move(kernels), std::move(model), std::move(tiers)));
  made->poisons_ = options.poisons_blocks;
  if (options.part == nullptr) made->check_footprint(checkpoint);
  return std::unique_ptr<StepModel>(std::move(made));
}

HostModel::HostModel(const cost_model::Footprint& footprint, base::ThreadPool& pool,
                     std::unique_ptr<kernels::Kernels> kernels,
                     std::unique_ptr<models::Model> model, std::vector<models::KvStorage> tiers)
    : footprint_(footprint),
      pool_(pool),
      kernels_(std::move(kernels)),
      model_(std::move(model)),
      tiers_(std::move(tiers)) {}

// What was predicted is what there is: a buffer that cost_model does not know is a bug. Sampling
// is the executor's.
void HostModel::check_footprint(const checkpoint::Checkpoint& checkpoint) const {
  const cost_model::Workspace& space = footprint_.workspace;
  CHECK(model_->workspace_bytes() + space.sampling + space.drafting == space.bytes(),
        "working memory is not as predicted");
  CHECK(checkpoint.weight_bytes() + model_->owned_weight_bytes() == footprint_.weights.bytes(),
        "weights are not as predicted");
  CHECK(tiers_[kv::kDevice].bytes() == footprint_.kv.bytes(), "the KV cache is not as predicted");
  CHECK((tiers_.size() > 1 ? tiers_[kv::kHost].bytes() : 0) == footprint_.swap.bytes(),
        "swap space is not as predicted");
}

// In each layer one after the other; layers side by side.
Result<void> HostModel::copy_blocks(const std::vector<engine::BlockCopy>& copies) {
  const auto storage = [&](kv::Tier tier) -> models::KvStorage& {
    return tiers_.at(static_cast<size_t>(tier));
  };
  pool_.parallel_for(tiers_[kv::kDevice].layer_count(), 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t layer = begin; layer < end; ++layer) {
      for (const engine::BlockCopy& copy : copies) {
        storage(copy.to_tier)
            .copy_block(storage(copy.from_tier),
                        {.group = copy.group, .from = copy.from, .to = copy.to},
                        static_cast<int>(layer));
      }
    }
  });
  return {};
}

int64_t HostModel::release_kv_memory() {
  int64_t bytes = 0;
  for (models::KvStorage& tier : tiers_) bytes += tier.release_pages();
  return bytes;
}

int64_t HostModel::cache_bytes() const {
  int64_t bytes = 0;
  for (const models::KvStorage& tier : tiers_) bytes += tier.bytes();
  return bytes;
}

// A block that a sequence begins to write is full of NaN (of int8: of NaN scales) instead of what
// whoever had it before has left there, so that reading what nobody has written shows.
void HostModel::poison_new_blocks(const models::ForwardInput& input) {
  models::KvStorage& device = tiers_[kv::kDevice];
  const families::KvGroups& groups = device.groups();
  const int block_tokens = device.options().block_tokens;
  for (int group = 0; group < groups.specs.size(); ++group) {
    const auto layers = std::ranges::count(groups.of_layer, group);
    const std::string poison(static_cast<size_t>(layers * groups.layer_block_bytes[group]), '\xFF');
    for (const models::ForwardInput::Sequence& one : input.sequences) {
      const int end = one.start + one.count;
      for (int i = (one.start + block_tokens - 1) / block_tokens; i * block_tokens < end; ++i) {
        const kv::BlockId block = one.tables[group][i];
        if (block != kv::kNoBlock) device.scatter(group, block, poison);
      }
    }
  }
}

void HostModel::begin(const models::ForwardInput& input, sampling::DeviceRows*,
                      models::HiddenTap* tap) {
  if (poisons_) poison_new_blocks(input);
  logits_ = model_->forward(input, tiers_[kv::kDevice], tap);
}

Result<float*> HostModel::finish() {
  return logits_;
}

Result<void> HostModel::logits_of(
    std::span<const int> rows,
    base::FunctionRef<void(size_t first, float* logits, size_t count)> sees) {
  model_->logits_of(rows, sees);
  return {};
}

Result<void> HostModel::labels_of(const float* state, float* logits) {
  model_->labels_of(state, logits);
  return {};
}

Result<void> HostModel::token_logits_of(const float* state, std::span<const TokenId> tokens,
                                        float* logits) {
  model_->token_logits_of(state, tokens, logits);
  return {};
}

Result<void> HostModel::normed_rows(
    std::span<const int> rows, base::FunctionRef<void(size_t index, const float* state)> sees) {
  model_->normed_rows(rows, sees);
  return {};
}

}  // namespace pelton::executor
