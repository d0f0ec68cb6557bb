// What the executor computes steps with: a model and its keys and values, on the host (HostModel)
// or on a device (DeviceStepModel). A step goes down whole, so that a device sees one call and no
// round trips. Owned by the executor; its thread, once made.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "base/result.h"
#include "cost_model/footprint.h"
#include "engine/step_plan.h"
#include "kv_transfer/block_store.h"
#include "layers/expert_placement.h"
#include "models/model.h"
#include "parallel/group.h"
#include "sampling/device_rows.h"

namespace pelton::executor {

// Which form of a device's kernels computes what, and how that was chosen: in words.
struct KernelChoice {
  std::string how;                    // "from PATH"
  std::string configs;                // "qkv 8x1 to 8 rows, ..."
  std::vector<std::string> problems;  // a line each, for the log
};

class StepModel {
 public:
  virtual ~StepModel() = default;

  virtual std::string_view kernels_name() const = 0;  // "avx512", "cuda"
  // Null where there is nothing to choose.
  virtual const KernelChoice* kernel_choice() const { return nullptr; }
  // To the byte what this model has allocated; swap room counts as the host's.
  virtual const cost_model::Footprint& footprint() const = 0;

  // In order: a later one may read what an earlier one wrote.
  virtual Result<void> copy_blocks(const std::vector<engine::BlockCopy>& copies) = 0;

  // Between steps, when no block holds anything that is needed: the memory of keys and values goes
  // back to the operating system, and comes again as blocks are written. How much at most, in
  // bytes; 0: none.
  virtual int64_t release_kv_memory() { return 0; }
  virtual bool releases_kv_memory() const { return false; }

  // The blocks of the host's memory, good as long as this model; null where there are none, or
  // where they are not to be read beside the steps.
  virtual kv_transfer::BlockMemory* host_blocks() { return nullptr; }

  // Whether rows of logits can be drawn from where they are computed: then a step does it for those
  // of `draws` that are the device's, and they hold nothing afterwards. And whether a step may
  // begin before the one before it is finished (two at most, without a row for the host).
  virtual bool draws_rows() const { return false; }

  // draws: null, or of each row of logits, if draws_rows(); good until the step is finished.
  // tap: null, or sees the residual stream, where the model is the host's.
  virtual void begin(const models::ForwardInput& input, sampling::DeviceRows* draws,
                     models::HiddenTap* tap) = 0;
  virtual bool is_done() const { return true; }  // the oldest: finish would not wait
  // Of the oldest: float (logit_rows, vocab), the caller's to overwrite until the next step begins.
  // An error fails the whole step.
  virtual Result<float*> finish() = 0;

  // The final normed state of these rows of the last step, in order.
  virtual Result<void> normed_rows(
      std::span<const int> rows,
      base::FunctionRef<void(size_t index, const float* state)> sees) = 0;
  // As Model::labels_of and Model::token_logits_of, of a state that normed_rows gave. Errors:
  // kUnsupported where only states are reported.
  virtual Result<void> labels_of(const float* /*state*/, float* /*logits*/) {
    return Error{ErrorCode::kUnsupported, "labels are computed on the processors only", "model"};
  }
  virtual Result<void> token_logits_of(const float* /*state*/, std::span<const TokenId> /*tokens*/,
                                       float* /*logits*/) {
    return Error{ErrorCode::kUnsupported, "label tokens are computed on the processors only",
                 "model"};
  }
  // As Model::logits_of. Errors: kUnsupported where only the rows of a step are reported.
  virtual Result<void> logits_of(
      std::span<const int> rows,
      base::FunctionRef<void(size_t first, float* logits, size_t count)> sees) = 0;

  // The model's output head, good as long as this model and between steps; null where the model is
  // not the host's.
  using TargetHead = std::function<void(float* logits, const float* x, int rows)>;
  virtual TargetHead head() { return nullptr; }

  // Of several ranks, what is known of each, the leader first; none: there is one process. Any
  // thread.
  virtual std::vector<parallel::Group::RankState> ranks() const { return {}; }
  // Allocated for the KV cache and for what is swapped out, in this process's memory.
  virtual int64_t cache_bytes() const { return 0; }
  // How often tokens chose each expert, where ranks have dealt them out. Any thread.
  virtual layers::ExpertLoads chosen_experts() const { return {}; }
};

}  // namespace pelton::executor
