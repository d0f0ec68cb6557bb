#include "executor/host_model.h"

#include <utility>

namespace pelton::executor {
namespace {

models::KvStorage::Options storage_of(const cost_model::KvAllocated& kv) {
  return {.dtype = kv.dtype,
          .block_tokens = kv.block_tokens,
          .full_block_count = kv.full_block_count,
          .window_block_count = kv.window_block_count};
}

}  // namespace

Result<std::unique_ptr<StepModel>> HostModel::load(const checkpoint::Checkpoint& checkpoint,
                                                   const Options& options,
                                                   const cost_model::Footprint& footprint,
                                                   base::ThreadPool& pool) {
  TRY_ASSIGN(auto kernels, kernels::make_kernels(options.kernels, pool));
  const families::ModelConfig& config = checkpoint.config();
  TRY_ASSIGN(models::KvStorage kv, models::KvStorage::allocate(config, storage_of(footprint.kv)));
  std::optional<models::KvStorage> host_kv;
  if (footprint.swap.full_block_count > 0) {
    TRY_ASSIGN(host_kv, models::KvStorage::allocate(config, storage_of(footprint.swap)));
  }
  TRY_ASSIGN(auto model, models::load_model(checkpoint, *kernels,
                                            {.batch_tokens_max = options.batch_tokens_max,
                                             .logit_rows_max = options.logit_rows_max}));
  std::unique_ptr<HostModel> made(new HostModel(
      footprint, pool, std::move(kernels), std::move(model), std::move(kv), std::move(host_kv)));
  made->check_footprint(checkpoint);
  return std::unique_ptr<StepModel>(std::move(made));
}

HostModel::HostModel(const cost_model::Footprint& footprint, base::ThreadPool& pool,
                     std::unique_ptr<kernels::Kernels> kernels,
                     std::unique_ptr<models::Model> model, models::KvStorage kv,
                     std::optional<models::KvStorage> host_kv)
    : footprint_(footprint),
      pool_(pool),
      kernels_(std::move(kernels)),
      model_(std::move(model)),
      kv_(std::move(kv)),
      host_kv_(std::move(host_kv)) {}

// What was foreseen is what there is: a buffer that cost_model does not know is a bug. Sampling is
// the executor's.
void HostModel::check_footprint(const checkpoint::Checkpoint& checkpoint) const {
  CHECK(model_->workspace_bytes() + footprint_.workspace.sampling == footprint_.workspace.bytes(),
        "working memory is not as foreseen");
  CHECK(checkpoint.weight_bytes() + model_->owned_weight_bytes() == footprint_.weights.bytes(),
        "weights are not as foreseen");
  CHECK(kv_.bytes() == footprint_.kv.bytes(), "the KV cache is not as foreseen");
  CHECK((host_kv_ ? host_kv_->bytes() : 0) == footprint_.swap.bytes(),
        "swap space is not as foreseen");
}

// In each layer one after the other; layers side by side.
Result<void> HostModel::copy_blocks(const std::vector<engine::BlockCopy>& copies) {
  const auto storage = [&](kv::Tier tier) -> models::KvStorage& {
    return tier == kv::Tier::kDevice ? kv_ : host_kv_.value();
  };
  pool_.parallel_for(kv_.layer_count(), 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t layer = begin; layer < end; ++layer) {
      for (const engine::BlockCopy& copy : copies) {
        storage(copy.to_tier)
            .copy_block(
                storage(copy.from_tier),
                {.sliding = copy.group == kv::Group::kWindow, .from = copy.from, .to = copy.to},
                static_cast<int>(layer));
      }
    }
  });
  return {};
}

void HostModel::begin(const models::ForwardInput& input, sampling::DeviceRows*) {
  logits_ = model_->forward(input, kv_, nullptr);
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

Result<void> HostModel::normed_rows(
    std::span<const int> rows, base::FunctionRef<void(size_t index, const float* state)> sees) {
  model_->normed_rows(rows, sees);
  return {};
}

}  // namespace pelton::executor
