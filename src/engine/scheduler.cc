#include "engine/scheduler.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/check.h"

namespace pelton::engine {

namespace {

// Waiting sequences that may be passed over in one plan, because what they need is being computed:
// each of them costs a look-up.
constexpr int kPassedOverMax = 8;
// And because they have no slot: these cost less.
constexpr size_t kPassedOverWithoutSlotMax = 64;
// Plans that a sequence is passed over in because as many adapters run as may.
constexpr int kAdapterPatience = 64;

// More blocks than there are in some group: an error with the numbers of all of them.
Result<void> check_blocks(int64_t prompt, int64_t output, const ExecutorCapacity& capacity) {
  const int64_t computed = prompt + std::max<int64_t>(output - 1, 0);
  bool fits = true;
  std::vector<std::string> needed;
  std::vector<int> had;
  for (const kv::GroupCapacity& group : capacity.groups) {
    const int64_t blocks = group.spec.blocks_at_once(computed, capacity.block_tokens);
    had.push_back(group.block_counts[kv::kDevice]);
    fits = fits && blocks <= had.back();
    needed.push_back(fmt::format("{} {}", blocks, group.spec.name));
  }
  if (fits) return {};
  return Error{
      ErrorCode::kDoesNotFit,
      fmt::format("{} prompt tokens and {} new ones need {} blocks of the KV cache; it has {}",
                  prompt, output, fmt::join(needed, " and "), fmt::join(had, " and "))};
}

Result<void> check_resumed(const request::GenerationRequest& request,
                           const ExecutorCapacity& capacity) {
  for (const request::ResumedAnswer& answer : request.resumed) {
    if (request.pooling) {
      return Error{ErrorCode::kInvalidArgument, "an embedding cannot be resumed", "resumed"};
    }
    if (answer.index < 0) {
      return Error{ErrorCode::kInvalidArgument, "a resumed answer's index is negative", "resumed"};
    }
    if (answer.tokens.size() > static_cast<size_t>(request.stop.max_new_tokens)) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("a resumed answer has {} tokens, more than max_new_tokens, which "
                               "is {}",
                               answer.tokens.size(), request.stop.max_new_tokens),
                   "resumed"};
    }
    for (const TokenId token : answer.tokens) {
      if (token >= 0 && token < capacity.vocab_size) continue;
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("a resumed answer holds the token id {}; the model's go from 0 to "
                               "{}",
                               token, capacity.vocab_size - 1),
                   "resumed"};
    }
  }
  return {};
}

}  // namespace

Result<void> check_request(const request::GenerationRequest& request,
                           const ExecutorCapacity& capacity) {
  const int64_t prompt = static_cast<int64_t>(request.prompt.size());
  const int64_t output = request.pooling ? 0 : request.stop.max_new_tokens;  // a vector is no token
  if (request.pooling && capacity.embedding_size == 0) {
    return Error{ErrorCode::kUnsupported, "this engine makes no embeddings", "model"};
  }
  if (capacity.whole_prompts && !request.pooling) {
    return Error{ErrorCode::kUnsupported,
                 "this model is an encoder: it makes embeddings and scores, and no text", "model"};
  }
  if (!capacity.generates() && !request.pooling) {
    return Error{ErrorCode::kUnsupported,
                 "this model has a classification head in place of its output head: it gives "
                 "labels, scores and embeddings, and no text",
                 "model"};
  }
  if (request.pooling == request::Pooling::kLabels && capacity.label_count == 0) {
    return Error{ErrorCode::kUnsupported, "this model has no labels to score with", "model"};
  }
  if (request.pooling == request::Pooling::kWeights && !capacity.weighs_tokens) {
    return Error{ErrorCode::kUnsupported, "this model has no sparse head", "model"};
  }
  if (prompt == 0) return Error{ErrorCode::kInvalidArgument, "the prompt is empty", "prompt"};
  if (output < 1 && !request.pooling) {
    return Error{ErrorCode::kInvalidArgument, "max_new_tokens must be at least 1",
                 "max_new_tokens"};
  }
  for (const TokenId token : request.prompt) {
    if (token >= 0 && token < capacity.vocab_size) continue;
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("the prompt holds the token id {}; the model's go from 0 to {}", token,
                             capacity.vocab_size - 1),
                 "prompt"};
  }
  if (prompt + output > capacity.context_tokens_max) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{} prompt tokens and {} new ones are more than the context of {}",
                             prompt, output, capacity.context_tokens_max),
                 "max_new_tokens"};
  }
  for (const TokenId token : request.label_tokens) {
    if (token >= 0 && token < capacity.vocab_size) continue;
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("the label token {} is none of the model's, which go from 0 to {}",
                             token, capacity.vocab_size - 1),
                 "label_tokens"};
  }
  if (request.adapter.identity != 0 && capacity.adapters_max == 0) {
    return Error{ErrorCode::kUnsupported, "this engine computes without adapters", "model"};
  }
  TRY(check_resumed(request, capacity));
  return check_blocks(prompt, output, capacity);
}

Scheduler::Scheduler(const ExecutorCapacity& capacity, const Options& options)
    : capacity_(capacity),
      options_(options),
      hasher_(options.hash_seed),
      pools_({.groups = capacity.groups,
              .block_tokens = capacity.block_tokens,
              .events = options.events,
              .clock = options.clock}),
      disk_(pools_),
      peer_tier_(pools_),
      queue_(options.policy.fairness),
      draft_controller_(
          {.tokens_max = capacity.draft_tokens_max, .adaptive = options.adaptive_drafts}) {
  CHECK(capacity.sequences_max > 0 && capacity.batch_tokens_max > 0);
  CHECK(options.policy.decode_first_prompt_tokens > 0, "prompts would never be computed");
  CHECK((capacity.embedding_size > 0) == (capacity.pooled_sequences_max > 0));
  for (Slot slot = capacity.sequences_max - 1; slot >= 0; --slot) free_slots_.push_back(slot);
  for (Slot slot = capacity.slot_count() - 1; slot >= capacity.sequences_max; --slot) {
    free_pooled_slots_.push_back(slot);
  }
  running_.reserve(static_cast<size_t>(capacity.slot_count()));
  pinned_.resize(pools_.group_count());
  if (disk_.on()) watch_host_copies();
}

Scheduler::~Scheduler() = default;

Result<SequenceId> Scheduler::submit(request::GenerationRequest request) {
  TRY(check_request(request, unpinned_capacity()));
  return enter(std::move(request), kNoFamily);
}

Result<std::vector<SequenceId>> Scheduler::submit_answers(request::GenerationRequest request,
                                                          int count) {
  CHECK(count > 0);
  TRY(check_request(request, unpinned_capacity()));
  const std::vector<request::ResumedAnswer> resumed = std::exchange(request.resumed, {});
  CHECK(resumed.empty() || resumed.size() == static_cast<size_t>(count));
  const uint64_t seed = request.sampling.seed;
  const SequenceId family = count > 1 ? next_id_ : kNoFamily;
  std::vector<SequenceId> ids;
  for (int i = 0; i < count; ++i) {
    const bool is_last = i + 1 == count;
    const request::ResumedAnswer* const begun =
        resumed.empty() ? nullptr : &resumed[static_cast<size_t>(i)];
    request.sampling.seed = seed + static_cast<uint64_t>(begun != nullptr ? begun->index : i);
    ids.push_back(enter(is_last ? std::move(request) : request, family));
    if (begun != nullptr) resume(sequences_.at(ids.back()), begun->tokens);
    if (is_last) break;
    request.pin_prefix = false;
    request.sampling.prompt_logprobs = -1;  // one prompt: its first answer reports it
  }
  return ids;
}

SequenceId Scheduler::enter(request::GenerationRequest request, SequenceId family) {
  const SequenceId id = next_id_++;
  Sequence& sequence = sequences_
                           .emplace(std::piecewise_construct, std::forward_as_tuple(id),
                                    std::forward_as_tuple(id, std::move(request), pools_))
                           .first->second;
  sequence.family = family;
  sequence.tokens = std::move(sequence.request.prompt);
  sequence.prompt_count = static_cast<int>(sequence.tokens.size());
  // An embedding is counted as its one answer.
  sequence.output_max = sequence.pooled() ? 1 : sequence.request.stop.max_new_tokens;
  if (sequence.request.quota && sequence.request.quota->begun) begin_quota(sequence);
  // Without a cache it shares with its siblings alone.
  const std::string own = std::to_string(family == kNoFamily ? id : family);
  const request::AdapterRef& adapter = sequence.request.adapter;
  const std::string_view salt = options_.prefix_cache ? sequence.request.cache_salt : own;
  sequence.origin = hasher_.root({.salt = salt, .adapter = adapter.identity});
  sequence.first_parent = adapter.acts_from == 0 ? sequence.origin : hasher_.root({.salt = salt});
  queue_.enter(sequence.request.tenant, sequence.request.weight);
  sequence.rank = queue_.rank(sequence.request.priority);
  if (only_fetches(sequence)) {
    fetching_.push_back(id);
  } else {
    wait_in_line(sequence);
  }
  sequence.owner = owner_of(sequence.request.tenant);
  if (disk_.on()) begin_load(sequence);
  if (peer_tier_.on()) begin_peer_load(sequence);
  if (sequence.request.deadline_ns) deadlines_.emplace(*sequence.request.deadline_ns, id);
  if (sequence.request.start_by_ns) start_bys_.emplace(*sequence.request.start_by_ns, id);
  return id;
}

// From here on it is as one that was preempted. What it was made to say it has said; where a forced
// token was due and another one came, its row had been planned before that was known.
void Scheduler::resume(Sequence& sequence, std::span<const TokenId> output) {
  for (const TokenId token : output) {
    const TokenId forced = next_forced(sequence);
    if (forced != kNotForced && forced != token) take_back_forced(sequence, forced);
    sequence.tokens.push_back(token);
    if (sequence.request.quota) count_quota(sequence, token);
  }
  if (output.empty()) return;
  if (const std::optional<FinishReason> reason = finish_of(sequence)) {
    end(sequence, *reason, std::nullopt);  // only its end was lost
  }
}

void Scheduler::cancel(SequenceId id) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end() || found->second.stage == Sequence::Stage::kEnded) return;
  end(found->second, FinishReason::kCancelled, std::nullopt);
}

void Scheduler::fail(SequenceId id, const Error& error) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end() || found->second.stage == Sequence::Stage::kEnded) return;
  end(found->second, FinishReason::kError, error);
}

StepPlan Scheduler::plan(int64_t now_ns) {
  CHECK(uncommitted_.size() < 2, "two steps are in flight already");
  budget_ = capacity_.batch_tokens_max;
  now_ns_ = now_ns;
  needs_offered_ = false;
  end_overdue(now_ns);
  if (!fetching_.empty()) end_fetched();
  return_unseen_blocks();
  choose_decodes();
  choose_drafts();
  limit_prompts();
  choose_prefills();
  admit_waiting();
  take_draft_blocks();
  if (disk_.on()) advance_disk();
  return write_plan();
}

// At most adapters_max distinct ones run. Whoever has waited for a place for kAdapterPatience plans
// is next: until it runs no sequence of another adapter begins, so that places come free.
void Scheduler::see_adapters() {
  active_adapters_.clear();
  next_adapter_ = 0;
  for (const Sequence* running : running_) add_active_adapter(running->request.adapter.identity);
  if (!adapter_waiter_) return;
  const auto found = sequences_.find(*adapter_waiter_);
  if (found == sequences_.end() || found->second.stage != Sequence::Stage::kWaiting) {
    adapter_waiter_.reset();
  } else if (++adapter_waits_ >= kAdapterPatience) {
    next_adapter_ = found->second.request.adapter.identity;
  }
}

void Scheduler::add_active_adapter(int64_t identity) {
  if (identity != 0 && !is_active_adapter(identity)) active_adapters_.push_back(identity);
}

bool Scheduler::is_active_adapter(int64_t identity) const {
  return std::ranges::find(active_adapters_, identity) != active_adapters_.end();
}

// Sequences of the model itself, and of adapters that run, are not kept waiting by others.
bool Scheduler::admits_adapter(int64_t identity) const {
  if (identity == 0) return true;
  if (next_adapter_ != 0 && identity != next_adapter_) return false;
  return std::ssize(active_adapters_) < capacity_.adapters_max || is_active_adapter(identity);
}

// The first that has no place from now on.
void Scheduler::note_adapter_waiter() {
  if (adapter_waiter_ || std::ssize(active_adapters_) < capacity_.adapters_max) return;
  adapter_waiter_ = queue_.next(
      {}, [&](int64_t identity) { return identity != 0 && !is_active_adapter(identity); });
  adapter_waits_ = 0;
}

void Scheduler::end_overdue(int64_t now_ns) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now_ns) {
    fail(deadlines_.begin()->second, Error{ErrorCode::kDeadline, "the deadline has passed"});
  }
  while (!start_bys_.empty() && start_bys_.begin()->first <= now_ns) {
    fail(start_bys_.begin()->second,
         Error{ErrorCode::kOverloaded, "no place came free for this request in time"});
  }
}

// Steps run in order, so a block that only submitted steps read may be written by the next one. But
// what is to be cached has to stay until its step has succeeded.
void Scheduler::return_unseen_blocks() {
  for (Sequence* sequence : running_) return_unseen_blocks(*sequence, ForSiblings::kKeep);
}

// Whether there were any. For the one plan after its prompt is done, a sequence keeps what its
// siblings need to go on from there.
bool Scheduler::return_unseen_blocks(Sequence& sequence, ForSiblings for_siblings) {
  int position = waits_for_settling(sequence) ? sequence.settled : sequence.computed;
  // Others go on from its last whole block, and look back from there.
  if (options_.prefix_cache) position -= position % capacity_.block_tokens;
  if (sequence.family != kNoFamily && for_siblings == ForSiblings::kKeep &&
      sequence.settled <= sequence.prompt_count) {
    position = std::min(position, sequence.prompt_count - 1);
  }
  bool any = false;
  for (int group = 0; group < pools_.group_count(); ++group) {
    const kv::GroupSpec& spec = pools_.spec(group);
    if (!spec.slides()) continue;
    kv::BlockTable& table = sequence.tables[group];
    const int dropped_before = table.dropped_count();
    table.drop_before(position - spec.sliding_window + 1);
    any = any || table.dropped_count() > dropped_before;
  }
  return any;
}

// Choosing one sequence may preempt others, but only later ones: the index stays right.
void Scheduler::choose_decodes() {
  for (size_t i = 0; i < running_.size(); ++i) {
    if (running_[i]->decoding()) choose(*running_[i]);
  }
}

void Scheduler::limit_prompts() {
  prompt_budget_ = budget_;
  if (chosen_.empty()) return;
  if (options_.policy.order == SchedulingPolicy::Order::kDecodeFirst) {
    prompt_budget_ = std::min(prompt_budget_, options_.policy.decode_first_prompt_tokens);
  }
  if (options_.policy.prompt_tokens_beside_decodes_max > 0) {
    prompt_budget_ = std::min(prompt_budget_, options_.policy.prompt_tokens_beside_decodes_max);
  }
}

// Which decodes are followed by how many guesses. They come before prompts in the step's budget;
// blocks they get last, of what nobody else needs.
void Scheduler::choose_drafts() {
  draft_controller_.note_waiting(std::exchange(waiting_to_probe_, 0));
  if (capacity_.draft_tokens_max == 0 || chosen_.empty()) return;
  draft_candidates_.clear();
  bool any_possible = false;
  for (Sequence* sequence : chosen_) {
    const bool is_known = sequence->pending == 0 && sequence->chosen == sequence->remaining();
    const int possible = draft_tokens_for(*sequence);
    const int most = is_known ? possible : 0;
    any_possible = any_possible || most > 0;
    draft_candidates_.push_back({.history = &sequence->draft_history,
                                 .tokens_max = most,
                                 .waits = most == 0 && possible > 0});
  }
  draft_controller_.choose(draft_candidates_, static_cast<int>(chosen_.size()),
                           std::min(capacity_.draft_rows_max, budget_));
  bool any = false;
  for (size_t i = 0; i < chosen_.size(); ++i) {
    const int guesses = draft_candidates_[i].tokens;
    chosen_[i]->draft_max = guesses;
    budget_ -= guesses;
    any = any || guesses > 0;
    if (guesses == 0) DraftController::note_off(chosen_[i]->draft_history);
  }
  if (any_possible) drafting_ = any;
}

// How far it is only the step in flight knows; or it is to have a guess, and its last token is not
// known yet: one step goes by without it.
bool Scheduler::waits_to_draft(const Sequence& sequence) {
  if (sequence.draft_max > 0) {
    if (sequence.draft_history.is_probe) ++waiting_to_probe_;
    return true;
  }
  const bool waits = sequence.pending > 0 &&
                     draft_controller_.wants_probe(sequence.draft_history, waiting_to_probe_) &&
                     draft_tokens_for(sequence) > 0;
  if (waits) ++waiting_to_probe_;
  return waits;
}

// Guesses that make sense behind its next row: no more than may still be emitted, and none where a
// token may have to be forced that depends on one of them.
int Scheduler::draft_tokens_for(const Sequence& sequence) const {
  if (capacity_.draft_tokens_max == 0 || sequence.pooled()) return 0;
  int64_t most = std::min(capacity_.draft_tokens_max,
                          sequence.output_max - sequence.output_count() - sequence.pending - 1);
  if (const TokenConstraints* constraints = sequence.token_constraints.get()) {
    if (sequence.forced > 0) return 0;
    most = std::min<int64_t>(most, constraints->position - sequence.output_count() - 1);
  }
  if (sequence.request.quota) {
    most = std::min(most, sequence.request.quota->tokens_max - sequence.quota_used - 1);
  }
  return static_cast<int>(std::max<int64_t>(most, 0));
}

// Guesses make nobody give up anything: each draft is as long as the blocks that are free allow.
void Scheduler::take_draft_blocks() {
  for (Sequence* sequence : chosen_) {
    if (sequence->draft_max == 0) continue;
    const int end = sequence->computed + sequence->chosen;
    sequence->draft_max = std::min(sequence->draft_max, std::max(0, sequence->reach() - end));
    for (kv::BlockTable& table : sequence->tables) CHECK(table.cover(end + sequence->draft_max));
  }
}

void Scheduler::choose_prefills() {
  for (size_t i = 0; i < running_.size(); ++i) {
    if (running_[i]->chosen == 0 && !running_[i]->decoding()) choose(*running_[i]);
  }
}

void Scheduler::admit_waiting() {
  std::vector<SequenceId> passed_over;
  int look_ups_passed_over = 0;
  const auto any_slot = [&] { return !free_slots_.empty() || !free_pooled_slots_.empty(); };
  admission::FairQueue::Admits admits;
  if (capacity_.adapters_max > 0) {
    see_adapters();
    admits = [&](int64_t identity) { return admits_adapter(identity); };
  }
  while (std::min(budget_, prompt_budget_) > 0 && any_slot()) {
    const std::optional<SequenceId> next = queue_.next(passed_over, admits);
    if (!next) break;
    Sequence& sequence = sequences_.at(*next);
    if (free_slots(sequence).empty()) {
      // Slots of the other kind are free: whoever waits for those is not kept waiting by this one.
      if (passed_over.size() == kPassedOverWithoutSlotMax) break;
      passed_over.push_back(*next);
      continue;
    }
    // Preempted, and a token of it or its copy in the host's memory is still on its way.
    if (sequence.in_flight > 0) break;
    if (sibling_computes_prompt(sequence)) {
      passed_over.push_back(*next);
      continue;
    }
    // Whoever is first in line goes into the next step, which is empty: so nobody waits longer than
    // a step for the room that a shorter one behind it takes.
    if (capacity_.whole_prompts && sequence.remaining() > std::min(budget_, prompt_budget_)) {
      if (passed_over.size() == kPassedOverWithoutSlotMax) break;
      passed_over.push_back(*next);
      continue;
    }
    if (disk_.on() && waits_for_disk(sequence)) {
      passed_over.push_back(*next);
      if (++look_ups_passed_over == kPassedOverMax) break;
      continue;
    }
    if (sequence.peer_load != nullptr && waits_for_peer(sequence)) {
      passed_over.push_back(*next);
      if (++look_ups_passed_over == kPassedOverMax) break;
      continue;
    }
    const Found found = look_up(sequence);
    if (comes_soon(sequence, found)) {
      passed_over.push_back(*next);
      if (++look_ups_passed_over == kPassedOverMax) break;
      continue;
    }
    if (!blocks_suffice(sequence, found)) {
      needs_offered_ = true;
      break;
    }
    leave_line(sequence);
    slot(sequence, found);
    choose(sequence);
    add_active_adapter(sequence.request.adapter.identity);
    if (adapter_waiter_ == sequence.id) {
      adapter_waiter_.reset();
      next_adapter_ = 0;
    }
  }
  if (capacity_.adapters_max > 0) note_adapter_waiter();
}

void Scheduler::wait_in_line(Sequence& sequence) {
  queue_.add(sequence.request.tenant, {.id = sequence.id,
                                       .priority = sequence.request.priority,
                                       .rank = sequence.rank,
                                       .group = sequence.request.adapter.identity});
}

void Scheduler::leave_line(Sequence& sequence) {
  queue_.remove(sequence.request.tenant,
                {.id = sequence.id, .priority = sequence.request.priority, .rank = sequence.rank});
}

void Scheduler::slot(Sequence& sequence, const Found& found) {
  running_.insert(std::lower_bound(running_.begin(), running_.end(), &sequence, Earlier{}),
                  &sequence);
  sequence.stage = Sequence::Stage::kRunning;
  sequence.slot = free_slots(sequence).back();
  free_slots(sequence).pop_back();
  adopt(sequence, found);
  if (disk_.on()) note_disk_hit(sequence, found);
  if (!sequence.was_scheduled) {
    sequence.was_scheduled = true;
    forget_start_by(sequence);
    sequence.cached = std::min(sequence.computed, sequence.prompt_count);
    sequence.cached_by_tier = count_by_tier(sequence, found);
    if (!sequence.request.was_counted) count_prompt(sequence, found);
    // At once, so that of many slots that are free each tenant gets its share.
    queue_.charge(sequence.request.tenant, sequence.prompt_count - sequence.cached);
  }
  release_load(sequence);
  release_peer_load(sequence);
  events_.push_back({.id = sequence.id,
                     .slot_allocation = Event::SlotAllocation::kScheduled,
                     .slot = sequence.slot});
}

// Gives the sequence as many tokens of this step as it can use, budget and blocks allow.
void Scheduler::choose(Sequence& sequence) {
  if (waits_to_be_forced(sequence) || is_deferred(sequence)) return;
  if (waits_to_draft(sequence) || waits_for_budget(sequence)) return;
  const bool is_prompt = !sequence.decoding();
  const int allowed = is_prompt ? std::min(budget_, prompt_budget_) : budget_;
  const int wanted = std::min(sequence.remaining(), allowed);
  if (wanted <= 0) return;
  for (;;) {
    const int count = std::min(wanted, sequence.reach() - sequence.computed);
    if (count > 0) {
      for (kv::BlockTable& table : sequence.tables) CHECK(table.cover(sequence.computed + count));
      sequence.chosen = count;
      budget_ -= count;
      if (is_prompt) prompt_budget_ -= count;
      chosen_.push_back(&sequence);
      return;
    }
    if (return_unseen_blocks(sequence, ForSiblings::kReturn)) continue;
    // Its own window blocks come back with the step that is in flight.
    const bool comes_back = waits_for_settling(sequence) && sequence.settled < sequence.computed;
    if (comes_back && lacks_window_blocks_only(sequence)) return;
    needs_offered_ = true;
    Sequence* const giving = whom_to_preempt(sequence);
    // The last one waits for blocks and keeps what it has: whoever needs those may still take them.
    if (giving == nullptr) return;
    preempt(*giving);
  }
}

bool Scheduler::lacks_window_blocks_only(const Sequence& sequence) const {
  for (int group = 0; group < pools_.group_count(); ++group) {
    const bool is_short = sequence.tables[group].reach() <= sequence.computed;
    if (is_short && !pools_.spec(group).slides()) return false;
  }
  return true;
}

// Enough for all its known tokens, beside what the running ones still need for theirs: admitting
// more would only preempt it again before its prefill is done. A hit costs room too, unless
// somebody holds its blocks anyway.
bool Scheduler::blocks_suffice(const Sequence& arriving, const Found& found) const {
  const bool to_the_end = options_.policy.order == SchedulingPolicy::Order::kDecodeFirst;
  for (int group = 0; group < pools_.group_count(); ++group) {
    const kv::BlockPool& pool = pools_.pool(group, kv::kDevice);
    int free = pool.free_count();
    for (const Sequence* sequence : running_) {
      const int length = to_the_end ? sequence->computed_max() : sequence->length();
      free -= std::max(
          0, blocks_wanted(*sequence, group, length) - sequence->tables[group].held_count());
    }
    int wanted = blocks_wanted(arriving, group, static_cast<int>(arriving.tokens.size()));
    if (!found.groups.empty()) {
      wanted -= static_cast<int>(std::count_if(
          found.groups[group].begin(), found.groups[group].end(), [&](const Found::Block& one) {
            return one.is_shared() && pool.ref_count(one.block) > 0;
          }));
    }
    if (wanted > free) return false;
  }
  return true;
}

// At `length` tokens, or as many as it ever needs where blocks come back on the way.
int Scheduler::blocks_wanted(const Sequence& sequence, int group, int length) const {
  const kv::GroupSpec& spec = pools_.spec(group);
  const int tokens = spec.slides() ? sequence.computed_max() : length;
  return static_cast<int>(spec.blocks_at_once(tokens, capacity_.block_tokens));
}

StepPlan Scheduler::write_plan() {
  offload_evicted();
  StepPlan plan;
  if (chosen_.empty() && copies_.empty()) return plan;
  plan.step = next_step_++;
  plan.copies.swap(copies_);
  plan.sequences.reserve(chosen_.size());
  plan.tokens.reserve(static_cast<size_t>(capacity_.batch_tokens_max - budget_));
  UncommittedStep& uncommitted = uncommitted_.emplace_back();
  uncommitted.step = plan.step;
  uncommitted.swapped_out.swap(swapped_out_);
  uncommitted.offloads.swap(offloads_);
  uncommitted.rows.reserve(chosen_.size());
  for (Sequence* sequence : chosen_) {
    const int begin = sequence->computed;
    if (sequence->decoding()) {
      uncommitted.decode_tokens += sequence->chosen;
    } else {
      uncommitted.has_prompts = true;
      uncommitted.prompt_tokens += sequence->chosen;
    }
    write_row(*sequence, plan);
    uncommitted.rows.push_back(
        {.sequence = sequence,
         .sampled = plan.sequences.back().sample || plan.sequences.back().embed,
         .end = sequence->computed,
         .targets = plan.sequences.back().targets.count,
         .target_begin = begin,
         .forced = plan.sequences.back().forced,
         .draft_max = plan.sequences.back().draft_max});
  }
  chosen_.clear();
  return plan;
}

void Scheduler::write_row(Sequence& sequence, StepPlan& plan) {
  ScheduledRow& row = plan.sequences.emplace_back();
  row.slot = sequence.slot;
  if (!sequence.arrived) {
    sequence.arrived = true;
    row.arrival = static_cast<int32_t>(plan.arrivals.size());
    Arrival& arrival = plan.arrivals.emplace_back();
    arrival.sampling = sequence.request.sampling;
    arrival.prompt_count = sequence.prompt_count;
    arrival.mirostat_bound = sequence.mirostat_bound;
    arrival.pooling = sequence.request.pooling;
    arrival.label_tokens = sequence.request.label_tokens;
    arrival.second_text = sequence.request.second_text;
    arrival.guide = sequence.request.guide;
    const bool remembers = sequence.request.sampling.reads_history() || arrival.guide.has_value() ||
                           capacity_.draft_tokens_max > 0;
    if (remembers) arrival.history = sequence.tokens;
    if (arrival.guide) arrival.tenant = sequence.request.tenant;
    arrival.origin = sequence.origin;
    arrival.adapter = sequence.request.adapter.weights.get();
    arrival.adapter_from = sequence.request.adapter.acts_from;
    if (capacity_.draft_tokens_max > 0) arrival.prediction = sequence.request.prediction;
  }
  row.start = sequence.computed;
  const bool known = sequence.computed < static_cast<int>(sequence.tokens.size());
  if (known) {
    row.tokens = append(plan.tokens, std::span<const TokenId>(sequence.tokens)
                                         .subspan(static_cast<size_t>(sequence.computed),
                                                  static_cast<size_t>(sequence.chosen)));
  }
  if (sequence.scores_prompt()) write_targets(sequence, row, plan);
  row.table_updates = write_tables(sequence, plan);

  const bool answers = sequence.chosen == sequence.remaining();
  row.embed = answers && sequence.pooled();
  row.sample = answers && !sequence.pooled();
  if (row.embed) ++sequence.pending;
  if (row.sample) {
    const bool may_stop =
        sequence.output_count() + sequence.pending >= sequence.request.stop.min_new_tokens;
    if (!may_stop) {
      row.banned = append(plan.banned, std::span<const TokenId>(sequence.request.stop.stop_tokens));
      row.banned_end = sequence.prompt_count + sequence.request.stop.min_new_tokens;
    }
    row.forced = next_forced(sequence);
    row.draft_max = sequence.draft_max;
    ++sequence.pending;
  }
  sequence.computed += sequence.chosen;
  sequence.chosen = 0;
  ++sequence.in_flight;
}

// What the executor does not know yet of the block tables, which it then does.
Slice Scheduler::write_tables(Sequence& sequence, StepPlan& plan) {
  Slice updates{.first = static_cast<int32_t>(plan.table_updates.size())};
  for (int group = 0; group < sequence.tables.size(); ++group) {
    const kv::BlockTable& table = sequence.tables[group];
    const Sequence::SentTable now{.entries = static_cast<int>(table.blocks().size()),
                                  .begin = table.dropped_count()};
    Sequence::SentTable& sent = sequence.sent_tables[group];
    if (now == sent) continue;
    const std::span<const BlockId> news =
        std::span(table.blocks()).subspan(static_cast<size_t>(sent.entries));
    plan.table_updates.push_back({.group = group,
                                  .first = sent.entries,
                                  .begin = now.begin,
                                  .blocks = append(plan.blocks, news)});
    ++updates.count;
    sent = now;
  }
  return updates;
}

// Those it has emitted already, before it made room, are emitted again: that is rare.
void Scheduler::write_targets(const Sequence& sequence, ScheduledRow& row, StepPlan& plan) const {
  const int end = std::min(sequence.computed + sequence.chosen, sequence.prompt_count - 1);
  if (end <= std::max(sequence.computed, static_cast<int>(sequence.scored.size()))) return;
  row.targets = append(plan.tokens, std::span<const TokenId>(sequence.tokens)
                                        .subspan(static_cast<size_t>(sequence.computed) + 1,
                                                 static_cast<size_t>(end - sequence.computed)));
}

void Scheduler::force(SequenceId id, TokenConstraints token_constraints) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end() || token_constraints.tokens.empty()) return;
  Sequence& sequence = found->second;
  if (sequence.stage == Sequence::Stage::kEnded || sequence.forced > 0) return;
  sequence.token_constraints = std::make_unique<TokenConstraints>(std::move(token_constraints));
}

// It has come to where it is to be forced, but the token before is not known yet, which decides
// whether it is: one step goes by without it.
bool Scheduler::waits_to_be_forced(const Sequence& sequence) const {
  return sequence.token_constraints != nullptr && sequence.forced == 0 && sequence.pending > 0 &&
         sequence.output_count() + sequence.pending >= sequence.token_constraints->position;
}

// A segment that has nothing left may begin with a token that is on its way: then the one behind it
// is forced, whatever would have come.
bool Scheduler::waits_for_budget(const Sequence& sequence) const {
  if (!sequence.request.quota || sequence.in_quota || sequence.pending == 0) return false;
  const request::ThinkingBudget& quota = *sequence.request.quota;
  if (quota.tokens_max > sequence.quota_used || sequence.forced > 0) return false;
  if (sequence.request.guide) return true;  // more than one may come with a row
  const size_t awaited =
      std::min(quota.begins.size(), static_cast<size_t>(std::max(sequence.pending, 0)));
  const auto known = static_cast<std::ptrdiff_t>(quota.begins.size() - awaited);
  return sequence.output_count() >= known &&
         std::equal(quota.begins.begin(), quota.begins.begin() + known,
                    sequence.tokens.end() - known);
}

// What the row that is being written must sample.
TokenId Scheduler::next_forced(Sequence& sequence) const {
  if (sequence.token_constraints == nullptr) return kNotForced;
  const TokenConstraints& token_constraints = *sequence.token_constraints;
  if (sequence.forced == 0) {
    if (sequence.output_count() + sequence.pending < token_constraints.position) return kNotForced;
    const int seen = std::clamp(token_constraints.since, 0, sequence.output_count());
    const auto meanwhile = sequence.tokens.begin() + sequence.prompt_count + seen;
    const bool too_late =
        std::find_first_of(meanwhile, sequence.tokens.end(), token_constraints.unless.begin(),
                           token_constraints.unless.end()) != sequence.tokens.end();
    if (too_late) {
      sequence.token_constraints.reset();
      return kNotForced;
    }
  }
  const TokenId token = token_constraints.tokens[sequence.forced++];
  if (sequence.forced == token_constraints.tokens.size()) {
    sequence.token_constraints.reset();
    sequence.forced = 0;
  }
  return token;
}

kv::PerGroup<int> Scheduler::blocks_used() const {
  kv::PerGroup<int> used;
  for (int group = 0; group < pools_.group_count(); ++group) {
    used.push_back(pools_.pool(group, kv::kDevice).used_count());
  }
  return used;
}

int64_t Scheduler::prompt_tokens_left() const {
  int64_t tokens = 0;
  for (const auto& [id, sequence] : sequences_) {
    if (sequence.stage == Sequence::Stage::kEnded) continue;
    tokens += std::max(0, sequence.prompt_count - sequence.computed);
  }
  return tokens;
}

std::vector<SequenceId> Scheduler::live() const {
  std::vector<SequenceId> ids;
  for (const Sequence* sequence : running_) ids.push_back(sequence->id);
  const size_t running_count = ids.size();
  for (const auto& [id, sequence] : sequences_) {
    if (sequence.stage == Sequence::Stage::kWaiting) ids.push_back(id);
  }
  std::sort(ids.begin() + static_cast<std::ptrdiff_t>(running_count), ids.end());
  return ids;
}

}  // namespace pelton::engine
