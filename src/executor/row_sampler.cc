#include "executor/row_sampler.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "executor/further_tokens.h"
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

// Of the token that is to be drawn.
int position_of(const ScheduledRow& sequence, const SampledRow& row) {
  return sequence.start + sequence.token_count() + row.given;
}

}  // namespace

std::vector<SampledRow> RowSampler::list(const engine::StepPlan& plan, const Batch& batch,
                                         const Drafts& drafts, engine::StepResult& result) {
  for (const ScheduledRow& sequence : plan.sequences) {
    result.sequences.push_back({.slot = sequence.slot});
  }
  std::vector<SampledRow> rows;
  rows.reserve(batch.logit_sequences.size());
  for (size_t logits = 0; logits < batch.logit_sequences.size();) {
    const size_t i = batch.logit_sequences[logits];
    const auto first_logits = static_cast<int32_t>(logits);
    result.sequences[i].tokens = {static_cast<int32_t>(rows.size()), 1};
    const int32_t pending = slots_.expect_token(plan.sequences[i].slot, {plan.step, first_logits});
    rows.push_back({.sequence = i,
                    .pending_row = pending,
                    .first_logits = first_logits,
                    .guesses = drafts.of(i)});
    result.sequences[i].drafted = static_cast<int32_t>(rows.back().guesses.size());
    if (!drafts.origins.empty()) {
      result.sequences[i].from_prediction = drafts.origins[i].is_predicted;
      result.sequences[i].proposer = drafts.origins[i].part;
    }
    logits += 1 + rows.back().guesses.size();
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
    // What is drawn behind a guess depends on what was drawn before it: those rows are the host's.
    if (row.source != Source::kLogits || !row.guesses.empty()) {
      for (size_t i = 0; i <= row.guesses.size(); ++i) device.skip();
    } else if (device.add(input_of(plan, row), row.pending_row)) {
      row.source = Source::kDevice;
    }
  }
}

void RowSampler::sample(const engine::StepPlan& plan, std::span<SampledRow> rows,
                        const sampling::DeviceRows* device, float* logits,
                        engine::StepResult& result) {
  further_.resize(std::max(further_.size(), rows.size()));
  pool_.parallel_for(
      static_cast<int64_t>(rows.size()), 1, [&](int64_t begin, int64_t end, int worker) {
        for (int64_t i = begin; i < end; ++i) {
          SampledRow& row = rows[static_cast<size_t>(i)];
          if (device == nullptr) prepare(plan, row);
          slots_.stop_expecting(plan.sequences[row.sequence].slot, plan.step);
          if (row.source == Source::kDevice) {
            settle(plan, row, device->choice(static_cast<size_t>(row.first_logits)), result);
          } else {
            sample_row(plan, row, logits, samplers_[static_cast<size_t>(worker)], result);
          }
        }
      });
  sequences_.clear();
  for (const SampledRow& row : rows) sequences_.push_back(row.sequence);
  insert_further(sequences_, further_, result);
}

// `row` is prepared for its first token.
void RowSampler::sample_row(const engine::StepPlan& plan, SampledRow& row, float* logits,
                            sampling::Sampler& sampler, engine::StepResult& result) {
  const auto vocab = static_cast<size_t>(options_.vocab_size);
  while (true) {
    bool goes_on = false;
    if (row.source == Source::kLogits) {
      const auto at = static_cast<size_t>(row.first_logits + row.given);
      const std::span<float> its(logits + at * vocab, static_cast<size_t>(options_.sampled_vocab));
      goes_on = settle(plan, row, sampler.sample(its, input_of(plan, row)), result);
    } else {
      goes_on = settle(plan, row, {.usable = false}, result);
    }
    if (!goes_on) break;
    row.source = Source::kLogits;
    row.allowed = {};
    prepare(plan, row);
  }
  if (options_.draws_rejected && row.guessed < row.given) draw_rejected(plan, row, logits, sampler);
}

// As at other rows, less what knows the tokens before, which are no longer the sequence's: its
// grammar and its bans. A draw that fails ends them: nobody is owed any.
void RowSampler::draw_rejected(const engine::StepPlan& plan, SampledRow& row, float* logits,
                               sampling::Sampler& sampler) {
  const ScheduledRow& sequence = plan.sequences[row.sequence];
  request::SamplingParams params = slots_[sequence.slot].sampling;
  params.logprobs = -1;
  params.logprob_tokens.clear();
  const auto vocab = static_cast<size_t>(options_.vocab_size);
  const auto first_wrong = static_cast<size_t>(row.guessed);
  for (size_t behind = first_wrong + 1; behind <= row.guesses.size(); ++behind) {
    const size_t at = static_cast<size_t>(row.first_logits) + behind;
    const sampling::SampledChoice choice = sampler.sample(
        {logits + at * vocab, static_cast<size_t>(options_.sampled_vocab)},
        {.params = params,
         .history = params.reads_history() ? &slots_[sequence.slot].history : nullptr,
         .position = sequence.start + sequence.token_count() + int(behind),
         .mirostat_bound = slots_[sequence.slot].mirostat_bound});
    if (!choice.usable) break;
    row.rejected.push_back(choice.token);
  }
}

void RowSampler::forget(const engine::StepPlan& plan, std::span<const SampledRow> rows) {
  for (const SampledRow& row : rows) {
    slots_.stop_expecting(plan.sequences[row.sequence].slot, plan.step);
  }
}

// What may be drawn, as far as the sequence says: known before the logits are.
void RowSampler::prepare(const engine::StepPlan& plan, SampledRow& row) {
  const ScheduledRow& sequence = plan.sequences[row.sequence];
  const bool suppresses = position_of(sequence, row) < sequence.banned_end;
  row.suppressed = suppresses ? sequence.banned.of(plan.banned) : std::span<const TokenId>();
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
          .history = slot.sampling.reads_history() ? &slot.history : nullptr,
          .banned = row.suppressed,
          .allowed = row.allowed,
          .position = position_of(sequence, row),
          .mirostat_bound = slot.mirostat_bound};
}

// The sequence has its token, a deferral or an error. Whether the next row of logits counts, too.
bool RowSampler::settle(const engine::StepPlan& plan, SampledRow& row,
                        const sampling::SampledChoice& drawn, engine::StepResult& result) {
  const ScheduledRow& sequence = plan.sequences[row.sequence];
  const engine::Slot slot = sequence.slot;
  if (row.source == Source::kFailed) return refuse(plan, row, grammars_.error(slot), result);
  if (row.source == Source::kDeferred) return refuse(plan, row, std::nullopt, result);
  const bool is_held = row.source == Source::kHeld;
  const sampling::SampledChoice& choice = is_held ? grammars_.held(slot) : drawn;
  if (!choice.usable) return refuse(plan, row, numerical_error(), result);
  const bool is_constrained = grammars_.active(slot);
  if (is_constrained && !is_held) {
    const SlotGrammars::Next next = grammars_.accept(slot, choice, jump_max(sequence));
    if (next == SlotGrammars::Next::kFail) return refuse(plan, row, grammars_.error(slot), result);
    if (next == SlotGrammars::Next::kDefer) return refuse(plan, row, std::nullopt, result);
  }
  const float surprise = row.forced.empty() ? choice.surprise : -1.0f;
  slots_.append(slot, choice.token, surprise);
  give(row, {choice.token, choice.logprob, choice.top, surprise}, result);
  if (is_constrained) {
    const std::vector<TokenId> forced = grammars_.take_forced(slot);
    slots_.append_known(sequence, row.given, forced);
    for (const TokenId token : forced) give(row, {.token = token}, result);
    if (grammars_.over(slot)) return false;
  }
  return row.guessed == row.given;
}

// No token from this row of logits: an error, or a deferral. Where an earlier one gave some, the
// next step begins with this one, and says so then.
bool RowSampler::refuse(const engine::StepPlan& plan, const SampledRow& row,
                        std::optional<Error> error, engine::StepResult& result) {
  if (row.given > 0) return false;
  engine::SequenceResult& given = result.sequences[row.sequence];
  given.tokens.count = 0;
  if (error) {
    given.error = std::make_unique<Error>(*std::move(error));
  } else {
    given.deferral = grammars_.deferral(plan.sequences[row.sequence].slot);
  }
  return false;
}

void RowSampler::give(SampledRow& row, engine::SampledToken token, engine::StepResult& result) {
  engine::SequenceResult& sequence = result.sequences[row.sequence];
  const auto place = static_cast<size_t>(sequence.tokens.first);
  const auto next = static_cast<size_t>(row.given);
  const bool is_guess =
      row.guessed == row.given && next < row.guesses.size() && row.guesses[next] == token.token;
  if (is_guess) ++row.guessed;
  if (row.given++ == 0) {
    result.tokens[place] = std::move(token);
  } else {
    further_[place].push_back(std::move(token));
  }
  // Should the last row of logits give nothing, it is computed again.
  sequence.accepted = std::min(row.guessed, row.given - 1);
}

// Not where a token was put there, which has others behind it that the scheduler will put there;
// and whoever wants to know how likely tokens were wants them computed.
int RowSampler::jump_max(const ScheduledRow& sequence) const {
  const bool may_jump =
      sequence.forced == engine::kNotForced && slots_[sequence.slot].sampling.logprobs < 0;
  return may_jump ? std::min(options_.jump_tokens_max, engine::kJumpTokensMax) : 0;
}

}  // namespace pelton::executor
