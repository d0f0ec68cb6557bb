// The model on a GPU, with the memory that swapped-out blocks take on the host.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "checkpoint/checkpoint.h"
#include "cost_model/footprint.h"
#include "executor/device.h"
#include "executor/step_model.h"
#include "models/device_model.h"

namespace pelton::executor {

class DeviceStepModel final : public StepModel {
 public:
  struct Memory {
    std::string device;
    int64_t bytes = 0;
    int64_t free_bytes = 0;  // of these
  };
  // What load() takes of a device's memory. Errors: kDoesNotFit, kUnsupported.
  static Result<cost_model::Footprint> plan(const families::ModelConfig& config,
                                            const cost_model::MemoryRequest& request,
                                            const Memory& memory);

  // Divides the device's memory: weights and working memory first (cuda/arena.h), what
  // `request` says of the rest for keys and values, in blocks as on the host. `checkpoint` is read
  // during the call only. Errors: kDoesNotFit, kUnsupported and the checkpoint's.
  static Result<std::unique_ptr<StepModel>> load(const checkpoint::Checkpoint& checkpoint,
                                                 const Device& device,
                                                 const cost_model::MemoryRequest& request,
                                                 const cuda::TuningOptions& tuning,
                                                 base::ThreadPool& pool);

  std::string_view kernels_name() const override { return device_.library.table().kind(); }
  const KernelChoice* kernel_choice() const override { return &kernel_choice_; }
  const cost_model::Footprint& footprint() const override { return footprint_; }
  Result<void> copy_blocks(const std::vector<engine::BlockCopy>& copies) override;
  bool draws_rows() const override { return true; }
  void begin(const models::ForwardInput& input, sampling::DeviceRows* draws,
             models::HiddenTap* tap) override;
  bool is_done() const override { return model_->is_done(); }
  Result<float*> finish() override;
  Result<void> normed_rows(std::span<const int> rows,
                           base::FunctionRef<void(size_t index, const float* state)> sees) override;
  Result<void> logits_of(
      std::span<const int> rows,
      base::FunctionRef<void(size_t first, float* logits, size_t count)> sees) override;

 private:
  DeviceStepModel(const Device& device, const cost_model::Footprint& footprint)
      : device_(device), footprint_(footprint) {}

  Result<void> copy_block(const engine::BlockCopy& copy);
  uint8_t* swapped(const engine::BlockCopy& copy, int32_t block);

  const Device device_;
  const cost_model::Footprint footprint_;
  std::unique_ptr<models::DeviceModel> model_;
  KernelChoice kernel_choice_;
  kv::PerGroup<std::vector<uint8_t>> swap_;  // blocks that made room, each in one piece
};

}  // namespace pelton::executor
