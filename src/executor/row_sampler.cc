#include "executor/row_sampler.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "executor/jump_forward.h"
#include "executor/numerical_error.h"

namespace pelton::executor {
namespace {

using Source = SampledRow::Source;

// The mask that leaves a row nothing else; empty: nothing is forced, or a grammar forbids it.
std::vector<uint64_t> only_token(TokenId token, int vocab, std::span<const uint64_t> allowed) {
  if (token < 0 || token >= vocab || !grammar::may_be(allowed, token)) return {};
  std::vector<uint64_t> mask(static_cast<size_t>(vocab) / 64 + 1);
  mask[static_cast<size_t>(token) / 64] = uint64_t{1} << (token % 64);
  return mask;
}

}  // namespace

std::vector<SampledRow> RowSampler::list(const engine::StepPlan& plan, const Batch& batch,
                                         engine::StepResult& result) {
  for (const ScheduledRow& sequence : plan.sequences) {
    result.sequences.push_back({.slot = sequence.slot});
  }
  std::vector<SampledRow> rows;
  rows.reserve(batch.logit_sequences.size());
  for (const size_t i : batch.logit_sequences) {
    const auto row = static_cast<int32_t>(rows.size());
    result.sequences[i].tokens = {row, 1};
    const int32_t pending = slots_.expect_token(plan.sequences[i].slot, {plan.step, row});
    rows.push_back({.sequence = i, .pending_row = pending});
  }
  result.tokens.resize(rows.size());
  return rows;
}

void RowSampler::prepare_for_device(const engine::StepPlan& plan, std::span<SampledRow> rows,
                                    sampling::DeviceRows& device) {
  pool_.parallel_for(static_cast<int64_t>(rows.size()), 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) prepare(plan, rows[static_cast<size_t>(i)]);
  });
  device.clear(options_.sampled_vocab);
  for (SampledRow& row : rows) {
    if (row.source != Source::kLogits) {
      device.skip();
    } else if (device.add(input_of(plan, row), row.pending_row)) {
      row.source = Source::kDevice;
    }
  }
}

void RowSampler::sample(const engine::StepPlan& plan, std::span<SampledRow> rows,
                        const sampling::DeviceRows* device, float* logits,
                        engine::StepResult& result) {
  jumps_.resize(std::max(jumps_.size(), rows.size()));
  const auto sample_row = [&](size_t i, sampling::Sampler& sampler) {
    SampledRow& row = rows[i];
    if (device == nullptr) prepare(plan, row);
    if (row.source == Source::kDevice) return settle(plan, row, device->choice(i), result);
    if (row.source != Source::kLogits) return settle(plan, row, {.usable = false}, result);
    const std::span<float> its(logits + i * static_cast<size_t>(options_.vocab_size),
                               static_cast<size_t>(options_.sampled_vocab));
    settle(plan, row, sampler.sample(its, input_of(plan, row)), result);
  };
  pool_.parallel_for(static_cast<int64_t>(rows.size()), 1,
                     [&](int64_t begin, int64_t end, int worker) {
                       for (int64_t i = begin; i < end; ++i) {
                         sample_row(static_cast<size_t>(i), samplers_[static_cast<size_t>(worker)]);
                       }
                     });
  sequences_.clear();
  for (const SampledRow& row : rows) sequences_.push_back(row.sequence);
  insert_jumps(sequences_, jumps_, result);
}

void RowSampler::forget(const engine::StepPlan& plan, std::span<const SampledRow> rows) {
  for (const SampledRow& row : rows) {
    slots_.stop_expecting(plan.sequences[row.sequence].slot, plan.step);
  }
}

// What may be drawn, as far as the sequence says: known before the logits are.
void RowSampler::prepare(const engine::StepPlan& plan, SampledRow& row) {
  const ScheduledRow& sequence = plan.sequences[row.sequence];
  row.suppressed = sequence.banned.of(plan.banned);
  if (grammars_.active(sequence.slot)) constrain(row, sequence.slot, sequence.forced);
  if (row.source != Source::kLogits) return;
  row.forced = only_token(sequence.forced, options_.sampled_vocab, row.allowed);
  if (row.forced.empty()) return;
  row.allowed = row.forced;
  row.suppressed = {};
}

void RowSampler::constrain(SampledRow& row, engine::Slot slot, TokenId forced) {
  switch (grammars_.next(slot, forced)) {
    case SlotGrammars::Next::kFail:
      row.source = Source::kFailed;
      return;
    case SlotGrammars::Next::kDefer:
      row.source = Source::kDeferred;
      return;
    case SlotGrammars::Next::kHeld:
      row.source = Source::kHeld;
      return;
    case SlotGrammars::Next::kDraw:
      break;
  }
  row.allowed = grammars_.allowed(slot);
  // An end that must come comes, though it is early.
  if (!row.allowed.empty() && !row.suppressed.empty() &&
      !grammar::allows_other(row.allowed, row.suppressed)) {
    row.suppressed = {};
  }
}

sampling::DrawInput RowSampler::input_of(const engine::StepPlan& plan,
                                         const SampledRow& row) const {
  const ScheduledRow& sequence = plan.sequences[row.sequence];
  const Slot& slot = slots_[sequence.slot];
  return {.params = slot.sampling,
          .history = slot.sampling.has_penalties() ? &slot.history : nullptr,
          .banned = row.suppressed,
          .allowed = row.allowed,
          .position = sequence.start + sequence.token_count()};
}

// The sequence has its token, a deferral or an error.
void RowSampler::settle(const engine::StepPlan& plan, const SampledRow& row,
                        const sampling::SampledChoice& drawn, engine::StepResult& result) {
  const ScheduledRow& sequence = plan.sequences[row.sequence];
  const engine::Slot slot = sequence.slot;
  slots_.stop_expecting(slot, plan.step);
  engine::SequenceResult& given = result.sequences[row.sequence];
  const auto place = static_cast<size_t>(given.tokens.first);
  jumps_[place].clear();
  const auto fail = [&](Error error) {
    given.error = std::make_unique<Error>(std::move(error));
    given.tokens.count = 0;
  };
  const auto defer = [&] {
    given.deferral = grammars_.deferral(slot);
    given.tokens.count = 0;
  };
  if (row.source == Source::kFailed) return fail(grammars_.error(slot));
  if (row.source == Source::kDeferred) return defer();
  const bool is_held = row.source == Source::kHeld;
  const sampling::SampledChoice& choice = is_held ? grammars_.held(slot) : drawn;
  if (!choice.usable) return fail(numerical_error());
  const bool is_constrained = grammars_.active(slot);
  if (is_constrained && !is_held) {
    const SlotGrammars::Next next = grammars_.accept(slot, choice, jump_max(sequence));
    if (next == SlotGrammars::Next::kFail) return fail(grammars_.error(slot));
    if (next == SlotGrammars::Next::kDefer) return defer();
  }
  slots_.append(slot, choice.token);
  result.tokens[place] = {choice.token, choice.logprob, choice.top};
  if (!is_constrained) return;
  jumps_[place] = grammars_.take_forced(slot);
  slots_.append_known(sequence, jumps_[place]);
}

// Not where a token was put there, which has others behind it that the scheduler will put there;
// and whoever wants to know how likely tokens were wants them computed.
int RowSampler::jump_max(const ScheduledRow& sequence) const {
  const bool may_jump =
      sequence.forced == engine::kNotForced && slots_[sequence.slot].sampling.logprobs < 0;
  return may_jump ? std::min(options_.jump_tokens_max, engine::kJumpTokensMax) : 0;
}

}  // namespace pelton::executor
