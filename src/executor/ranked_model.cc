#include "executor/ranked_model.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/digest.h"
#include "base/machine.h"
#include "checkpoint/residency.h"
#include "executor/rank_files.h"
#include "executor/rank_follower.h"
#include "layers/rank_weights.h"
#include "parallel/processors.h"

namespace pelton::executor {
namespace {

// Until a follower has mapped its files and found its rows; a model is not read for that.
constexpr int64_t kStartLimitMs = 300'000;
constexpr int64_t kAnswerLimitMs = 60'000;
// Then, on several hosts, all of it is: from a slow disk.
constexpr int64_t kReadBytesPerMs = 32'000;

// Who has which expert; empty: each rank has a part of each.
Result<layers::ExpertTable> table_of(const families::ModelConfig& config,
                                     const RankOptions& ranks) {
  if (!ranks.deals_experts) return layers::ExpertTable();
  TRY_ASSIGN(layers::ExpertTable neighbours, layers::deal_experts(config, ranks.count));
  if (ranks.chosen_before.empty()) return neighbours;
  TRY(layers::check_loads(ranks.chosen_before, config));
  return layers::place_experts(ranks.chosen_before, ranks.count, ranks.expert_copies);
}

// Equal shares, where nobody has said.
std::vector<int> shares_of(const RankOptions& ranks) {
  return ranks.weights.empty() ? std::vector<int>(static_cast<size_t>(ranks.count), 1)
                               : ranks.weights;
}

}  // namespace

Result<checkpoint::WeightRanges> leader_weights(const checkpoint::Checkpoint& checkpoint,
                                                const RankOptions& ranks) {
  TRY_ASSIGN(const layers::ExpertTable experts, table_of(checkpoint.config(), ranks));
  return layers::rank_weights(checkpoint, 0, shares_of(ranks), experts);
}

std::vector<int> RankOptions::own_processors() const {
  if (meeting) return processors;
  return parallel::share_processors(base::usable_cpus(), count).front();
}

std::shared_ptr<ComputeThreads> leader_threads(const RankOptions& ranks, int threads) {
  if (!ranks.several()) return std::make_shared<ComputeThreads>(threads);
  const std::vector<int> own = ranks.own_processors();
  const parallel::ProcessorScope scope(own);
  const auto count = static_cast<int>(std::max<size_t>(own.size(), 1));
  return std::make_shared<ComputeThreads>(threads > 0 ? threads : count);
}

Result<std::unique_ptr<StepModel>> RankedModel::load(const checkpoint::Checkpoint& checkpoint,
                                                     const RankOptions& ranks,
                                                     const std::string& kernels,
                                                     const HostModel::Options& options,
                                                     const cost_model::Footprint& footprint,
                                                     base::ThreadPool& pool) {
  const std::vector<int> weights = shares_of(ranks);
  TRY_ASSIGN(const layers::ExpertTable experts, table_of(checkpoint.config(), ranks));
  TRY_ASSIGN(const std::string kernels_name, usable_kernels(options.kernels, pool));
  const RankJob job{.model = ranks.model,
                    .kernels = kernels,
                    .kernels_name = kernels_name,
                    .threads = ranks.threads,
                    .batch_tokens_max = options.batch_tokens_max,
                    .logit_rows_max = options.logit_rows_max,
                    .kv = footprint.kv,
                    .swap = footprint.swap,
                    .weights = weights,
                    .experts = experts,
                    .load_mode = ranks.load.mode,
                    .reads_ahead = ranks.load.ahead,
                    .scrub_period_ns = ranks.scrub_period_ns,
                    .facts = ranks.facts};
  const auto processors = parallel::share_processors(base::usable_cpus(), ranks.count);
  TRY_ASSIGN(auto group, parallel::Group::start({.ranks = ranks.count,
                                                 .program = ranks.program,
                                                 .processors = processors,
                                                 .transport = ranks.transport,
                                                 .meeting = ranks.meeting,
                                                 .spin_ns = parallel::spin_ns_for(processors),
                                                 .on_lost = ranks.on_lost},
                                                job.to_json()));
  TRY_ASSIGN(layers::RankPart part,
             layers::RankPart::make(checkpoint, group->exchange(), weights, experts));
  std::unique_ptr<RankedModel> model(
      new RankedModel(std::move(group), std::move(part), footprint.kv.block_tokens));
  HostModel::Options own = options;
  own.part = &model->part_;
  TRY_ASSIGN(model->host_, HostModel::load(checkpoint, own, footprint, pool));
  TRY(model->wait_for_all(kStartLimitMs));
  TRY(model->compare_files(checkpoint, ranks, pool));
  TRY(model->try_a_step());
  TRY_ASSIGN(const std::vector<RankBytes> planned,
             plan_rank_bytes(checkpoint, weights, experts, footprint));
  TRY(model->compare_bytes(planned));
  return std::unique_ptr<StepModel>(std::move(model));
}

RankedModel::RankedModel(std::unique_ptr<parallel::Group> group, layers::RankPart part,
                         int block_tokens)
    : group_(std::move(group)), part_(std::move(part)), writer_(block_tokens) {}

// "ready", or why not.
Result<void> RankedModel::wait_for_all(int64_t limit_ms) {
  for (int rank = 1; rank < group_->ranks(); ++rank) {
    TRY_ASSIGN(const std::string answer, group_->answer_of(rank, limit_ms));
    if (answer == kReady) continue;
    return Error{ErrorCode::kBadConfig, fmt::format("rank {}: {}", rank, answer)};
  }
  return {};
}

// Each rank reads its own, all at the same time; then its part of the weights stays in its memory.
Result<void> RankedModel::compare_files(const checkpoint::Checkpoint& checkpoint,
                                        const RankOptions& ranks, base::ThreadPool& pool) {
  const SameBy by = ranks.meeting ? SameBy::kBytes : SameBy::kPlace;
  TRY_ASSIGN(const RankFiles own, rank_files(checkpoint, ranks.model, by, pool));
  if (by == SameBy::kBytes) {
    // They have all been read for that; what other ranks compute with need not stay in memory.
    TRY_ASSIGN(const checkpoint::WeightRanges weights, leader_weights(checkpoint, ranks));
    checkpoint::drop_other_pages(checkpoint, checkpoint::weight_pieces(checkpoint, weights));
  }
  TRY(group_->send(to_json(own).dump()));
  int64_t bytes = 0;
  for (const base::MappedFile& file : checkpoint.files()) bytes += std::ssize(file.bytes());
  return wait_for_all(kStartLimitMs + bytes / kReadBytesPerMs);
}

Result<void> RankedModel::try_a_step() {
  const models::ForwardInput input = trial_step(footprint().kv.groups.size());
  begin(input, nullptr, nullptr);
  TRY(finish());
  TRY_ASSIGN(const std::string own, state_digest(*host_, part_.hidden().rows()));
  TRY(group_->send(writer_.compare()));
  for (int rank = 1; rank < group_->ranks(); ++rank) {
    TRY_ASSIGN(const std::string theirs, group_->answer_of(rank, kAnswerLimitMs));
    if (theirs == own) continue;
    return Error{ErrorCode::kInternal,
                 fmt::format("rank {}: its first step gave other bits than the leader's", rank)};
  }
  return {};
}

// What each has is what was planned for it.
Result<void> RankedModel::compare_bytes(const std::vector<RankBytes>& planned) {
  TRY(group_->send(writer_.bytes()));
  // Of its weights the leader's mapping is the plan's own.
  held_.push_back({.weights = planned[0].weights, .caches = host_->cache_bytes()});
  for (int rank = 1; rank < group_->ranks(); ++rank) {
    TRY_ASSIGN(const std::string said, group_->answer_of(rank, kAnswerLimitMs));
    TRY_ASSIGN(const RankBytes held, rank_bytes_of(said));
    held_.push_back(held);
  }
  for (size_t rank = 0; rank < planned.size(); ++rank) {
    if (held_[rank] == planned[rank]) continue;
    return Error{ErrorCode::kInternal,
                 fmt::format("rank {} has {} bytes of weights and caches, planned are {}", rank,
                             to_text(held_[rank]), to_text(planned[rank]))};
  }
  return {};
}

std::vector<parallel::Group::RankState> RankedModel::ranks() const {
  std::vector<parallel::Group::RankState> states = group_->states();
  for (size_t rank = 0; rank < states.size(); ++rank) {
    states[rank].weight_bytes = held_[rank].weights;
    states[rank].cache_bytes = held_[rank].caches;
    states[rank].has_whole_experts = part_.dealt_experts(0) != nullptr;
  }
  return states;
}

Result<void> RankedModel::copy_blocks(const std::vector<engine::BlockCopy>& copies) {
  TRY(group_->send(writer_.copies(copies)));
  return host_->copy_blocks(copies);
}

void RankedModel::begin(const models::ForwardInput& input, sampling::DeviceRows* draws,
                        models::HiddenTap* tap) {
  sent_ = group_->send(writer_.step(input));
  if (sent_.ok()) host_->begin(input, draws, tap);
}

Result<float*> RankedModel::finish() {
  TRY(sent_);
  if (group_->exchange().failed()) return group_->loss_of_exchange();
  return host_->finish();
}

Result<void> RankedModel::normed_rows(
    std::span<const int> rows, base::FunctionRef<void(size_t index, const float* state)> sees) {
  return host_->normed_rows(rows, sees);
}

Result<void> RankedModel::labels_of(const float* state, float* logits) {
  return host_->labels_of(state, logits);
}

Result<void> RankedModel::token_logits_of(const float* state, std::span<const TokenId> tokens,
                                          float* logits) {
  return host_->token_logits_of(state, tokens, logits);
}

Result<void> RankedModel::logits_of(
    std::span<const int> rows,
    base::FunctionRef<void(size_t first, float* logits, size_t count)> sees) {
  return host_->logits_of(rows, sees);
}

Result<std::string> state_digest(StepModel& model, int hidden) {
  std::string digest;
  const int row = 0;
  const auto see = [&](size_t, const float* state) {
    digest = base::sha256(
        {reinterpret_cast<const char*>(state), static_cast<size_t>(hidden) * sizeof(float)});
  };
  TRY(model.normed_rows(std::span(&row, 1), see));
  return digest;
}

models::ForwardInput trial_step(int groups) {
  static constexpr int32_t kBlock = 0;
  models::ForwardInput input;
  input.tokens.push_back(0);
  kv::PerGroup<const int32_t*> tables;
  tables.assign(groups, &kBlock);
  input.sequences.push_back({.start = 0, .count = 1, .tables = tables});
  return input;
}

}  // namespace pelton::executor
