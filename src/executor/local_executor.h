// The real Executor: this machine, its processors or its GPU. Shares the worker threads with other
// models' executors (ComputeThreads), a step at a time. Owns the model
// with its keys and values, on either (StepModel); a thread of its own carries out the plans in
// order, so the engine thread can plan the next step meanwhile.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "checkpoint/checkpoint.h"
#include "cost_model/footprint.h"
#include "engine/executor.h"
#include "engine/seat_tables.h"
#include "executor/compute_threads.h"
#include "executor/device.h"
#include "executor/guide_work.h"
#include "executor/step_model.h"
#include "grammar/token_guide.h"
#include "models/model.h"
#include "sampling/device_rows.h"
#include "sampling/sampler.h"

namespace pelton::executor {

class LocalExecutor final : public engine::Executor {
 public:
  struct Options {
    std::string kernels = "auto";  // auto, reference, avx512, avx2
    int threads = 0;               // 0: every usable processor
    // All models' threads, as many as these are; null: threads of its own.
    std::shared_ptr<ComputeThreads> compute_threads = {};
    // What it may take of the host's memory in all; none: all there is.
    std::optional<int64_t> memory_bytes = {};
    int sequences_max = 16;
    int batch_tokens_max = 512;
    int block_tokens = 16;
    std::optional<tensor::DType> kv_dtype;  // empty: what the kernels prefer
    bool prefix_cache = true;               // divides the KV cache accordingly
    std::optional<int> context_tokens;
    // What keys and values get: so many bytes, or what is left of a share of the machine's memory
    // (not both); half of what is left without either.
    std::optional<int64_t> kv_bytes;
    std::optional<double> memory_utilization;
    // Beside the KV cache: where sequences that make room are copied to instead of being computed
    // again. 0: no swapping.
    int64_t swap_bytes = 0;
    std::optional<Device> device;  // empty: the processors
    // Of a device (cuda/device_forms.h): auto, measure or default, and the folder where
    // what was measured is kept; empty: nowhere.
    std::string kernel_choice = "default";
    std::string kernel_choice_folder;
    int sampled_vocab = 0;  // ids from here on are never sampled (rows without a token); 0: all
    // What a guide leaves no choice about is told with the token before it, so many at most.
    int jump_tokens_max = engine::kJumpTokensMax;
    // What one guide may make a step wait for, in steps of work (grammar/work_budget.h): about a
    // millisecond. What is more is done beside the steps. 0: all of it, for tests.
    int64_t guide_work_max = 40'000;
  };

  // `checkpoint` outlives the executor. Errors: kInvalidArgument, kUnsupported, kBadCheckpoint,
  // kDoesNotFit.
  static Result<std::unique_ptr<LocalExecutor>> create(const checkpoint::Checkpoint& checkpoint,
                                                       const Options& options);
  ~LocalExecutor() override;

  // What `create` asks cost_model::footprint: on this machine, with the kernels that it would take.
  // Errors: kInvalidArgument, kUnsupported.
  static Result<cost_model::MemoryRequest> memory_request(const Options& options);

  const engine::ExecutorCapacity& capacity() const override { return capacity_; }
  void submit(engine::StepPlan plan) override;
  engine::StepResult collect() override;

  std::string_view kernels_name() const { return model_->kernels_name(); }
  const KernelChoice* kernel_choice() const { return model_->kernel_choice(); }
  int threads() const { return pool_.size(); }
  // To the byte what has been allocated.
  const cost_model::Footprint& footprint() const { return model_->footprint(); }
  // Steps that began before the one before them was finished. Any thread.
  int64_t overlapped() const { return overlapped_; }

 private:
  // What is known about the sequence in a seat.
  struct SeatState {
    request::SamplingParams sampling;
    sampling::TokenHistory history;
    TokenId last_token = 0;
    engine::SeatTables tables;
    std::optional<request::Pooling> pooling;
    GuideFollower guide;
    // Drawn, and not told before its guide has gone over it: that takes longer than a step.
    std::optional<sampling::SampledChoice> held;
    // Its last row was deferred. A row that was planned behind that one is void.
    std::shared_ptr<const engine::Deferral> deferral;
    // The row of logits that its next token is being drawn from, in a step that is not finished.
    struct Pending {
      int64_t step = -1;
      int32_t row = -1;
    };
    Pending pending;
    int known = 0;  // tokens of it that were told, if a jump was ahead of what is computed
    std::vector<double> sum;  // kMean: of the normed states so far, in the order of positions
  };

  // A row of logits of the step at hand.
  struct Draw {
    size_t index = 0;  // of its sequence, in the plan
    // Of the step before, where the sequence's last token is still being drawn; negative: none.
    int32_t pending_row = -1;
    std::span<const TokenId> banned{};
    std::span<const uint64_t> allowed{};  // empty: all
    std::vector<uint64_t> only{};         // what `allowed` is, where a token is put there
    std::optional<Error> error{};         // nothing may follow
    bool on_device = false;               // drawn where it was computed
    bool is_held = false;                 // drawn by an earlier row, which was deferred
    bool is_deferred = false;
    bool is_drawn() const { return !error && !is_held && !is_deferred; }
  };

  // A step on its way.
  struct Flight {
    bool has_begun = false;
    bool computes = false;  // the model has begun it
    Result<void> begun;     // what went wrong before that
    engine::StepPlan plan;
    engine::StepResult result;
    std::vector<Draw> draws;  // by row of logits
    sampling::DeviceRows rows;
  };

  LocalExecutor(const Options& options, std::shared_ptr<ComputeThreads> threads,
                std::unique_ptr<StepModel> model, const families::ModelConfig& config);

  void work();
  engine::StepPlan take_plan();
  void begin(engine::StepPlan given, Flight& flight);
  void begin_beside(const Flight& running);
  bool may_begin_beside(const engine::StepPlan& next, const Flight& running) const;
  engine::StepResult finish(Flight& flight);
  Result<void> complete(Flight& flight);
  void take_seats(const engine::StepPlan& plan);
  models::ForwardInput flatten(const engine::StepPlan& plan) const;
  bool samples(const engine::PlannedSequence& sequence) const;
  void list_draws(Flight& flight);
  sampling::DeviceRows* device_draws(Flight& flight);
  void prepare(const engine::StepPlan& plan, Draw& draw);
  void prepare_guided(Draw& draw, SeatState& seat, TokenId forced);
  sampling::DrawInput input_of(const engine::StepPlan& plan, const Draw& draw) const;
  void sample(Flight& flight, float* logits);
  void forget_pending(const engine::StepPlan& plan, const Draw& draw);
  void settle(const engine::StepPlan& plan, Draw& draw, const sampling::SampledChoice& choice,
              engine::StepResult& result);
  void add_jumps(std::span<const Draw> draws, engine::StepResult& result);
  int sampled_vocab() const;
  GuideFollower::Grant guide_grant();
  void grant_guides(const engine::StepPlan& plan);
  void fill_masks(const engine::StepPlan& plan);
  GuideFollower::State follow(const engine::PlannedSequence& sequence, SeatState& seat,
                              const sampling::SampledChoice& choice);
  void jump(const engine::PlannedSequence& sequence, std::vector<TokenId>& more);
  void score_prompts(const engine::StepPlan& plan, engine::StepResult& result);
  Result<void> pool(const engine::StepPlan& plan, engine::StepResult& result);
  void give_embedding(const engine::PlannedSequence& sequence, engine::SequenceResult& given,
                      std::vector<float>& floats);

  const Options options_;
  const std::shared_ptr<ComputeThreads> compute_threads_;
  base::ThreadPool& pool_;
  std::unique_ptr<StepModel> model_;
  engine::ExecutorCapacity capacity_;

  // Executor thread only.
  Flight flights_[2];  // the first that is to be finished, and the one behind it
  std::vector<SeatState> seats_;
  std::vector<sampling::Sampler> samplers_;  // one a worker
  std::vector<SeatState*> guided_;           // scratch of fill_masks
  int64_t guide_work_max_ = 0;               // of a guide, at once
  std::vector<std::vector<TokenId>> jumps_;  // by row of logits: what must follow the sample

  GuideThreads guide_threads_;

  std::atomic<int64_t> overlapped_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<engine::StepPlan> plans_;      // guarded by mutex_
  std::deque<engine::StepResult> results_;  // guarded by mutex_
  bool stopping_ = false;                   // guarded by mutex_
  std::thread thread_;
};

}  // namespace pelton::executor
