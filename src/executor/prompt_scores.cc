#include "executor/prompt_scores.h"

#include <utility>

#include "executor/numerical_error.h"

namespace pelton::executor {
namespace {

struct Target {
  size_t sequence;  // index in the plan
  TokenId token;
};

struct Targets {
  std::vector<int> rows;  // of the step: the ones whose logits say how likely the targets are
  std::vector<Target> targets;
};

// And each sequence's part of the result.
Targets list_targets(const engine::StepPlan& plan, std::span<const int> first_rows,
                     engine::StepResult& result) {
  Targets list;
  for (size_t i = 0; i < plan.sequences.size(); ++i) {
    const ScheduledRow& row = plan.sequences[i];
    result.sequences[i].scored = {static_cast<int32_t>(list.rows.size()), row.targets.count};
    int at = first_rows[i];
    for (const TokenId token : row.targets.of(plan.tokens)) {
      list.rows.push_back(at++);
      list.targets.push_back({.sequence = i, .token = token});
    }
  }
  return list;
}

}  // namespace

void score_prompts(const engine::StepPlan& plan, const ScoreContext& context,
                   engine::StepResult& result) {
  const auto [rows, targets] = list_targets(plan, context.first_rows, result);
  if (rows.empty()) return;
  const auto vocab = static_cast<size_t>(context.vocab_size);
  const auto sampled = static_cast<size_t>(context.sampled_vocab);
  result.prompt_tokens.resize(rows.size());
  std::vector<char> broken(rows.size(), 0);
  const auto score = [&, &targets = targets](size_t first, float* logits, size_t count) {
    context.pool.parallel_for(
        static_cast<int64_t>(count), 1, [&](int64_t begin, int64_t end, int worker) {
          sampling::Sampler& sampler = context.samplers[static_cast<size_t>(worker)];
          for (int64_t i = begin; i < end; ++i) {
            const size_t at = first + static_cast<size_t>(i);
            const Target& target = targets[at];
            const Slot& slot = context.slots[plan.sequences[target.sequence].slot];
            sampling::ScoredChoice scored =
                sampler.score({logits + static_cast<size_t>(i) * vocab, sampled}, target.token,
                              slot.sampling.prompt_logprobs);
            broken[at] = scored.choice.usable ? 0 : 1;
            result.prompt_tokens[at] = {
                {target.token, scored.choice.logprob, std::move(scored.choice.top)}, scored.rank};
          }
        });
  };
  const Result<void> computed = context.model.logits_of(rows, score);
  for (size_t at = 0; at < targets.size(); ++at) {
    engine::SequenceResult& given = result.sequences[targets[at].sequence];
    if ((computed.ok() && broken[at] == 0) || given.error) continue;
    given.error = std::make_unique<Error>(computed.ok() ? numerical_error() : computed.error());
    given.tokens.count = 0;
  }
}

}  // namespace pelton::executor
