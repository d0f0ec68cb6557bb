// gpt-oss on a device: packs the checkpoint's weights into the device's layout, uploads them, and
// computes steps there through a device library (cuda/device_abi.h). Keys and values live
// on the device too. The host's counterpart is Model with its KvStorage. Owned by the executor;
// its thread.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/function_ref.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "checkpoint/checkpoint.h"
#include "cuda/device_library.h"
#include "cuda/device_tuning.h"
#include "families/kv_groups.h"
#include "models/model.h"

namespace pelton::models {

class DeviceModel {
 public:
  struct Options {
    int device = 0;
    int batch_tokens_max = 512;
    int sequences_max = 16;
    int logit_rows_max = 16;
    int positions_max = 0;           // of a sequence
    kv::PerGroup<int> block_counts;  // in the order of families::kv_groups; empty: none yet
    cuda::KvType kv_type = cuda::KvType::kF16;
    int64_t partial_bytes_max = int64_t{64} << 20;  // for attention that warps share
    cuda::TuningOptions tuning;                     // of the products
  };

  // Whether devices compute it. Errors: kUnsupported.
  static Result<void> check(const families::ModelConfig& config);
  // What the device must have room for.
  static cuda::ArenaLayout layout(const families::ModelConfig& config, const Options& options);

  // `checkpoint` is read during the call only; `library` outlives the model. Errors name the
  // tensor, or say what the device said.
  static Result<std::unique_ptr<DeviceModel>> load(const checkpoint::Checkpoint& checkpoint,
                                                   const cuda::DeviceLibrary& library,
                                                   const Options& options, base::ThreadPool& pool);
  ~DeviceModel();
  DeviceModel(const DeviceModel&) = delete;
  DeviceModel& operator=(const DeviceModel&) = delete;

  const families::ModelConfig& config() const { return config_; }
  const Options& options() const { return options_; }
  const cuda::ArenaLayout& arena() const { return arena_; }
  // Which form each product is computed in, and how that was chosen.
  const cuda::DeviceTuning& tuning() const { return tuning_; }

  // What is to be drawn from the rows of logits, and where it is reported.
  struct Draws {
    const cuda::Sampling* sampling = nullptr;  // null: nothing
    cuda::Sampled sampled{};
  };
  // Float (logit_rows, vocab), the caller's to overwrite until the next call; null if none is
  // wanted. Rows that were drawn from hold nothing. A row may be wanted once.
  Result<float*> forward(const ForwardInput& input);

  // The same in two, with rows drawn from on the device. A second step may begin before the first
  // is finished if no row of the two is the host's; its tokens below 0 are then what row ~token of
  // the first's logits gave. What is wrong with a step its finish says.
  void begin(const ForwardInput& input, const Draws& draws);
  bool is_done() const;  // the oldest: finish would not wait
  Result<float*> finish();

  // Of the last step, as Model::normed_rows.
  Result<void> normed_rows(std::span<const int> rows,
                           base::FunctionRef<void(size_t index, const float* state)> sees);

  // The content of a block, in all layers of its group, becomes that of another.
  struct BlockCopy {
    int group = 0;
    int32_t from = 0;
    int32_t to = 0;
  };
  Result<void> copy_block(const BlockCopy& copy);
  // Out to the host and back: (layers of the group, bytes of a block).
  int64_t swapped_block_bytes(int group) const;
  Result<void> read_block(int group, int32_t block, uint8_t* out);
  Result<void> write_block(int group, int32_t block, const uint8_t* from);

  // Steps so far, and of these the ones that a recorded graph served.
  struct Counts {
    int64_t steps = 0;
    int64_t replayed = 0;
    int64_t graphs = 0;
  };
  Counts counts() const;

 private:
  DeviceModel(const families::ModelConfig& config, const cuda::DeviceLibrary& library,
              const Options& options);

  Result<void> upload(const checkpoint::Checkpoint& checkpoint, base::ThreadPool& pool);
  // Calls visit(offset of the block) for each layer of the group.
  void for_each_layer(int group, int32_t block, base::FunctionRef<void(int64_t)> visit) const;

  const families::ModelConfig config_;
  const families::KvGroups groups_;
  const cuda::DeviceLibrary& library_;
  const Options options_;
  const cuda::ArenaLayout arena_;
  cuda::Session* session_ = nullptr;
  cuda::DeviceTuning tuning_;
  std::vector<float> norm_;  // the last norm's weight, for normed_rows
  std::vector<float> state_;
  std::vector<cuda::StepSequence> sequences_;
};

}  // namespace pelton::models
