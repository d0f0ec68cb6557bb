// Random workloads on the real scheduler and a modelled executor, of models with one, two or three
// KV groups, also without any that keeps every token. Whatever the batch, the chunks, the
// preemptions, the copies, the failed steps and the cancels: every request's output is what a plain
// loop over its own tokens says, every block comes home, and nobody waits for ever. A failing seed
// is printed; PELTON_SEED=N replays it, PELTON_SEEDS=N runs more of them.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"
#include "engine/modelled_executor.h"
#include "engine/scheduler.h"

namespace pelton::engine {
namespace {

constexpr int kVocabulary = 50;
constexpr int kEmbeddingSize = 3;

int64_t from_environment(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoll(text);
}

class Dice {
 public:
  explicit Dice(uint64_t seed) : seed_(seed) {}
  // Uniform in [low, high].
  int roll(int low, int high) {
    const uint64_t span = static_cast<uint64_t>(high - low + 1);
    return low + static_cast<int>(base::random_bits(seed_, count_++) % span);
  }
  bool one_in(int n) { return roll(1, n) == 1; }

 private:
  const uint64_t seed_;
  uint64_t count_ = 0;
};

struct Ending {
  std::vector<TokenId> output;
  std::vector<float> embedding;
  std::vector<PromptToken> prompt;  // if its log-probabilities are asked for
  FinishReason reason = FinishReason::kStop;
};

bool same(const std::vector<PromptToken>& some, const std::vector<PromptToken>& others) {
  return std::equal(some.begin(), some.end(), others.begin(), others.end(),
                    [](const PromptToken& one, const PromptToken& other) {
                      return one.scored.token == other.scored.token && one.rank == other.rank &&
                             one.scored.logprob == other.scored.logprob &&
                             one.scored.top == other.scored.top;
                    });
}

using Groups = kv::PerGroup<kv::GroupCapacity>;

// Of `tokens` what the query of the last one sees, in a group.
std::span<const TokenId> visible(std::span<const TokenId> tokens, const kv::GroupSpec& group) {
  return tokens.subspan(static_cast<size_t>(group.first_seen(static_cast<int>(tokens.size()) - 1)));
}

// The output by definition: no blocks, no chunks, no batch.
Ending by_definition(const request::GenerationRequest& request, const Groups& groups,
                     const ModelledExecutor::TokenFunction& next_token) {
  std::vector<TokenId> tokens = request.prompt;
  const std::vector<TokenId>& stops = request.stop.stop_tokens;
  const kv::GroupSpec& widest = groups[kv::widest_group(groups)].spec;
  Ending ending;
  if (request.pooling) {
    ending.reason = FinishReason::kEmbedded;
    ending.embedding.resize(kEmbeddingSize);
    const bool of_all = request.pooling == request::Pooling::kMean;
    word_vectors()(of_all ? std::span(tokens) : visible(tokens, widest), *request.pooling,
                   ending.embedding);
    return ending;
  }
  if (request.sampling.prompt_logprobs >= 0) {
    for (size_t i = 1; i < tokens.size(); ++i) {
      ending.prompt.push_back(
          checksum_scores(kVocabulary)(visible(std::span(tokens).first(i), widest), tokens[i],
                                       request.sampling.prompt_logprobs));
    }
  }
  for (int i = 0; i < request.stop.max_new_tokens; ++i) {
    const bool may_stop = i >= request.stop.min_new_tokens;
    kv::PerGroup<std::span<const TokenId>> by_group;
    for (const kv::GroupCapacity& group : groups) by_group.push_back(visible(tokens, group.spec));
    const TokenId token = next_token(
        {.tokens = tokens,
         .by_group = by_group,
         .prompt_count = static_cast<int>(request.prompt.size()),
         .sampling = request.sampling,
         .banned = may_stop ? std::span<const TokenId>{} : std::span<const TokenId>(stops)});
    tokens.push_back(token);
    ending.output.push_back(token);
    if (may_stop && std::find(stops.begin(), stops.end(), token) != stops.end()) {
      ending.reason = FinishReason::kStop;
      return ending;
    }
  }
  ending.reason = FinishReason::kLength;
  return ending;
}

// One to three groups, of any kind in any order. There is room on the host for all of them, or for
// none.
Groups random_groups(Dice& dice, int block_tokens) {
  Groups groups;
  const int count = dice.roll(1, 3);
  const bool swaps = !dice.one_in(3);
  for (int i = 0; i < count; ++i) {
    const bool slides = dice.one_in(2);
    kv::GroupSpec spec{.name = (slides ? "window" : "full") + std::to_string(i),
                       .sliding_window = slides ? dice.roll(1, 20) : 0};
    const int least =
        slides ? static_cast<int>(spec.blocks_at_once(1 << 20, block_tokens)) : dice.roll(8, 40);
    const int blocks = slides ? least + dice.roll(0, 30) : least;
    groups.push_back({.spec = spec, .block_counts = {blocks, swaps ? dice.roll(1, 40) : 0}});
  }
  // A disk is behind the host's memory.
  if (swaps && dice.one_in(2)) {
    for (kv::GroupCapacity& group : groups) group.block_counts[kv::kDisk] = dice.roll(1, 60);
  }
  return groups;
}

// "full", "window", "full window", "window window full"
std::string kind_of(const Groups& groups) {
  std::string kind;
  for (const kv::GroupCapacity& group : groups) {
    kind += (kind.empty() ? "" : " ") + group.spec.name.substr(0, group.spec.name.size() - 1);
  }
  return kind;
}

ExecutorCapacity random_capacity(Dice& dice) {
  ExecutorCapacity capacity;
  capacity.block_tokens = dice.roll(1, 8);
  capacity.groups = random_groups(dice, capacity.block_tokens);
  capacity.sequences_max = dice.roll(1, 8);
  capacity.pooled_sequences_max = dice.roll(1, 8);
  capacity.embedding_size = kEmbeddingSize;
  capacity.batch_tokens_max = dice.roll(1, 40);
  capacity.context_tokens_max = 200;
  capacity.vocab_size = kVocabulary;
  if (dice.one_in(2)) {
    capacity.draft_tokens_max = dice.roll(1, 12);
    capacity.draft_rows_max = dice.roll(1, 40);
  }
  return capacity;
}

// What prompts begin with, so that they share prefixes.
std::vector<std::vector<TokenId>> random_stems(Dice& dice) {
  std::vector<std::vector<TokenId>> stems(3);
  for (std::vector<TokenId>& stem : stems) {
    for (int i = 0; i < 80; ++i) stem.push_back(dice.roll(0, kVocabulary - 1));
  }
  return stems;
}

request::GenerationRequest random_request(Dice& dice, const ExecutorCapacity& capacity,
                                          const std::vector<std::vector<TokenId>>& stems) {
  const auto fits = static_cast<int>(
      std::min<int64_t>(capacity.sequence_tokens_max(), capacity.context_tokens_max));
  request::GenerationRequest request;
  const int prompt = dice.roll(1, std::min(60, fits));
  for (int i = 0; i < prompt; ++i) request.prompt.push_back(dice.roll(0, kVocabulary - 1));
  if (dice.one_in(2)) {
    const std::vector<TokenId>& stem = stems[static_cast<size_t>(dice.roll(0, 2))];
    std::copy_n(stem.begin(), dice.roll(0, prompt), request.prompt.begin());
  }
  if (dice.one_in(2)) request.tenant = dice.one_in(2) ? "a" : "b";
  if (request.tenant == "a") request.weight = 3.0;
  if (dice.one_in(8)) request.cache_salt = "other";
  request.stop.max_new_tokens = dice.roll(1, std::min(40, fits - prompt + 1));
  request.stop.min_new_tokens = dice.one_in(3) ? dice.roll(0, 10) : 0;
  if (dice.one_in(2)) request.stop.stop_tokens = {dice.roll(0, 9), dice.roll(10, 19)};
  request.sampling.seed = static_cast<uint64_t>(dice.roll(0, 1 << 30));
  if (dice.one_in(2)) request.sampling.presence_penalty = 1.0f;
  if (dice.one_in(5)) request.sampling.prompt_logprobs = dice.roll(0, 3);
  if (dice.one_in(3)) request.priority = dice.roll(-2, 2);
  if (dice.one_in(40)) request.pin_prefix = true;
  if (dice.one_in(6)) {
    request.pooling = dice.one_in(2) ? request::Pooling::kLast : request::Pooling::kMean;
  }
  return request;
}

Scheduler::Options random_options(Dice& dice, bool prefix_cache) {
  constexpr std::array kWrites = {kv::DiskWrites::kSelective, kv::DiskWrites::kAll,
                                  kv::DiskWrites::kEvicted};
  Scheduler::Options options{.prefix_cache = prefix_cache,
                             .hash_seed = 1,
                             .disk_writes = kWrites[static_cast<size_t>(dice.roll(0, 2))]};
  if (dice.one_in(3)) options.policy.order = SchedulingPolicy::Order::kDecodeFirst;
  options.policy.decode_first_prompt_tokens = dice.roll(1, 20);
  options.policy.prompt_tokens_beside_decodes_max = dice.one_in(2) ? dice.roll(1, 20) : 0;
  options.policy.fairness.priority_tokens = dice.roll(0, 200);
  return options;
}

// One run of one seed. Time is the number of the turn.
class Workload {
 public:
  explicit Workload(uint64_t seed)
      : dice_(seed),
        capacity_(random_capacity(dice_)),
        steps_in_flight_max_(dice_.roll(1, 2)),
        prefix_cache_(!dice_.one_in(4)),
        stems_(random_stems(dice_)),
        next_token_(checksum_tokens(kVocabulary)),
        scheduler_(capacity_, random_options(dice_, prefix_cache_)),
        executor_({.capacity = capacity_,
                   .next_token = next_token_,
                   .fail_step = [this](const StepPlan& plan) { return fail(plan); },
                   .transfer_outcome = [this](const auto&) { return fail_transfer(); },
                   .draft_acceptance = 0.1 * dice_.roll(0, 10),
                   .draft_seed = seed}) {
    if (dice_.one_in(3)) failing_step_one_in_ = dice_.roll(5, 100);
    if (dice_.one_in(3)) failing_transfer_one_in_ = dice_.roll(2, 50);
    scheduled_in_.resize(static_cast<size_t>(capacity_.slot_count()), -1);
  }

  void play() {
    const int request_count = dice_.one_in(100) ? dice_.roll(100, 400) : dice_.roll(1, 36);
    const int pause = dice_.roll(1, 8);
    // Every turn computes at least one token for the first in order, and preempted work is done
    // again.
    const int turns_max = 40'000 + 1000 * request_count;
    for (int turn = 0; turn < turns_max; ++turn) {
      if (submitted_ < request_count && dice_.one_in(pause)) submit(turn);
      if (dice_.one_in(25)) cancel_one();
      const bool busy = step(turn);
      if (testing::Test::HasFatalFailure()) return;
      if (!busy && submitted_ == request_count) break;
    }
    EXPECT_TRUE(scheduler_.idle()) << "somebody waits for ever";
    EXPECT_TRUE(scheduler_.ledger().clean());
    for (const auto& [id, known] : known_) EXPECT_TRUE(known.ended) << "sequence " << id;
  }

  // What the run came across.
  struct Reached {
    int64_t submitted = 0;
    int64_t finished = 0;
    int64_t embedded = 0;           // of these
    int64_t scored = 0;             // prompts whose log-probabilities were reported
    int64_t failed = 0;             // sequences, with their step
    int64_t failed_copies = 0;      // blocks, with their step
    int64_t cancelled_swapped = 0;  // while their blocks were in the host's memory
    SchedulerCounters counters;
    DiskTier::Counters disk;
  };
  Reached reached() const {
    Reached reached = reached_;
    reached.counters = scheduler_.counters();
    reached.disk = scheduler_.disk().counters();
    return reached;
  }

  std::string kind() const { return kind_of(capacity_.groups); }

 private:
  struct Known {
    Ending expected;
    std::vector<TokenId> output;
    std::vector<PromptToken> prompt;
    bool cancelled = false;
    bool has_deadline = false;
    bool has_start_by = false;
    bool was_scheduled = false;
    bool in_failed_step = false;
    bool swapped_out = false;
    bool ended = false;
  };

  void submit(int turn) {
    request::GenerationRequest request = random_request(dice_, capacity_, stems_);
    if (dice_.one_in(10)) request.deadline_ns = turn + dice_.roll(0, 60);
    if (dice_.one_in(10)) request.start_by_ns = turn + dice_.roll(0, 60);
    const int answers = dice_.one_in(6) ? dice_.roll(1, 6) : 1;
    submitted_ += 1;
    reached_.submitted += answers;
    const Result<std::vector<SequenceId>> ids = scheduler_.submit_answers(request, answers);
    if (!ids.ok()) {
      ASSERT_EQ(ids.error().code, ErrorCode::kDoesNotFit) << ids.error().message;
      const Ledger ledger = scheduler_.ledger();
      const kv::PerGroup<Ledger::Blocks>& blocks = ledger.blocks[kv::kDevice];
      ASSERT_TRUE(std::any_of(blocks.begin(), blocks.end(),
                              [](const Ledger::Blocks& counted) { return counted.pinned > 0; }));
      return;
    }
    for (const SequenceId id : ids.value()) {
      known_.emplace(id, Known{.expected = by_definition(request, capacity_.groups, next_token_),
                               .has_deadline = request.deadline_ns.has_value(),
                               .has_start_by = request.start_by_ns.has_value()});
      ++request.sampling.seed;
      request.sampling.prompt_logprobs = -1;
    }
  }

  // Whoever has a row in a failed step ends with it; whose blocks were copied only does not.
  std::optional<Error> fail(const StepPlan& plan) {
    if (failing_step_one_in_ == 0 || !dice_.one_in(failing_step_one_in_)) return std::nullopt;
    reached_.failed_copies += static_cast<int64_t>(plan.copies.size());
    for (const ScheduledRow& row : plan.sequences) {
      known_.at(scheduled_in_[static_cast<size_t>(row.slot)]).in_failed_step = true;
    }
    return Error{ErrorCode::kInternal, "this step fails"};
  }

  kv::TransferResult::Outcome fail_transfer() {
    using Outcome = kv::TransferResult::Outcome;
    if (failing_transfer_one_in_ == 0 || !dice_.one_in(failing_transfer_one_in_)) {
      return Outcome::kDone;
    }
    return dice_.one_in(2)   ? Outcome::kCorrupt
           : dice_.one_in(2) ? Outcome::kFailed
                             : Outcome::kFull;
  }

  // Results come when they like, in any order. Twice a turn, also while steps are in flight.
  void exchange_with_disk(int turn) {
    if (executor_.disk() == nullptr) return;
    std::vector<kv::BlockTransfer> transfers = scheduler_.take_transfers();
    for (const kv::BlockTransfer& what : transfers) {
      for (const std::vector<BlockCopy>& copies : copies_in_flight_) {
        for (const BlockCopy& copy : copies) {
          const bool is_same = copy.group == what.group &&
                               ((copy.from_tier == kv::kHost && copy.from == what.host) ||
                                (copy.to_tier == kv::kHost && copy.to == what.host));
          ASSERT_FALSE(is_same && what.direction == kv::BlockTransfer::Direction::kRead)
              << "a step that may not have run copies what a disk writes over";
        }
      }
    }
    executor_.disk()->begin(std::move(transfers));
    for (const kv::TransferResult& result : executor_.disk()->take_results()) {
      transferred_.push_back(result);
    }
    while (!transferred_.empty() && !dice_.one_in(3)) {
      std::swap(transferred_.back(), transferred_[static_cast<size_t>(dice_.roll(
                                         0, static_cast<int>(transferred_.size()) - 1))]);
      scheduler_.finish_transfer(transferred_.back(), turn);
      transferred_.pop_back();
      scheduler_.check_integrity();
    }
  }

  void cancel_one() {
    const std::vector<SequenceId> live = scheduler_.live();
    if (live.empty()) return;
    const SequenceId id =
        live[static_cast<size_t>(dice_.roll(0, static_cast<int>(live.size()) - 1))];
    known_.at(id).cancelled = true;
    if (known_.at(id).swapped_out) ++reached_.cancelled_swapped;
    scheduler_.cancel(id);
  }

  // Whether anything was going on.
  bool step(int turn) {
    exchange_with_disk(turn);
    if (dice_.one_in(200)) scheduler_.reset_prefix_cache();
    StepPlan plan = scheduler_.plan(turn);
    scheduler_.check_integrity();
    take_notes();
    const bool planned = !plan.empty();
    const bool awaits_disk = scheduler_.disk().busy();
    if (planned) {
      copies_in_flight_.push_back(plan.copies);
      executor_.submit(std::move(plan));
      ++in_flight_;
    }
    exchange_with_disk(turn);
    const bool collects = in_flight_ == steps_in_flight_max_ || (in_flight_ > 0 && !planned);
    if (collects) {
      scheduler_.commit(executor_.collect());
      copies_in_flight_.pop_front();
      --in_flight_;
    }
    scheduler_.check_integrity();
    take_notes();
    EXPECT_TRUE(planned || collects || scheduler_.idle() || awaits_disk)
        << "nothing runs though somebody waits";
    return planned || collects || !scheduler_.idle();
  }

  void take_notes() {
    scheduler_.take_events(events_);
    for (const Scheduler::Event& event : events_) take_note(event);
  }

  void take_note(const Scheduler::Event& event) {
    using SlotAllocation = Scheduler::Event::SlotAllocation;
    Known& known = known_.at(event.id);
    ASSERT_FALSE(known.ended) << "an event after the end";
    if (event.slot_allocation == SlotAllocation::kScheduled)
      scheduled_in_[static_cast<size_t>(event.slot)] = event.id;
    if (event.slot_allocation != SlotAllocation::kNone)
      known.swapped_out = event.slot_allocation == SlotAllocation::kSwappedOut;
    known.was_scheduled =
        known.was_scheduled || event.slot_allocation == SlotAllocation::kScheduled;
    if (event.prompt) {
      ASSERT_TRUE(event.token && known.output.empty()) << "they come with the first token";
      known.prompt = *event.prompt;
      ++reached_.scored;
    }
    if (event.token) known.output.push_back(event.token->token);
    if (!event.end) return;
    known.ended = true;
    if (event.end->error && event.end->error->code == ErrorCode::kOverloaded) {
      ASSERT_TRUE(known.has_start_by && !known.was_scheduled) << "begun, and then turned away";
      return;
    }
    const bool cut_short = (known.cancelled && event.end->reason == FinishReason::kCancelled) ||
                           (known.has_deadline && event.end->reason == FinishReason::kError) ||
                           (known.in_failed_step && event.end->reason == FinishReason::kError);
    if (event.end->error && event.end->error->code == ErrorCode::kInternal) {
      ASSERT_TRUE(known.in_failed_step)
          << "sequence " << event.id << " had no row in a failed step";
      ++reached_.failed;
    }
    if (cut_short) {
      ASSERT_LE(known.output.size(), known.expected.output.size());
      known.expected.output.resize(known.output.size());
    } else {
      ASSERT_EQ(event.end->reason, known.expected.reason);
      ASSERT_EQ(event.end->embedding, known.expected.embedding) << "sequence " << event.id;
      ++reached_.finished;
      if (known.expected.reason == FinishReason::kEmbedded) ++reached_.embedded;
    }
    ASSERT_EQ(known.output, known.expected.output) << "sequence " << event.id;
    if (!known.output.empty()) {
      ASSERT_TRUE(same(known.prompt, known.expected.prompt)) << "sequence " << event.id;
    }
    ASSERT_EQ(event.end->output_tokens, static_cast<int>(known.output.size()));
  }

  Dice dice_;
  const ExecutorCapacity capacity_;
  const int steps_in_flight_max_;
  const bool prefix_cache_;
  const std::vector<std::vector<TokenId>> stems_;
  const ModelledExecutor::TokenFunction next_token_;
  Scheduler scheduler_;
  ModelledExecutor executor_;
  std::map<SequenceId, Known> known_;
  std::vector<Scheduler::Event> events_;
  int submitted_ = 0;
  int in_flight_ = 0;
  int failing_step_one_in_ = 0;                          // 0: none fails
  int failing_transfer_one_in_ = 0;                      // likewise
  std::vector<kv::TransferResult> transferred_;          // and not reported yet
  std::deque<std::vector<BlockCopy>> copies_in_flight_;  // by step
  std::vector<SequenceId> scheduled_in_;                 // by slot
  Reached reached_;
};

void add(Workload::Reached& all, const Workload::Reached& one) {
  all.submitted += one.submitted;
  all.finished += one.finished;
  all.embedded += one.embedded;
  all.scored += one.scored;
  all.failed += one.failed;
  all.failed_copies += one.failed_copies;
  all.cancelled_swapped += one.cancelled_swapped;
  all.disk.blocks_corrupt += one.disk.blocks_corrupt;
  SchedulerCounters& sum = all.counters;
  sum.prompt_tokens += one.counters.prompt_tokens;
  sum.prompt_tokens_cached += one.counters.prompt_tokens_cached;
  sum.prompt_tokens_shared += one.counters.prompt_tokens_shared;
  sum.preemptions_recompute += one.counters.preemptions_recompute;
  sum.preemptions_swap += one.counters.preemptions_swap;
  sum.blocks_swapped_out += one.counters.blocks_swapped_out;
  sum.blocks_swapped_in += one.counters.blocks_swapped_in;
  sum.blocks_forked += one.counters.blocks_forked;
  sum.blocks_offloaded += one.counters.blocks_offloaded;
  for (size_t tier = 0; tier < kv::kTierCount; ++tier) {
    sum.prompt_tokens_cached_by_tier[tier] += one.counters.prompt_tokens_cached_by_tier[tier];
  }
  sum.draft_tokens += one.counters.draft_tokens;
  sum.accepted_tokens += one.counters.accepted_tokens;
}

TEST(SchedulerProperty, any_workload_gives_what_each_request_gives_alone) {
  const int64_t first = from_environment("PELTON_SEED", 1);
  const int64_t count = from_environment(
      "PELTON_SEEDS",
      std::getenv("PELTON_SEED") ? 1 : 5200 * from_environment("PELTON_PROPERTY_SCALE", 1));
  Workload::Reached all;
  std::map<std::string, Workload::Reached> by_kind;  // of the set of groups
  for (int64_t seed = first; seed < first + count && !HasFailure(); ++seed) {
    SCOPED_TRACE("replay with PELTON_SEED=" + std::to_string(seed));
    Workload run(static_cast<uint64_t>(seed));
    run.play();
    add(all, run.reached());
    add(by_kind[run.kind()], run.reached());
  }
  const auto reaches = [&](const char* what, int64_t times, int64_t at_least) {
    RecordProperty(what, std::to_string(times));
    // The workloads must reach what they are meant to prove.
    if (count >= 5000) {
      EXPECT_GT(times, at_least) << what;
    }
  };
  reaches("submitted", all.submitted, 100'000);
  reaches("finished", all.finished, 10'000);
  reaches("embedded", all.embedded, 1000);
  reaches("scored", all.scored, 1000);
  reaches("failed_with_their_step", all.failed, 1000);
  reaches("prompt_tokens_cached", all.counters.prompt_tokens_cached, 5'000);
  reaches("preemptions_recompute", all.counters.preemptions_recompute, 1000);
  reaches("preemptions_swap", all.counters.preemptions_swap, 1000);
  reaches("blocks_swapped_out", all.counters.blocks_swapped_out, 1000);
  reaches("blocks_swapped_in", all.counters.blocks_swapped_in, 1000);
  reaches("copies_in_failed_steps", all.failed_copies, 100);
  reaches("cancelled_while_swapped_out", all.cancelled_swapped, 100);
  reaches("prompt_tokens_shared", all.counters.prompt_tokens_shared, 1000);
  reaches("blocks_forked", all.counters.blocks_forked, 1000);
  reaches("blocks_offloaded", all.counters.blocks_offloaded, 1000);
  reaches("prompt_tokens_cached_on_host", all.counters.prompt_tokens_cached_by_tier[kv::kHost],
          1000);
  reaches("prompt_tokens_cached_on_disk", all.counters.prompt_tokens_cached_by_tier[kv::kDisk],
          500);
  reaches("blocks_damaged_on_disk", all.disk.blocks_corrupt, 100);
  reaches("guesses_accepted", all.counters.accepted_tokens, 100'000);
  reaches("guesses_rejected", all.counters.draft_tokens - all.counters.accepted_tokens, 100'000);
  for (const char* kind : {"full", "window", "full window", "window full", "window window",
                           "full full", "full window window", "window window window"}) {
    const Workload::Reached& of_kind = by_kind[kind];
    const auto reaches_of_kind = [&](const std::string& what, int64_t times, int64_t at_least) {
      reaches((std::string(kind) + ": " + what).c_str(), times, at_least);
    };
    reaches_of_kind("finished", of_kind.finished, 1000);
    reaches_of_kind("prompt_tokens_cached", of_kind.counters.prompt_tokens_cached, 500);
    reaches_of_kind("preemptions_recompute", of_kind.counters.preemptions_recompute, 20);
    reaches_of_kind("preemptions_swap", of_kind.counters.preemptions_swap, 20);
    reaches_of_kind("blocks_swapped_in", of_kind.counters.blocks_swapped_in, 20);
    reaches_of_kind("blocks_forked", of_kind.counters.blocks_forked, 20);
  }
}

// The same calls give the same plans: nothing hangs on addresses or hash order.
TEST(SchedulerProperty, plans_are_deterministic) {
  const auto trace = [] {
    Dice dice(7);
    const ExecutorCapacity capacity = random_capacity(dice);
    const std::vector<std::vector<TokenId>> stems = random_stems(dice);
    Scheduler scheduler(capacity, {.prefix_cache = true, .hash_seed = 1});
    ModelledExecutor executor({.capacity = capacity, .next_token = checksum_tokens(kVocabulary)});
    std::string text;
    for (int turn = 0; turn < 400; ++turn) {
      if (turn < 100) (void)scheduler.submit(random_request(dice, capacity, stems));
      StepPlan plan = scheduler.plan(turn);
      if (plan.empty()) break;
      for (const ScheduledRow& row : plan.sequences) {
        text += std::to_string(row.slot) + ":" + std::to_string(row.start) + "+" +
                std::to_string(row.token_count()) + "@";
        for (const TableUpdate& update : row.table_updates.of(plan.table_updates)) {
          text += std::to_string(update.group) + ":" + std::to_string(update.begin) + ":";
          for (const BlockId block : update.blocks.of(plan.blocks)) {
            text += std::to_string(block) + ",";
          }
        }
      }
      executor.submit(std::move(plan));
      scheduler.commit(executor.collect());
    }
    return text;
  };
  EXPECT_EQ(trace(), trace());
}

}  // namespace
}  // namespace pelton::engine
