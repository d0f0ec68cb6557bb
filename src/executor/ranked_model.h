// The model of several ranks (docs/decisions/0111), as its leader has it: this process's part, and
// the others, which are sent of each step what the model sees. Behind StepModel, so the engine and
// the executor's units learn nothing of it. What needs no products over the layers (states, labels,
// single logits, a drafter's head, a whole prompt's logits) the leader computes alone. Owned by the
// executor; its thread, once made.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/load_choice.h"
#include "checkpoint/weight_ranges.h"
#include "executor/compute_threads.h"
#include "executor/host_model.h"
#include "executor/rank_bytes.h"
#include "executor/rank_job.h"
#include "executor/rank_step.h"
#include "executor/step_model.h"
#include "layers/rank_part.h"
#include "parallel/group.h"

namespace pelton::executor {

// How many ranks compute a model, and who hears of it when one is lost.
struct RankOptions {
  int count = 1;             // --tensor-parallel-size
  std::vector<int> weights;  // of their shares; empty: equal ones
  // Each expert is one rank's, whole; otherwise they are cut. By how often each was chosen before,
  // where that is known, and then so many copies in each layer.
  bool deals_experts = false;
  layers::ExpertLoads chosen_before = {};
  int expert_copies = 0;
  std::string model = {};  // where followers find its files
  parallel::TransportKind transport = parallel::TransportKind::kShm;
  int threads = 0;  // of each; 0: as many as each has processors
  std::string program = "/proc/self/exe";
  // How a follower's weights come into its memory (the leader's are there), and in which time it
  // looks at all of them once, whether they are what they were; 0: never.
  checkpoint::LoadChoice load = {};
  int64_t scrub_period_ns = 0;
  // Where the others come to that somebody else starts, on this host or others; empty: they are
  // started here.
  std::optional<parallel::Meeting> meeting = {};
  std::vector<int> processors = {};               // of such a leader
  std::map<std::string, std::string> facts = {};  // which such ranks must agree on besides
  // Once, on a thread of the group's, when the other processes have ended.
  std::function<void(const Error& error)> on_lost = {};

  bool several() const { return count > 1; }
  // Of `processors`, those of this rank: its own, or a share of all.
  std::vector<int> own_processors() const;
};

// The threads of a process that leads so many ranks, on its share of the processors, as many as
// those unless `threads` says how many. Without ranks: as ComputeThreads has them.
std::shared_ptr<ComputeThreads> leader_threads(const RankOptions& ranks, int threads);

// What of the weights the leader computes with. Errors: kUnsupported, kBadConfig.
Result<checkpoint::WeightRanges> leader_weights(const checkpoint::Checkpoint& checkpoint,
                                                const RankOptions& ranks);

class RankedModel final : public StepModel {
 public:
  // Starts the followers and waits until each has loaded its part, from the same files as the
  // leader's, and a first step gave the same bits on all. `checkpoint` and `pool` outlive it.
  // Errors: kUnsupported, kBadConfig and kUnavailable, naming the rank.
  static Result<std::unique_ptr<StepModel>> load(const checkpoint::Checkpoint& checkpoint,
                                                 const RankOptions& ranks,
                                                 const std::string& kernels,
                                                 const HostModel::Options& options,
                                                 const cost_model::Footprint& footprint,
                                                 base::ThreadPool& pool);

  std::string_view kernels_name() const override { return host_->kernels_name(); }
  const cost_model::Footprint& footprint() const override { return host_->footprint(); }
  Result<void> copy_blocks(const std::vector<engine::BlockCopy>& copies) override;
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
  TargetHead head() override { return host_->head(); }
  std::vector<parallel::Group::RankState> ranks() const override;
  layers::ExpertLoads chosen_experts() const override { return part_.chosen_experts(); }

 private:
  RankedModel(std::unique_ptr<parallel::Group> group, layers::RankPart part, int block_tokens);

  Result<void> wait_for_all(int64_t limit_ms);
  Result<void> compare_files(const checkpoint::Checkpoint& checkpoint, const RankOptions& ranks,
                             base::ThreadPool& pool);
  Result<void> try_a_step();
  Result<void> compare_bytes(const std::vector<RankBytes>& planned);

  // In the order in which they are made: the last goes first.
  const std::unique_ptr<parallel::Group> group_;
  layers::RankPart part_;
  RankStepWriter writer_;
  std::unique_ptr<StepModel> host_;
  std::vector<RankBytes> held_;  // of each rank, once it has said so
  Result<void> sent_;            // of the step at hand
};

// Of the first row of the last step: what ranks compare.
Result<std::string> state_digest(StepModel& model, int hidden);
// One token, in block 0 of every group.
models::ForwardInput trial_step(int groups);

}  // namespace pelton::executor
