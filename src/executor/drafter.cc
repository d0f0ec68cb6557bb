#include "executor/drafter.h"

#include <algorithm>

namespace pelton::executor {

Drafter::Drafter(speculative::Proposer* proposer, const Options& options)
    : proposer_(proposer), options_(options) {
  if (proposer == nullptr) return;
  tokens_.resize(static_cast<size_t>(options.slot_count));
  wants_logprobs_.resize(static_cast<size_t>(options.slot_count));
}

void Drafter::apply(const engine::StepPlan& plan) {
  if (proposer_ == nullptr) return;
  for (const ScheduledRow& row : plan.sequences) {
    const auto* const arrival = plan.arrival_of(row);
    if (arrival == nullptr) continue;
    std::vector<TokenId>& tokens = tokens_[static_cast<size_t>(row.slot)];
    tokens.clear();
    if (arrival->pooling) continue;  // it never samples
    wants_logprobs_[static_cast<size_t>(row.slot)] = arrival->sampling.logprobs >= 0;
    tokens = arrival->history;
    proposer_->begin({.slot = row.slot,
                      .tokens = tokens,
                      .prompt_count = arrival->prompt_count,
                      .sampling = &arrival->sampling,
                      .prediction = arrival->prediction,
                      .origin = arrival->origin});
  }
}

Drafts Drafter::draft(const engine::StepPlan& plan) {
  requests_.clear();
  if (proposer_ == nullptr) return {};
  std::vector<size_t> rows;
  for (size_t i = 0; i < plan.sequences.size(); ++i) {
    const ScheduledRow& row = plan.sequences[i];
    const std::vector<TokenId>& tokens = tokens_[static_cast<size_t>(row.slot)];
    // What was emitted with an earlier row (jump-forward decoding) the next one computes.
    const bool is_newest = row.start + row.token_count() == static_cast<int>(tokens.size());
    if (row.draft_max == 0 || !is_newest) continue;
    const bool wants_logprobs = wants_logprobs_[static_cast<size_t>(row.slot)];
    if (wants_logprobs && !options_.drafts_for_logprobs) continue;
    rows.push_back(i);
    requests_.push_back({.slot = row.slot, .tokens = tokens, .tokens_max = row.draft_max});
  }
  if (rows.empty() || !proposer_->draft(requests_).ok()) return {};
  Drafts drafts;
  drafts.rows.resize(plan.sequences.size());
  drafts.origins.resize(plan.sequences.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    const speculative::DraftRequest& request = requests_[i];
    const auto most = std::min(request.guesses.size(), static_cast<size_t>(request.tokens_max));
    const std::span<const TokenId> guesses = std::span(request.guesses).first(most);
    const auto no_token = std::find_if(guesses.begin(), guesses.end(), [&](TokenId guess) {
      return guess < 0 || guess >= options_.vocab_size;
    });
    drafts.origins[rows[i]] = {.is_predicted = request.is_predicted,
                               .part = static_cast<uint8_t>(request.part)};
    drafts.rows[rows[i]] = engine::append(
        drafts.tokens, guesses.first(static_cast<size_t>(no_token - guesses.begin())));
  }
  return drafts;
}

void Drafter::divide_time(engine::StepResult& result) const {
  if (requests_.empty()) return;  // nobody was asked
  result.catch_up_ns = proposer_->catch_up_ns();
  const std::span<const int64_t> parts = proposer_->part_ns();
  if (parts.empty()) {
    result.proposer_ns[0] = result.draft_ns;
  } else {
    std::ranges::copy(parts.first(std::min(parts.size(), result.proposer_ns.size())),
                      result.proposer_ns.begin());
  }
}

void Drafter::append(const engine::StepResult& result) {
  if (proposer_ == nullptr) return;
  for (const engine::SequenceResult& sequence : result.sequences) {
    if (sequence.tokens.count == 0) continue;
    std::vector<TokenId>& tokens = tokens_[static_cast<size_t>(sequence.slot)];
    const size_t before = tokens.size();
    for (const engine::SampledToken& token : sequence.tokens.of(result.tokens)) {
      tokens.push_back(token.token);
    }
    proposer_->append(sequence.slot, tokens, before);
  }
}

void Drafter::see_rejected(const engine::StepPlan& plan, std::span<const SampledRow> rows) {
  for (const SampledRow& row : rows) {
    if (row.rejected.empty()) continue;
    const ScheduledRow& sequence = plan.sequences[row.sequence];
    const auto first_wrong = static_cast<size_t>(row.guessed);
    const auto behind = static_cast<size_t>(sequence.start + sequence.token_count());
    proposer_->see_rejected({.slot = sequence.slot,
                             .position = behind + first_wrong + 1,
                             .guesses = row.guesses.subspan(first_wrong, row.rejected.size()),
                             .drawn = row.rejected});
  }
}

// A boundary k of the proposer's is the residual stream behind k layers: index 2 k of a tap.
void Drafter::see(int index, const float* x, int rows) {
  const std::span<const int> taps = proposer_->taps();
  for (size_t tap = 0; tap < taps.size(); ++tap) {
    if (index == 2 * taps[tap]) proposer_->see(tap, x, rows);
  }
}

// Example: token 9 at position 4 is known, the guesses 7 8 stand behind it, 7 and 5 were emitted:
// of the rows 4 to 6 two had the sequence's own input, and both have a token behind them.
void Drafter::observe(const engine::StepPlan& plan, const Drafts& drafts) {
  if (!has_taps()) return;
  computed_.clear();
  const std::vector<int> first = first_rows(plan, drafts);
  for (size_t i = 0; i < plan.sequences.size(); ++i) {
    const ScheduledRow& row = plan.sequences[i];
    const std::span<const TokenId> guesses = drafts.of(i);
    const std::vector<TokenId>& tokens = tokens_[static_cast<size_t>(row.slot)];
    const auto known = static_cast<int>(tokens.size());
    int count = row.token_count();
    for (const TokenId guess : guesses) {
      const int position = row.start + count;
      if (position >= known || tokens[static_cast<size_t>(position)] != guess) break;
      ++count;
    }
    count = std::min(count, known - 1 - row.start);
    if (count > 0) {
      computed_.push_back({.slot = row.slot,
                           .first_row = first[i],
                           .start = row.start,
                           .count = count,
                           .tokens = tokens});
    }
  }
  proposer_->observe(computed_);
}

}  // namespace pelton::executor
