// The real Executor: this machine, its processors or its GPU. Shares the worker threads with other
// models' executors (ComputeThreads), a step at a time. Owns the model with its keys and values, on
// either (StepModel), and the units that a step goes through; a thread of its own carries out the
// plans in order, so the engine thread can plan the next step meanwhile.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "checkpoint/checkpoint.h"
#include "cost_model/footprint.h"
#include "engine/executor.h"
#include "executor/compute_threads.h"
#include "executor/device.h"
#include "executor/drafter.h"
#include "executor/pooling.h"
#include "executor/ranked_model.h"
#include "executor/row_sampler.h"
#include "executor/slot_grammars.h"
#include "executor/slot_table.h"
#include "executor/step_model.h"
#include "executor/step_queue.h"
#include "kv_transfer/block_exchange.h"
#include "kv_transfer/block_store.h"
#include "lora/adapter.h"
#include "sampling/device_rows.h"
#include "sampling/sampler.h"
#include "speculative/config.h"

namespace pelton::executor {

class LocalExecutor final : public engine::Executor {
 public:
  struct Options {
    std::string kernels = "auto";  // auto, reference, avx512, avx2, neon
    int threads = 0;               // 0: every usable processor
    // All models' threads, as many as these are; null: threads of its own.
    std::shared_ptr<ComputeThreads> compute_threads = {};
    // What it may take of the host's memory in all; none: all there is.
    std::optional<int64_t> memory_bytes = {};
    int sequences_max = 16;
    int batch_tokens_max = 512;
    int block_tokens = 16;
    std::optional<tensor::DType> kv_dtype;  // empty: what the kernels prefer
    // Of an encoder, as many as memory suggests and its longest text at least, whatever
    // batch_tokens_max says.
    bool batch_from_memory = false;
    bool prefix_cache = true;  // divides the KV cache accordingly
    std::optional<int> context_tokens;
    // What keys and values get: so many bytes, or what is left of a share of the machine's memory
    // (not both); half of what is left without either.
    std::optional<int64_t> kv_bytes;
    std::optional<double> memory_utilization;
    // Beside the KV cache: where sequences that make room are copied to instead of being computed
    // again. 0: no swapping.
    int64_t swap_bytes = 0;
    // Behind that, with swap_bytes only: a disk, for what the prefix cache keeps. The processors'
    // only.
    kv_transfer::DiskOptions disk;
    // With swap_bytes only: blocks from and for other workers, likewise the processors' only.
    kv_transfer::ExchangeOptions peers = {};
    std::optional<Device> device;  // empty: the processors
    // Of a device (cuda/device_tuning.h): auto, measure or default, and the folder where
    // what was measured is kept; empty: nowhere.
    std::string kernel_choice = "default";
    std::string kernel_choice_folder;
    int sampled_vocab = 0;  // ids from here on are never sampled (rows without a token); 0: all
    // What a guide leaves no choice about is emitted with the token before it, so many at most.
    int jump_tokens_max = engine::kJumpTokensMax;
    // What one guide may make a step wait for, in steps of work (grammar/work_budget.h): about a
    // millisecond. What is more is done beside the steps. 0: all of it, for tests.
    int64_t guide_work_max = 40'000;
    // LoRA adapters that requests may bring: so many distinct ones in a step, of these ranks, on
    // these matrices; so many are kept in memory, and one more may be on its way there. The
    // processors' only.
    int adapters_max = 0;
    lora::Limits adapter_limits;
    int adapters_kept_max = 0;
    // Who guesses, and how many tokens behind one sequence's row. The processors' only.
    speculative::Config speculation;
    // Who computes it together; the processors' only.
    RankOptions ranks = {};
    // Instead of the proposer that it asks for: tests.
    std::shared_ptr<speculative::Proposer> proposer = {};
  };

  // `checkpoint` outlives the executor. Errors: kInvalidArgument, kUnsupported, kBadCheckpoint,
  // kDoesNotFit.
  static Result<std::unique_ptr<LocalExecutor>> create(const checkpoint::Checkpoint& checkpoint,
                                                       const Options& options);
  ~LocalExecutor() override;

  // What `create` asks cost_model::footprint: on this machine, with the kernels that it would take;
  // what a proposer keeps for this model included, or not. Errors: kInvalidArgument, kUnsupported;
  // those of the proposer's files.
  static Result<cost_model::MemoryRequest> memory_request(const Options& options,
                                                          const families::ModelConfig& model);
  static Result<cost_model::MemoryRequest> memory_request(const Options& options);

  const engine::ExecutorCapacity& capacity() const override { return capacity_; }
  void submit(engine::StepPlan plan) override;
  engine::StepResult collect() override;
  int64_t release_kv_memory() override { return model_->release_kv_memory(); }
  bool releases_kv_memory() const override { return model_->releases_kv_memory(); }
  kv::BlockTransfers* disk() override { return disk_.get(); }
  kv::PeerTransfers* peers() override { return peers_.get(); }
  // What there is of Options::disk; null: none.
  const kv_transfer::SlotFile* disk_file() const { return disk_ ? &disk_->file() : nullptr; }

  std::string_view kernels_name() const { return model_->kernels_name(); }
  std::vector<parallel::Group::RankState> ranks() const { return model_->ranks(); }
  layers::ExpertLoads chosen_experts() const { return model_->chosen_experts(); }
  const KernelChoice* kernel_choice() const { return model_->kernel_choice(); }
  int threads() const { return pool_.size(); }
  // To the byte what has been allocated.
  const cost_model::Footprint& footprint() const { return model_->footprint(); }
  // What is to be known of speculation as it was asked for; empty: nothing.
  std::string speculation_warning() const;
  // Steps that began before the one before them was finished. Any thread.
  int64_t overlapped() const { return overlapped_; }

 private:
  // A step on its way.
  struct Flight {
    bool has_begun = false;
    bool computes = false;  // the model has begun it
    int64_t begun_ns = 0;
    Result<void> begun;  // what went wrong before that
    engine::StepPlan plan;
    engine::StepResult result;
    Drafts drafts;
    std::vector<SampledRow> rows;
    sampling::DeviceRows device_rows;
  };

  LocalExecutor(const Options& options, std::shared_ptr<ComputeThreads> threads,
                std::unique_ptr<StepModel> model, std::shared_ptr<speculative::Proposer> proposer,
                const families::ModelConfig& config, std::optional<SparseHead> sparse_head,
                const kv::PerGroup<kv::GroupCapacity>& groups,
                std::unique_ptr<kv_transfer::BlockStore> disk,
                std::unique_ptr<kv_transfer::BlockExchange> peers);

  void work();
  void begin(engine::StepPlan given, Flight& flight);
  void begin_early(const Flight& running);
  engine::StepResult finish(Flight& flight);
  Result<void> complete(Flight& flight);

  const std::shared_ptr<ComputeThreads> compute_threads_;
  const ComputeThreads::Work work_;
  base::ThreadPool& pool_;
  const std::unique_ptr<StepModel> model_;
  const std::unique_ptr<kv_transfer::BlockStore> disk_;      // reads and writes the model's memory
  const std::unique_ptr<kv_transfer::BlockExchange> peers_;  // likewise
  const engine::ExecutorCapacity capacity_;
  const int sampled_vocab_;

  // Executor thread only.
  Flight flights_[2];  // the first that is to be finished, and the one behind it
  SlotTable slots_;
  SlotGrammars grammars_;
  Pooling pooling_;
  const std::shared_ptr<speculative::Proposer> proposer_;
  Drafter drafter_;
  std::vector<sampling::Sampler> samplers_;  // one a worker
  RowSampler row_sampler_;

  std::atomic<int64_t> overlapped_ = 0;
  StepQueue queue_;
  std::thread thread_;
};

}  // namespace pelton::executor
