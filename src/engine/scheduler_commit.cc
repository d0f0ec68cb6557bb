// What becomes of sequences when a step is over, and how they end.
#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/result.h"
#include "engine/scheduler.h"

namespace pelton::engine {

namespace {

// Output tokens that go to a tenant's account at a time.
constexpr int kChargedTogether = 16;

// Whether its output ends with some pattern, `count` times in a row. Nearly always the last token
// is not that of one pattern before, and that is all that is looked at.
bool repeats_itself(const Sequence& sequence) {
  const request::RepetitionRule& rule = sequence.request.stop.repetition;
  if (rule.pattern_max == 0 || sequence.output_count() <= sequence.request.stop.min_new_tokens) {
    return false;
  }
  const std::span<const TokenId> output =
      std::span(sequence.tokens).subspan(static_cast<size_t>(sequence.prompt_count));
  for (int size = rule.pattern_min; size <= rule.pattern_max; ++size) {
    const auto pattern = static_cast<size_t>(size);
    const size_t whole = pattern * static_cast<size_t>(rule.count);
    if (output.size() < whole) return false;
    const std::span<const TokenId> end = output.last(whole);
    if (std::equal(end.rbegin(), end.rend() - static_cast<std::ptrdiff_t>(pattern),
                   end.rbegin() + static_cast<std::ptrdiff_t>(pattern))) {
      return true;
    }
  }
  return false;
}

// A client's error: the adapter is what it asks for, and others are answered.
Error adapter_error() {
  return {ErrorCode::kUnsupported,
          "the LoRA adapter computed NaN or infinity for this request: its weights are too large, "
          "or made for another model",
          "model"};
}

// Whether the error is that of weights of the model's. Under an adapter they are not blamed: whose
// doing it is the model's own requests show.
bool attribute(const Sequence& sequence, Error& error) {
  if (error.code != ErrorCode::kBadCheckpoint) return false;
  if (sequence.request.adapter.identity == 0) return true;
  error = adapter_error();
  return false;
}

}  // namespace

void Scheduler::commit(StepResult result) {
  CHECK(!uncommitted_.empty(), "a result without a step");
  const UncommittedStep step = std::move(uncommitted_.front());
  uncommitted_.pop_front();
  CHECK(step.step == result.step, "results out of order");
  if (result.error) {
    for (const PlannedRow& row : step.rows) {
      --row.sequence->in_flight;
      if (row.draft_max > 0) row.sequence->draft_max = 0;
      if (row.sampled) land_sample(*row.sequence);
      if (row.sequence->stage == Sequence::Stage::kEnded) {
        forget_if_landed(*row.sequence);
      } else {
        end(*row.sequence, FinishReason::kError, result.error);
      }
    }
  } else {
    CHECK(result.sequences.size() == step.rows.size(), "a result without some of its rows");
    disk_.note_computed(step.prompt_tokens, result.elapsed_ns);
    peer_tier_.note_computed(step.prompt_tokens, result.elapsed_ns);
    for (size_t i = 0; i < step.rows.size(); ++i) commit_row(step.rows[i], i, result);
    if (capacity_.draft_tokens_max > 0 && !step.has_prompts) {
      int rows = step.decode_tokens;
      for (const SequenceResult& sequence : result.sequences) rows += sequence.drafted;
      int longest = 0;
      for (const PlannedRow& row : step.rows) longest = std::max(longest, row.draft_max);
      draft_controller_.note_step(
          {.rows = rows,
           .longest_draft = longest,
           .elapsed_ns = result.compute_ns > 0 ? result.compute_ns : result.elapsed_ns,
           .draft_ns = result.draft_ns,
           .catch_up_ns = result.catch_up_ns,
           .proposer_ns = result.proposer_ns});
      draft_controller_.note_beside(longest > 0, result.beside_ns);
      counters_.decode_rows += step.decode_tokens;
      counters_.decode_ns += result.elapsed_ns;
      counters_.draft_ns += result.draft_ns;
      for (size_t i = 0; i < kProposersMax; ++i) {
        counters_.by_proposer[i].draft_ns += result.proposer_ns[i];
      }
    }
  }
  for (Sequence* sequence : step.swapped_out) commit_swap(*sequence, result.error.has_value());
  for (const Offload& offload : step.offloads) commit_offload(offload, result.error.has_value());
}

// Whether the row's token was not known before.
bool Scheduler::land_sample(Sequence& sequence) {
  int& count = sequence.emitted > 0 ? sequence.emitted : sequence.pending;
  const bool is_news = sequence.emitted == 0;
  --count;
  return is_news;
}

// Numbers in what is made of a pooled sequence.
int Scheduler::vector_size(const Sequence& sequence) const {
  switch (*sequence.request.pooling) {
    case request::Pooling::kAll:
      return capacity_.embedding_size * sequence.prompt_count;
    case request::Pooling::kLabels:
      return capacity_.label_count;
    case request::Pooling::kTokens:
      return static_cast<int>(sequence.request.label_tokens.size());
    case request::Pooling::kWeights:
      return sequence.prompt_count;
    default:
      return capacity_.embedding_size;
  }
}

void Scheduler::commit_row(const PlannedRow& row, size_t index, StepResult& step) {
  Sequence& sequence = *row.sequence;
  SequenceResult& result = step.sequences[index];
  --sequence.in_flight;
  if (row.draft_max > 0) {
    sequence.draft_max = 0;
    CHECK(result.proposer < kProposersMax);
    draft_controller_.note_draft(sequence.draft_history, {.granted = row.draft_max,
                                                          .drafted = result.drafted,
                                                          .accepted = result.accepted,
                                                          .proposer = result.proposer});
  }
  const bool is_news = row.sampled && land_sample(sequence);
  const bool answers = is_news && !result.error && !result.deferral;
  const bool samples = answers && !sequence.pooled();
  const int floats = answers && sequence.pooled() ? vector_size(sequence) : 0;
  CHECK(samples ? result.tokens.count >= 1 : result.tokens.count == 0,
        "a token for each row that samples");
  CHECK(result.accepted <= result.drafted && result.drafted <= row.draft_max,
        "more guesses than a row may have");
  CHECK(result.tokens.count <= 1 + result.accepted + kJumpTokensMax,
        "more tokens than a row may emit");
  CHECK(result.embedding.count == floats, "one vector for each row that embeds");
  CHECK(result.error || result.scored.count == row.targets, "a score for each target");
  if (result.tokens.count > 1 && sequence.pending > 0) {
    // The row under way was planned for a token that is known now.
    CHECK(sequence.pending == 1 && sequence.emitted == 0);
    std::swap(sequence.pending, sequence.emitted);
  }
  const bool is_running = sequence.stage == Sequence::Stage::kRunning;
  // What a sequence that made room meanwhile had computed behind its row's end is lost.
  const int accepted = is_running ? result.accepted : 0;
  if (is_running && row.draft_max > 0) return_draft_blocks(sequence, accepted);
  if (sequence.stage == Sequence::Stage::kEnded) {
    forget_if_landed(sequence);  // it ended after this step was submitted
  } else if (result.error) {
    counters_.numerical_errors += attribute(sequence, *result.error) ? 1 : 0;
    end(sequence, FinishReason::kError, std::move(*result.error));
  } else if (result.deferral) {
    if (row.targets > 0 && !sequence.deferral) {
      const auto first = static_cast<size_t>(result.scored.first);
      take_scores(sequence, row,
                  std::span(step.prompt_tokens).subspan(first, static_cast<size_t>(row.targets)));
    }
    defer(row, std::move(result.deferral));
  } else {
    // What a sequence that was swapped out has settled gets its names when the copies are there;
    // one that was preempted otherwise holds nothing that could be settled.
    if (is_running) settle(sequence, row.end);
    if (sequence.swapped_out()) sequence.settled = row.end;
    if (row.targets > 0) {
      const auto first = static_cast<size_t>(result.scored.first);
      take_scores(sequence, row,
                  std::span(step.prompt_tokens).subspan(first, static_cast<size_t>(row.targets)));
    }
    if (samples) {
      sequence.jumped = result.tokens.count - 1 - accepted;
      accept(sequence,
             std::span(step.tokens)
                 .subspan(static_cast<size_t>(result.tokens.first),
                          static_cast<size_t>(result.tokens.count)),
             result, accepted);
    } else if (answers) {
      const std::span<const float> embedding = result.embedding.of(step.floats);
      end(sequence, FinishReason::kEmbedded, std::nullopt);
      events_.back().end->embedding.assign(embedding.begin(), embedding.end());
    }
  }
}

// The row counts as not sampled: its last position is computed once more when it is planned again.
// A row behind it, in flight already, was for a token that nobody knows.
void Scheduler::defer(const PlannedRow& row, std::shared_ptr<const Deferral> deferral) {
  Sequence& sequence = *row.sequence;
  CHECK(row.sampled && sequence.request.guide, "a row was deferred without a guide");
  const bool is_void = sequence.deferral != nullptr;
  if (row.forced != kNotForced) take_back_forced(sequence, row.forced);
  sequence.computed = std::min(sequence.computed, row.end - 1);
  if (sequence.stage != Sequence::Stage::kRunning) return;  // it will be computed anew
  if (!is_void && row.end - 1 > sequence.settled) settle(sequence, row.end - 1);
  sequence.deferral = std::move(deferral);
}

// A row that is void was to sample `token`, which is forced all the same.
void Scheduler::take_back_forced(Sequence& sequence, TokenId token) {
  if (sequence.forced > 0) {
    --sequence.forced;
  } else if (sequence.token_constraints != nullptr) {
    sequence.token_constraints->tokens.push_back(token);  // the row before was void too
  } else {
    sequence.token_constraints =
        std::make_unique<TokenConstraints>(TokenConstraints{.tokens = {token},
                                                            .position = sequence.output_count(),
                                                            .unless = {},
                                                            .since = sequence.output_count()});
  }
}

// Once that is over, no longer.
bool Scheduler::is_deferred(Sequence& sequence) {
  if (sequence.deferral == nullptr) return false;
  if (sequence.in_flight > 0 || !sequence.deferral->is_over.load(std::memory_order_acquire)) {
    return true;
  }
  sequence.deferral = nullptr;
  return false;
}

bool Scheduler::any_deferred() const {
  return std::any_of(running_.begin(), running_.end(),
                     [](const Sequence* sequence) { return sequence->deferral != nullptr; });
}

// Those that are new: what was computed a second time says the same again.
void Scheduler::take_scores(Sequence& sequence, const PlannedRow& row,
                            std::span<PromptToken> scored) {
  const int first = row.target_begin;
  const int known = static_cast<int>(sequence.scored.size());
  CHECK(first <= known, "a prompt token that nobody has scored");
  for (size_t i = static_cast<size_t>(known - first); i < scored.size(); ++i) {
    sequence.scored.push_back(std::move(scored[i]));
  }
}

void Scheduler::count_draft(Sequence& sequence, const SequenceResult& result) {
  sequence.drafted += result.drafted;
  if (sequence.drafts.empty()) sequence.drafts.resize(1);
  ++sequence.drafts[0];
  if (result.from_prediction) sequence.predicted += result.drafted;
  ++counters_.drafts;
  counters_.draft_tokens += result.drafted;
  SchedulerCounters::Proposed& proposed = counters_.by_proposer[result.proposer];
  ++proposed.drafts;
  proposed.draft_tokens += result.drafted;
}

// The guess at `place` of its row was right and one more token is emitted for it: guesses behind an
// answer's end brought nothing.
void Scheduler::count_accepted(Sequence& sequence, const SequenceResult& result, size_t place) {
  ++sequence.accepted;
  if (sequence.drafts.size() <= place + 1) sequence.drafts.resize(place + 2);
  --sequence.drafts[place];
  ++sequence.drafts[place + 1];
  if (result.from_prediction) ++sequence.predicted_accepted;
  ++counters_.accepted_tokens;
  ++counters_.by_proposer[result.proposer].accepted_tokens;
  ++counters_.accepted_by_place[std::min(place, SchedulerCounters::kDraftPlaces - 1)];
}

// Those that no kept token lies in: the next step may have another use for them.
void Scheduler::return_draft_blocks(Sequence& sequence, int accepted) {
  for (int group = 0; group < sequence.tables.size(); ++group) {
    kv::BlockTable& table = sequence.tables[group];
    Sequence::SentTable& sent = sequence.sent_tables[group];
    table.shrink(sequence.computed + accepted);
    const auto entries = static_cast<int>(table.blocks().size());
    if (entries >= sent.entries) continue;
    sent.entries = entries;
    sent.cut = true;
  }
}

// The first `accepted` of them were computed with the row, as guesses: each counts as computed once
// it is known, so that whatever ends the sequence cuts the rest.
void Scheduler::accept(Sequence& sequence, std::span<SampledToken> sampled,
                       const SequenceResult& result, int kept) {
  if (result.drafted > 0) count_draft(sequence, result);
  for (size_t i = 0; i < sampled.size(); ++i) {
    const int behind = static_cast<int>(i);
    if (i > 0 && behind <= result.accepted) count_accepted(sequence, result, i - 1);
    if (i > 0 && behind <= kept) settle(sequence, ++sequence.computed);
    if (!accept(sequence, std::move(sampled[i]))) return;
  }
}

// False: it has ended, and may be gone.
bool Scheduler::accept(Sequence& sequence, SampledToken sampled) {
  const TokenId token = sampled.token;
  sequence.tokens.push_back(token);
  sequence.mirostat_bound =
      sequence.request.sampling.mirostat.next_bound(sequence.mirostat_bound, sampled.surprise);
  events_.push_back({.id = sequence.id, .token = std::move(sampled)});
  if (sequence.request.sampling.prompt_logprobs >= 0 && sequence.output_count() == 1) {
    CHECK(static_cast<int>(sequence.scored.size()) == sequence.prompt_count - 1,
          "a first token before the prompt's scores");
    events_.back().prompt =
        std::make_unique<std::vector<PromptToken>>(std::exchange(sequence.scored, {}));
  }
  if (sequence.request.tells_found && sequence.output_count() == 1) {
    events_.back().found =
        std::make_unique<PromptFound>(PromptFound{.cached_tokens = sequence.cached,
                                                  .by_tier = sequence.cached_by_tier,
                                                  .from_peer = sequence.cached_from_peer});
  }
  if (++sequence.uncharged >= kChargedTogether) charge_output(sequence);
  if (sequence.request.quota) count_quota(sequence, token);
  const bool pins = sequence.request.pin_prefix && options_.prefix_cache;
  if (pins && sequence.output_count() == 1) pin(sequence);

  const std::optional<FinishReason> reason = finish_of(sequence);
  if (reason) end(sequence, *reason, std::nullopt);
  return !reason;
}

// Why its last token, which is of its output, ends it; nothing: it goes on.
std::optional<FinishReason> Scheduler::finish_of(const Sequence& sequence) {
  const request::StopRule& stop = sequence.request.stop;
  const bool is_stop_token = std::find(stop.stop_tokens.begin(), stop.stop_tokens.end(),
                                       sequence.tokens.back()) != stop.stop_tokens.end();
  // An early one was banned: if it came all the same, its grammar leaves nothing else.
  const bool may_stop = sequence.output_count() > stop.min_new_tokens || sequence.request.guide;
  if (is_stop_token && may_stop) return FinishReason::kStop;
  if (sequence.output_count() >= sequence.output_max) return FinishReason::kLength;
  if (repeats_itself(sequence)) return FinishReason::kRepetition;
  return std::nullopt;
}

// As soon as a slice begins it is known where it must end at the latest.
void Scheduler::count_quota(Sequence& sequence, TokenId token) const {
  const request::ThinkingBudget& quota = *sequence.request.quota;
  const auto is_in = [&](const std::vector<TokenId>& tokens) {
    return std::find(tokens.begin(), tokens.end(), token) != tokens.end();
  };
  if (sequence.in_quota) {
    sequence.in_quota = !is_in(quota.ends);
    if (sequence.in_quota) ++sequence.quota_used;
    return;
  }
  const std::span<const TokenId> output =
      std::span(sequence.tokens).subspan(static_cast<size_t>(sequence.prompt_count));
  if (output.size() < quota.begins.size() ||
      !std::equal(quota.begins.rbegin(), quota.begins.rend(), output.rbegin())) {
    return;
  }
  begin_quota(sequence);
}

void Scheduler::begin_quota(Sequence& sequence) const {
  const request::ThinkingBudget& quota = *sequence.request.quota;
  sequence.in_quota = true;
  const int64_t left = std::max<int64_t>(quota.tokens_max - sequence.quota_used, 0);
  const int64_t position = sequence.output_count() + left;
  if (position >= sequence.output_max || sequence.forced > 0) return;
  sequence.token_constraints = std::make_unique<TokenConstraints>(
      TokenConstraints{.tokens = left > 0 ? quota.then : quota.then_at_once,
                       .position = static_cast<int>(position),
                       .unless = quota.ends,
                       .since = sequence.output_count()});
}

void Scheduler::charge_output(Sequence& sequence) {
  if (sequence.uncharged > 0) queue_.charge(sequence.request.tenant, sequence.uncharged);
  sequence.uncharged = 0;
}

void Scheduler::end(Sequence& sequence, FinishReason reason, std::optional<Error> error) {
  StreamEnd end{.reason = reason,
                .prompt_tokens = sequence.prompt_count,
                .cached_tokens = sequence.cached,
                .cached_by_tier = sequence.cached_by_tier,
                .cached_from_peer = sequence.cached_from_peer,
                .pinned_tokens = sequence.pinned_tokens,
                .output_tokens = sequence.output_count(),
                .draft_tokens = sequence.drafted,
                .accepted_draft_tokens = sequence.accepted,
                .drafts = sequence.drafts,
                .accepted_prediction_tokens = sequence.predicted_accepted,
                .rejected_prediction_tokens = sequence.predicted - sequence.predicted_accepted,
                .error = std::move(error)};
  const bool joins_last_token =
      !events_.empty() && events_.back().id == sequence.id && !events_.back().end;
  if (!joins_last_token) events_.push_back({.id = sequence.id});
  events_.back().end = std::make_unique<StreamEnd>(std::move(end));

  if (sequence.stage == Sequence::Stage::kRunning) {
    if (reason != FinishReason::kCancelled && reason != FinishReason::kError) {
      // The next turn of a conversation begins where this one ends. What no plan has returned since
      // its last steps succeeded is not part of that.
      return_unseen_blocks(sequence, ForSiblings::kReturn);
      keep_last_window(sequence);
      if (disk_.on()) want_on_disk(sequence);
    }
    release_slot(sequence);
  } else {
    if (!only_fetches(sequence)) leave_line(sequence);
    forget_swapped(sequence);
    release_load(sequence);
    release_peer_load(sequence);
  }
  charge_output(sequence);
  queue_.leave(sequence.request.tenant);
  if (sequence.request.deadline_ns) {
    deadlines_.erase({*sequence.request.deadline_ns, sequence.id});
  }
  forget_start_by(sequence);
  sequence.stage = Sequence::Stage::kEnded;
  forget_if_landed(sequence);
}

void Scheduler::keep_last_window(const Sequence& sequence) {
  for (int group = 0; group < pools_.group_count(); ++group) {
    if (!pools_.spec(group).slides()) continue;
    kv::BlockPool& pool = pools_.pool(group, kv::kDevice);
    for (const BlockId block : sequence.tables[group].blocks()) {
      if (block != kNoBlock)
        pool.set_eviction_priority(block, kv::BlockPool::EvictionPriority::kLast);
    }
  }
}

void Scheduler::release_slot(Sequence& sequence) {
  for (kv::BlockTable& table : sequence.tables) table.clear();
  running_.erase(std::lower_bound(running_.begin(), running_.end(), &sequence, Earlier{}));
  free_slots(sequence).push_back(sequence.slot);
  sequence.slot = -1;
  sequence.arrived = false;
  sequence.deferral = nullptr;
  for (Sequence::SentTable& sent : sequence.sent_tables) sent = {};
}

void Scheduler::forget_if_landed(Sequence& sequence) {
  if (sequence.in_flight == 0) sequences_.erase(sequence.id);
}

}  // namespace pelton::engine
