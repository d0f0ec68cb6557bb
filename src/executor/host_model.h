// The model on this machine's processors: kernels, Model, and the memory of keys and values.
#pragma once

#include <memory>
#include <vector>

#include "base/thread_pool.h"
#include "checkpoint/checkpoint.h"
#include "executor/step_model.h"
#include "kernels/kernels.h"
#include "layers/rank_part.h"
#include "models/kv_storage.h"

namespace pelton::executor {

// Whether a block is filled with NaN before a sequence begins to write it. Where time is no matter:
// in builds without optimization, and where a test asks for it.
#ifndef __OPTIMIZE__
inline constexpr bool kPoisonsBlocks = true;
#else
inline constexpr bool kPoisonsBlocks = false;
#endif

class HostModel final : public StepModel, private kv_transfer::BlockMemory {
 public:
  struct Options {
    kernels::KernelChoice kernels = kernels::KernelChoice::kAuto;
    int batch_tokens_max = 512;
    int logit_rows_max = 16;
    int adapter_rank_max = 0;  // 0: steps bring no adapters
    bool expert_adapters = false;
    layers::RankPart* part = nullptr;  // of several ranks: this one's; outlives the model
    bool poisons_blocks = kPoisonsBlocks;
  };

  // `checkpoint` and `pool` outlive the model. What it allocates is what `footprint` says
  // (CHECKed).
  static Result<std::unique_ptr<StepModel>> load(const checkpoint::Checkpoint& checkpoint,
                                                 const Options& options,
                                                 const cost_model::Footprint& footprint,
                                                 base::ThreadPool& pool);

  std::string_view kernels_name() const override { return kernels_->name(); }
  const cost_model::Footprint& footprint() const override { return footprint_; }
  Result<void> copy_blocks(const std::vector<engine::BlockCopy>& copies) override;
  int64_t release_kv_memory() override;
  int64_t cache_bytes() const override;
  bool releases_kv_memory() const override { return true; }
  kv_transfer::BlockMemory* host_blocks() override { return tiers_.size() > 1 ? this : nullptr; }
  void begin(const models::ForwardInput& input, sampling::DeviceRows* draws,
             models::HiddenTap* tap) override;
  Result<float*> finish() override;
  Result<void> normed_rows(std::span<const int> rows,
                           base::FunctionRef<void(size_t index, const float* state)> sees) override;
  Result<void> labels_of(const float* state, float* logits) override;
  Result<void> token_logits_of(const float* state, std::span<const TokenId> tokens,
                               float* logits) override;
  Result<void> logits_of(
      std::span<const int> rows,
      base::FunctionRef<void(size_t first, float* logits, size_t count)> sees) override;
  TargetHead head() override {
    return [this](float* logits, const float* x, int rows) { model_->head(logits, x, rows); };
  }

 private:
  HostModel(const cost_model::Footprint& footprint, base::ThreadPool& pool,
            std::unique_ptr<kernels::Kernels> kernels, std::unique_ptr<models::Model> model,
            std::vector<models::KvStorage> tiers);

  void read_block(int group, kv::Tier tier, kv::BlockId block,
                  std::span<char> into) const override {
    tiers_[static_cast<size_t>(tier)].gather(group, block, into);
  }
  void write_block(int group, kv::BlockId block, std::span<const char> bytes) override {
    tiers_[kv::kHost].scatter(group, block, bytes);
  }
  void check_footprint(const checkpoint::Checkpoint& checkpoint) const;
  void poison_new_blocks(const models::ForwardInput& input);

  const cost_model::Footprint footprint_;
  base::ThreadPool& pool_;
  std::unique_ptr<kernels::Kernels> kernels_;
  std::unique_ptr<models::Model> model_;
  // By tier: the device's, and the host's for what is swapped out, with swap_bytes only.
  std::vector<models::KvStorage> tiers_;
  float* logits_ = nullptr;  // of the step at hand
  bool poisons_ = false;
};

}  // namespace pelton::executor
