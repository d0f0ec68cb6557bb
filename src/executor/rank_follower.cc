#include "executor/rank_follower.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "base/machine.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/residency.h"
#include "executor/host_model.h"
#include "executor/rank_bytes.h"
#include "executor/rank_files.h"
#include "executor/rank_job.h"
#include "executor/rank_step.h"
#include "executor/ranked_model.h"
#include "layers/rank_part.h"
#include "layers/rank_weights.h"

namespace pelton::executor {
namespace {

// All that a follower has.
struct Loaded {
  explicit Loaded(checkpoint::Checkpoint opened, int threads)
      : checkpoint(std::move(opened)), pool({.threads = threads}) {}

  checkpoint::Checkpoint checkpoint;
  base::ThreadPool pool;
  std::optional<layers::RankPart> part;
  checkpoint::WeightRanges weights;  // its part of them
  std::unique_ptr<StepModel> model;
  std::shared_ptr<const void> watch;  // of its weights
};

// What is this rank's own where somebody else has started it.
Result<RankJob> own_job(RankJob job, const FollowerOptions& options) {
  if (options.is_own()) return job;
  TRY(check_facts(job.facts, options.facts));
  job.model = options.model;
  job.threads = options.threads > 0
                    ? options.threads
                    : static_cast<int>(std::max<size_t>(options.processors.size(), 1));
  return job;
}

Result<std::unique_ptr<Loaded>> load_part(parallel::Member& member, const RankJob& job) {
  TRY_ASSIGN(checkpoint::Checkpoint checkpoint, checkpoint::Checkpoint::open(job.model));
  const auto own_threads = static_cast<int>(std::max<size_t>(member.processors().size(), 1));
  auto loaded =
      std::make_unique<Loaded>(std::move(checkpoint), job.threads > 0 ? job.threads : own_threads);
  TRY_ASSIGN(const kernels::KernelChoice choice, kernels::parse_kernel_choice(job.kernels));
  TRY_ASSIGN(const std::string kernels_name, usable_kernels(choice, loaded->pool));
  TRY(check_facts({{"kernels", job.kernels_name}}, {{"kernels", kernels_name}}));
  if (static_cast<int>(job.weights.size()) != member.ranks()) {
    return Error{ErrorCode::kBadConfig, "the job's shares are not as many as there are ranks"};
  }
  TRY_ASSIGN(loaded->part, layers::RankPart::make(loaded->checkpoint, member.exchange(),
                                                  job.weights, job.experts));
  TRY_ASSIGN(loaded->weights,
             layers::rank_weights(loaded->checkpoint, member.rank(), job.weights, job.experts));
  cost_model::Footprint footprint;
  footprint.kv = job.kv;
  footprint.swap = job.swap;
  TRY_ASSIGN(loaded->model, HostModel::load(loaded->checkpoint,
                                            {.kernels = choice,
                                             .batch_tokens_max = job.batch_tokens_max,
                                             .logit_rows_max = job.logit_rows_max,
                                             .part = &*loaded->part},
                                            footprint, loaded->pool));
  return loaded;
}

// The leader has read its files by then, and says what they are.
Result<void> check_files(parallel::Member& member, const RankJob& job, SameBy by, Loaded& loaded) {
  TRY_ASSIGN(const RankFiles own, rank_files(loaded.checkpoint, job.model, by, loaded.pool));
  TRY_ASSIGN(const std::optional<std::string> said, member.next());
  if (!said) return Error{ErrorCode::kUnavailable, "the group has ended before it began"};
  TRY_ASSIGN(const RankFiles leaders, rank_files_of(*said));
  return check_facts(leaders, own);
}

// Once its files are the leader's. What they hold for others need not stay in its memory.
Result<void> read_part(const RankJob& job, Loaded& loaded) {
  const checkpoint::WeightPieces pieces =
      checkpoint::weight_pieces(loaded.checkpoint, loaded.weights);
  if (job.load_mode == checkpoint::LoadMode::kLock) base::raise_lock_limit();
  const auto go_on = [](int64_t, int64_t) { return true; };
  const checkpoint::LoadChoice choice{.mode = job.load_mode, .ahead = job.reads_ahead};
  TRY(checkpoint::read_weights(pieces, choice, go_on));
  checkpoint::drop_other_pages(loaded.checkpoint, pieces);
  return {};
}

// What it answers ends with "ready", or with why not.
Result<void> answer_for(parallel::Member& member, const Result<void>& done) {
  if (done.ok()) return member.answer(kReady);
  TRY(member.answer(done.error().message));
  TRY(member.next());  // the leader has read it, and ends the group
  return done.error();
}

RankStepReader::Limits limits_of(const RankJob& job, const families::ModelConfig& config) {
  RankStepReader::Limits limits{.tokens = job.batch_tokens_max,
                                .logit_rows = job.logit_rows_max,
                                .block_tokens = job.kv.block_tokens,
                                .vocab = config.vocab_size};
  for (const cost_model::KvAllocated::Group& group : job.kv.groups) {
    limits.blocks.push_back(group.block_count);
  }
  return limits;
}

Result<void> compute(parallel::Member& member, const RankJob& job, Loaded& loaded) {
  const families::ModelConfig& config = loaded.checkpoint.config();
  const base::ThreadPool::PinnedCaller pinned = loaded.pool.adopt_caller();
  RankStepReader reader(limits_of(job, config));
  while (true) {
    TRY_ASSIGN(const std::optional<std::string> bytes, member.next());
    if (!bytes) return {};
    TRY_ASSIGN(const RankMessage message, reader.read(*bytes));
    switch (message) {
      case RankMessage::kStep:
        loaded.model->begin(reader.step(), nullptr, nullptr);
        TRY(member.check_exchange());
        break;
      case RankMessage::kCopies:
        TRY(loaded.model->copy_blocks(reader.copies()));
        break;
      case RankMessage::kBytes:
        TRY(member.answer(to_text({.weights = checkpoint::range_bytes(loaded.weights),
                                   .caches = loaded.model->cache_bytes()})));
        break;
      case RankMessage::kCompare: {
        TRY_ASSIGN(const std::string digest, state_digest(*loaded.model, config.hidden_size));
        TRY(member.answer(digest));
        break;
      }
    }
  }
}

}  // namespace

Result<void> follow(parallel::Member& member, const FollowerOptions& options) {
  Result<RankJob> job = RankJob::from_json(member.job());
  if (job.ok()) job = own_job(*job, options);
  Result<std::unique_ptr<Loaded>> loaded =
      job.ok() ? load_part(member, *job) : Result<std::unique_ptr<Loaded>>(job.error());
  TRY(answer_for(member, loaded.ok() ? Result<void>() : loaded.error()));
  const SameBy by = options.is_own() ? SameBy::kPlace : SameBy::kBytes;
  Result<void> read = check_files(member, *job, by, **loaded);
  if (read.ok()) read = read_part(*job, **loaded);
  TRY(answer_for(member, read));
  if (options.watch) (*loaded)->watch = options.watch((*loaded)->weights, job->scrub_period_ns);
  return compute(member, *job, **loaded);
}

Result<std::string> usable_kernels(kernels::KernelChoice choice, base::ThreadPool& pool) {
  TRY_ASSIGN(const auto kernels, kernels::make_kernels(choice, pool));
  if (kernels->name() != "reference") return std::string(kernels->name());
  return Error{
      ErrorCode::kUnsupported,
      "--tensor-parallel-size: the reference kernels compute in one process: use --kernels "
      "auto",
      "kernels"};
}

}  // namespace pelton::executor
