#include "executor/local_executor.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <pthread.h>

#include "base/machine.h"
#include "executor/device_step_model.h"
#include "executor/host_model.h"
#include "kernels/kernels.h"

namespace pelton::executor {
namespace {

// As many short texts as may share a step; a seat of theirs costs next to nothing.
constexpr int kPooledSequencesMax = 128;

// What all guides may make a step wait for, in steps of work (grammar/work_budget.h) on each
// thread: some milliseconds, whoever asks for what. More is done beside the steps (guide_work.h),
// what is long by one thread for so many of the model's.
constexpr int64_t kGuideWorkAStep = 160'000;
constexpr int kThreadsAGuideThread = 8;

Error broken_logits() {
  return Error{ErrorCode::kBadCheckpoint,
               "the model computed NaN or infinity for this request; its weights may be damaged"};
}

// The mask that leaves a row nothing else; empty: nothing is forced, or a guide forbids it.
std::vector<uint64_t> only_token(TokenId token, int vocab, std::span<const uint64_t> allowed) {
  if (token < 0 || token >= vocab || !grammar::may_be(allowed, token)) return {};
  std::vector<uint64_t> mask(static_cast<size_t>(vocab) / 64 + 1);
  mask[static_cast<size_t>(token) / 64] = uint64_t{1} << (token % 64);
  return mask;
}

}  // namespace

Result<cost_model::MemoryRequest> LocalExecutor::memory_request(const Options& options) {
  TRY_ASSIGN(const kernels::KernelChoice choice, kernels::parse_kernel_choice(options.kernels));
  base::ThreadPool pool({.threads = 1});
  TRY_ASSIGN(const auto kernels, kernels::make_kernels(choice, pool));
  const bool is_reference = kernels->name() == "reference";
  constexpr int kFastBlockTokens = 16;  // what they read at a time
  if (!is_reference && options.block_tokens != kFastBlockTokens) {
    return Error{ErrorCode::kUnsupported,
                 fmt::format("--block-size {}: the {} kernels read blocks of {} tokens",
                             options.block_tokens, kernels->name(), kFastBlockTokens),
                 "block-size"};
  }
  return cost_model::MemoryRequest{
      .sequences_max = options.sequences_max,
      .batch_tokens_max = options.batch_tokens_max,
      .block_tokens = options.block_tokens,
      .kv_dtype = options.kv_dtype.value_or(kernels->kv_dtype()),
      .kernels = is_reference ? cost_model::KernelKind::kReference : cost_model::KernelKind::kCpu,
      .threads = options.compute_threads != nullptr ? options.compute_threads->pool().size()
                 : options.threads > 0              ? options.threads
                                                    : static_cast<int>(base::usable_cpus().size()),
      .prefix_cache = options.prefix_cache,
      .context_tokens = options.context_tokens,
      .swap_bytes = options.swap_bytes,
      .kv_bytes = options.kv_bytes,
      .memory_utilization = options.memory_utilization,
      .memory_bytes = options.memory_bytes.value_or(base::memory_limit_bytes())};
}

Result<std::unique_ptr<LocalExecutor>> LocalExecutor::create(
    const checkpoint::Checkpoint& checkpoint, const Options& options) {
  TRY_ASSIGN(cost_model::MemoryRequest request, memory_request(options));
  std::shared_ptr<ComputeThreads> threads = options.compute_threads;
  if (threads == nullptr) threads = std::make_shared<ComputeThreads>(request.threads);
  base::ThreadPool& pool = threads->pool();
  std::unique_ptr<StepModel> model;
  // Loading uses them, too.
  const ComputeThreads::Turn turn = threads->take_turn();
  if (options.device) {
    request.kv_dtype = options.kv_dtype.value_or(tensor::DType::kF16);
    TRY_ASSIGN(const auto wish, cuda::parse_form_wish(options.kernel_choice));
    TRY_ASSIGN(model,
               DeviceStepModel::load(checkpoint, *options.device, request,
                                     {.wish = wish, .folder = options.kernel_choice_folder}, pool));
  } else {
    TRY_ASSIGN(const cost_model::Footprint footprint, cost_model::footprint(checkpoint, request));
    TRY(cost_model::check_fits(footprint));
    TRY_ASSIGN(const kernels::KernelChoice choice, kernels::parse_kernel_choice(options.kernels));
    TRY_ASSIGN(model, HostModel::load(checkpoint,
                                      {.kernels = choice,
                                       .batch_tokens_max = options.batch_tokens_max,
                                       .logit_rows_max = options.sequences_max},
                                      footprint, pool));
  }
  return std::unique_ptr<LocalExecutor>(
      new LocalExecutor(options, std::move(threads), std::move(model), checkpoint.config()));
}

LocalExecutor::LocalExecutor(const Options& options, std::shared_ptr<ComputeThreads> threads,
                             std::unique_ptr<StepModel> model, const families::ModelConfig& config)
    : options_(options),
      compute_threads_(std::move(threads)),
      pool_(compute_threads_->pool()),
      model_(std::move(model)),
      capacity_{.block_tokens = footprint().kv.block_tokens,
                .groups = footprint().kv_capacity(),
                .sequences_max = options.sequences_max,
                .pooled_sequences_max = std::min(options.batch_tokens_max, kPooledSequencesMax),
                .embedding_size = config.hidden_size,
                .batch_tokens_max = options.batch_tokens_max,
                .context_tokens_max = footprint().context_tokens_max,
                .vocab_size = config.vocab_size},
      seats_(static_cast<size_t>(capacity_.seat_count())),
      samplers_(static_cast<size_t>(pool_.size())),
      guide_threads_(std::max(1, pool_.size() / kThreadsAGuideThread)) {
  int64_t sampling = 0;
  for (sampling::Sampler& sampler : samplers_) {
    sampler.reserve(config.vocab_size);
    sampling += sampler.bytes();
  }
  for (int seat = 0; seat < capacity_.sequences_max; ++seat) {
    std::vector<uint64_t>& mask = seats_[static_cast<size_t>(seat)].guide.memory();
    mask.reserve((static_cast<size_t>(config.vocab_size) + 63) / 64);
    sampling += static_cast<int64_t>(mask.capacity() * sizeof(uint64_t));
  }
  CHECK(sampling == footprint().workspace.sampling, "what sampling keeps is not as foreseen");
  thread_ = std::thread([this] { work(); });
}

LocalExecutor::~LocalExecutor() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void LocalExecutor::submit(engine::StepPlan plan) {
  {
    std::lock_guard lock(mutex_);
    CHECK(plans_.size() + results_.size() < 2, "at most two steps may be in flight");
    plans_.push_back(std::move(plan));
  }
  changed_.notify_all();
}

engine::StepResult LocalExecutor::collect() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !results_.empty(); });
  engine::StepResult result = std::move(results_.front());
  results_.pop_front();
  return result;
}

void LocalExecutor::work() {
  pthread_setname_np(pthread_self(), "pelton-exec");
  const base::ThreadPool::PinnedCaller pinned = pool_.adopt_caller();
  while (true) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stopping_ || !plans_.empty(); });
      if (stopping_) break;
    }
    const ComputeThreads::Turn turn = compute_threads_->take_turn();
    Flight& flight = flights_[0];
    if (!flight.has_begun) begin(take_plan(), flight);
    begin_beside(flight);
    engine::StepResult result = finish(flight);
    {
      std::lock_guard lock(mutex_);
      plans_.pop_front();
      results_.push_back(std::move(result));
    }
    changed_.notify_all();
    fill_masks(flight.plan);  // while the engine's thread makes the next plan of it
    flight.has_begun = false;
    std::swap(flights_[0], flights_[1]);
  }
  if (!flights_[0].has_begun) return;
  const ComputeThreads::Turn turn = compute_threads_->take_turn();
  finish(flights_[0]);  // nobody collects it
}

engine::StepPlan LocalExecutor::take_plan() {
  std::lock_guard lock(mutex_);
  return std::move(plans_[flights_[0].has_begun ? 1 : 0]);
}

// The step behind begins as soon as its plan is there, if it hangs on nothing that only the end of
// this one tells: then a device goes on without waiting for anyone.
void LocalExecutor::begin_beside(const Flight& running) {
  constexpr std::chrono::microseconds kLook{20};
  if (!model_->draws_rows() || running.draws.empty()) return;
  const auto is_there = [&] { return stopping_ || plans_.size() > 1; };
  {
    std::unique_lock lock(mutex_);
    while (!is_there() && !model_->is_done()) changed_.wait_for(lock, kLook, is_there);
    if (stopping_ || plans_.size() < 2 || !may_begin_beside(plans_[1], running)) return;
  }
  begin(take_plan(), flights_[1]);
  ++overlapped_;
}

bool LocalExecutor::may_begin_beside(const engine::StepPlan& next, const Flight& running) const {
  for (const engine::PlannedSequence& sequence : running.plan.sequences) {
    const SeatState& seat = seats_[sequence.seat];
    if (seat.pooling || sequence.embed || sequence.targets.count > 0) return false;
  }
  for (const Draw& draw : running.draws) {
    if (!draw.on_device) return false;
  }
  if (!next.copies.empty() || next.sequences.empty()) return false;
  size_t edits = next.banned.size();
  for (const engine::PlannedSequence& sequence : next.sequences) {
    const engine::Arrival* const arrival = next.arrival_of(sequence);
    const SeatState& seat = seats_[sequence.seat];
    if (sequence.embed || sequence.targets.count > 0) return false;
    if (arrival != nullptr ? arrival->pooling.has_value() : seat.pooling.has_value()) return false;
    const bool is_drawn_from = seat.pending.row >= 0;  // by the running step
    if (is_drawn_from && (arrival != nullptr || seat.guide.active())) return false;
    const request::SamplingParams& sampling =
        arrival != nullptr ? arrival->sampling : seat.sampling;
    if (sampling::DeviceRows::are_hosts(sampling)) return false;
    edits += sampling.logit_bias.size();
    if (!sampling.has_penalties()) continue;
    edits += sampling::DeviceRows::penalties_of(arrival != nullptr ? arrival->history.size()
                                                                   : seat.history.counts().size());
  }
  return edits <= sampling::DeviceRows::kEditsMax;
}

// A table of contents: copies -> seats -> flat arrays -> what may be drawn -> the model.
void LocalExecutor::begin(engine::StepPlan given, Flight& flight) {
  flight.plan = std::move(given);
  flight.has_begun = true;
  flight.computes = false;
  flight.draws.clear();
  flight.result = {};
  const engine::StepPlan& plan = flight.plan;
  flight.result.step = plan.step;
  flight.begun = plan.copies.empty() ? Result<void>() : model_->copy_blocks(plan.copies);
  if (!flight.begun.ok() || plan.sequences.empty()) return;
  take_seats(plan);
  grant_guides(plan);
  const models::ForwardInput input = flatten(plan);
  list_draws(flight);
  model_->begin(input, device_draws(flight));
  flight.computes = true;
}

engine::StepResult LocalExecutor::finish(Flight& flight) {
  const Result<void> computed = complete(flight);
  if (computed.ok()) return std::move(flight.result);
  for (const Draw& draw : flight.draws) forget_pending(flight.plan, draw);
  engine::StepResult nothing;  // a device said no: nothing of the step counts
  nothing.step = flight.plan.step;
  nothing.error = computed.error();
  return nothing;
}

// Logits or tokens -> the step's result.
Result<void> LocalExecutor::complete(Flight& flight) {
  TRY(flight.begun);
  if (!flight.computes) return {};
  TRY_ASSIGN(float* logits, model_->finish());
  sample(flight, logits);
  score_prompts(flight.plan, flight.result);  // over the logits that are done with
  return pool(flight.plan, flight.result);
}

void LocalExecutor::take_seats(const engine::StepPlan& plan) {
  for (const engine::PlannedSequence& sequence : plan.sequences) {
    SeatState& seat = seats_[sequence.seat];
    seat.tables.follow(plan, sequence);
    // What a deferred row computed is computed again, with tokens that are known by now.
    if (sequence.tokens.count > 0) seat.deferral = nullptr;
    const engine::Arrival* const arrival = plan.arrival_of(sequence);
    if (arrival == nullptr) continue;
    seat.sampling = arrival->sampling;
    seat.history.clear();
    seat.pooling = arrival->pooling;
    seat.sum.clear();
    seat.guide.clear();
    seat.held.reset();
    seat.known = 0;
    const std::span<const TokenId> history(arrival->history);
    const auto prompt = std::min(static_cast<size_t>(arrival->prompt_count), history.size());
    seat.history.add_prompt(history.first(prompt));
    for (const TokenId token : history.subspan(prompt)) seat.history.add_output(token);
    if (arrival->guide) {
      seat.guide.begin(*arrival->guide, history.subspan(prompt), arrival->tenant);
    }
  }
}

// Not if its token was told with an earlier one, which left no choice.
bool LocalExecutor::samples(const engine::PlannedSequence& sequence) const {
  return sequence.sample && sequence.start + sequence.token_count() >= seats_[sequence.seat].known;
}

models::ForwardInput LocalExecutor::flatten(const engine::StepPlan& plan) const {
  models::ForwardInput input;
  for (const engine::PlannedSequence& sequence : plan.sequences) {
    const std::span<const TokenId> known = sequence.tokens.of(plan.tokens);
    input.tokens.insert(input.tokens.end(), known.begin(), known.end());
    if (known.empty()) {
      const SeatState& seat = seats_[sequence.seat];
      input.tokens.push_back(seat.pending.row >= 0 ? ~seat.pending.row : seat.last_token);
    }
    kv::PerGroup<const int32_t*> tables;
    for (int group = 0; group < capacity_.groups.size(); ++group) {
      tables.push_back(seats_[sequence.seat].tables.of(group).data());
    }
    input.sequences.push_back({sequence.start, sequence.token_count(), tables});
    if (samples(sequence)) input.logit_rows.push_back(static_cast<int>(input.tokens.size()) - 1);
  }
  return input;
}

void LocalExecutor::list_draws(Flight& flight) {
  const engine::StepPlan& plan = flight.plan;
  for (size_t i = 0; i < plan.sequences.size(); ++i) {
    const engine::PlannedSequence& sequence = plan.sequences[i];
    flight.result.sequences.push_back({.seat = sequence.seat});
    if (!samples(sequence)) continue;
    const auto row = static_cast<int32_t>(flight.draws.size());
    flight.result.sequences[i].tokens = {row, 1};
    SeatState::Pending& pending = seats_[sequence.seat].pending;
    flight.draws.push_back({.index = i, .pending_row = pending.row});
    pending = {plan.step, row};
  }
  flight.result.tokens.resize(flight.draws.size());
}

// Null: the model leaves all rows to the host.
sampling::DeviceRows* LocalExecutor::device_draws(Flight& flight) {
  std::vector<Draw>& draws = flight.draws;
  if (!model_->draws_rows() || draws.empty()) return nullptr;
  pool_.parallel_for(static_cast<int64_t>(draws.size()), 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) prepare(flight.plan, draws[row]);
  });
  flight.rows.clear(sampled_vocab());
  for (Draw& draw : draws) {
    const bool is_drawn = draw.is_drawn();
    draw.on_device = is_drawn && flight.rows.add(input_of(flight.plan, draw), draw.pending_row);
    if (!is_drawn) flight.rows.skip();
  }
  return &flight.rows;
}

void LocalExecutor::sample(Flight& flight, float* logits) {
  const engine::StepPlan& plan = flight.plan;
  std::vector<Draw>& draws = flight.draws;
  const int vocab = capacity_.vocab_size;
  const auto sampled = static_cast<size_t>(sampled_vocab());
  jumps_.resize(std::max(jumps_.size(), draws.size()));
  pool_.parallel_for(
      static_cast<int64_t>(draws.size()), 1, [&](int64_t begin, int64_t end, int worker) {
        for (int64_t row = begin; row < end; ++row) {
          Draw& draw = draws[row];
          if (!model_->draws_rows()) prepare(plan, draw);
          if (draw.on_device) {
            settle(plan, draw, flight.rows.choice(static_cast<size_t>(row)), flight.result);
          } else if (!draw.is_drawn()) {
            settle(plan, draw, {.usable = false}, flight.result);
          } else {
            const std::span<float> its(logits + row * vocab, sampled);
            settle(plan, draw, samplers_[worker].sample(its, input_of(plan, draw)), flight.result);
          }
        }
      });
  add_jumps(draws, flight.result);
}

// Puts what must follow behind each sample.
void LocalExecutor::add_jumps(std::span<const Draw> draws, engine::StepResult& result) {
  size_t more = 0;
  for (size_t row = 0; row < draws.size(); ++row) more += jumps_[row].size();
  if (more == 0) return;
  std::vector<engine::SampledToken> tokens;
  tokens.reserve(draws.size() + more);
  for (size_t row = 0; row < draws.size(); ++row) {
    engine::Stretch& given = result.sequences[draws[row].index].tokens;
    given.first = static_cast<int32_t>(tokens.size());
    tokens.push_back(std::move(result.tokens[row]));
    for (const TokenId token : jumps_[row]) tokens.push_back({.token = token});
    given.count += static_cast<int32_t>(jumps_[row].size());
  }
  result.tokens = std::move(tokens);
}

int LocalExecutor::sampled_vocab() const {
  const int vocab = capacity_.vocab_size;
  return options_.sampled_vocab > 0 ? std::min(vocab, options_.sampled_vocab) : vocab;
}

// The more guides a step has, the less each may make it wait.
void LocalExecutor::grant_guides(const engine::StepPlan& plan) {
  const auto guides =
      std::count_if(plan.sequences.begin(), plan.sequences.end(),
                    [&](const auto& sequence) { return seats_[sequence.seat].guide.active(); });
  const int64_t share = kGuideWorkAStep * pool_.size() / std::max<int64_t>(guides, 1);
  guide_work_max_ = std::min(options_.guide_work_max, share);
}

GuideFollower::Grant LocalExecutor::guide_grant() {
  return {.threads = guide_threads_,
          .work_max = guide_work_max_,
          .mask_words = (static_cast<size_t>(sampled_vocab()) + 63) / 64};
}

// What a guide allows next is known as soon as its last token is, so it is found out between two
// steps, when nothing else is computed; whoever samples finds it there. Where it takes long it is
// found out beside the steps that follow.
void LocalExecutor::fill_masks(const engine::StepPlan& plan) {
  guided_.clear();
  for (const engine::PlannedSequence& sequence : plan.sequences) {
    SeatState& seat = seats_[sequence.seat];
    const bool wanted = seat.guide.active() && !seat.deferral && !seat.guide.over();
    if (wanted) guided_.push_back(&seat);
  }
  if (guided_.empty()) return;
  const GuideFollower::Grant grant = guide_grant();
  pool_.parallel_for(static_cast<int64_t>(guided_.size()), 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) (void)guided_[i]->guide.find_allowed(grant);
  });
}

// What may be drawn from a row, as far as the sequence says: known before the row is.
void LocalExecutor::prepare(const engine::StepPlan& plan, Draw& draw) {
  const engine::PlannedSequence& sequence = plan.sequences[draw.index];
  SeatState& seat = seats_[sequence.seat];
  draw.banned = sequence.banned.of(plan.banned);
  if (seat.guide.active()) prepare_guided(draw, seat, sequence.forced);
  if (!draw.is_drawn()) return;
  draw.only = only_token(sequence.forced, sampled_vocab(), draw.allowed);
  if (!draw.only.empty()) {
    draw.allowed = draw.only;
    draw.banned = {};
  }
}

void LocalExecutor::prepare_guided(Draw& draw, SeatState& seat, TokenId forced) {
  draw.is_deferred = seat.deferral != nullptr;
  if (draw.is_deferred) return;
  const bool is_other = forced != engine::kNotForced && seat.held && seat.held->token != forced;
  if (is_other) {  // put there since that one was drawn
    seat.guide.take_back();
    seat.held.reset();
  }
  switch (seat.guide.find_allowed(guide_grant())) {
    case GuideFollower::State::kFailed:
      draw.error = seat.guide.error();
      return;
    case GuideFollower::State::kLater:
      draw.is_deferred = true;
      seat.deferral = seat.guide.deferral();
      return;
    case GuideFollower::State::kKnown:
      break;
  }
  draw.is_held = seat.held.has_value();
  draw.allowed = seat.guide.allowed();
  // An end that must come comes, though it is early.
  if (!draw.allowed.empty() && !draw.banned.empty() &&
      !grammar::allows_other(draw.allowed, draw.banned)) {
    draw.banned = {};
  }
}

sampling::DrawInput LocalExecutor::input_of(const engine::StepPlan& plan, const Draw& draw) const {
  const engine::PlannedSequence& sequence = plan.sequences[draw.index];
  const SeatState& seat = seats_[sequence.seat];
  return {.params = seat.sampling,
          .history = seat.sampling.has_penalties() ? &seat.history : nullptr,
          .banned = draw.banned,
          .allowed = draw.allowed,
          .position = sequence.start + sequence.token_count()};
}

// Unless the step behind has begun: then it is that one's row that is awaited.
void LocalExecutor::forget_pending(const engine::StepPlan& plan, const Draw& draw) {
  SeatState& seat = seats_[plan.sequences[draw.index].seat];
  if (seat.pending.step == plan.step) seat.pending = {};
}

// The sequence has its token, or an error.
void LocalExecutor::settle(const engine::StepPlan& plan, Draw& draw,
                           const sampling::SampledChoice& choice, engine::StepResult& result) {
  const engine::PlannedSequence& sequence = plan.sequences[draw.index];
  SeatState& seat = seats_[sequence.seat];
  forget_pending(plan, draw);
  engine::SequenceResult& given = result.sequences[draw.index];
  std::vector<TokenId>& more = jumps_[static_cast<size_t>(given.tokens.first)];
  more.clear();
  const auto fail = [&](Error error) {
    given.error = std::make_unique<Error>(std::move(error));
    given.tokens.count = 0;
  };
  if (draw.error) return fail(*std::move(draw.error));
  const auto defer = [&] {
    given.deferral = seat.deferral;
    given.tokens.count = 0;
  };
  if (draw.is_deferred) return defer();
  const sampling::SampledChoice& told = draw.is_held ? *seat.held : choice;
  if (!told.usable) return fail(broken_logits());
  if (seat.guide.active() && !draw.is_held) {
    switch (follow(sequence, seat, told)) {
      case GuideFollower::State::kFailed:
        return fail(seat.guide.error());
      case GuideFollower::State::kLater:
        seat.held = told;
        seat.deferral = seat.guide.deferral();
        return defer();
      case GuideFollower::State::kKnown:
        break;
    }
  }
  seat.last_token = told.token;
  if (seat.sampling.has_penalties()) seat.history.add_output(told.token);
  result.tokens[given.tokens.first] = {told.token, told.logprob, told.top};
  seat.held.reset();
  if (seat.guide.active()) jump(sequence, more);
}

// Over the token, and over what must come behind it. Not where a token was put there, which has
// others behind it that the scheduler will put there; and whoever wants to know how likely tokens
// were wants them computed.
GuideFollower::State LocalExecutor::follow(const engine::PlannedSequence& sequence, SeatState& seat,
                                           const sampling::SampledChoice& choice) {
  const bool may_jump = sequence.forced == engine::kNotForced && seat.sampling.logprobs < 0;
  const int most = std::min(options_.jump_tokens_max, engine::kJumpTokensMax);
  return seat.guide.accept(choice.token, may_jump ? most : 0, guide_grant());
}

// What the guide leaves no choice about is told with the token before it.
void LocalExecutor::jump(const engine::PlannedSequence& sequence, std::vector<TokenId>& more) {
  SeatState& seat = seats_[sequence.seat];
  more = seat.guide.take_forced();
  if (more.empty()) return;
  if (seat.sampling.has_penalties()) {
    for (const TokenId token : more) seat.history.add_output(token);
  }
  seat.known = sequence.start + sequence.token_count() + 1 + static_cast<int>(more.size());
}

// Prompts whose log-probabilities are wanted need every row's logits: as many at a time as a step
// may sample, so that no room is needed beside what decoding has.
void LocalExecutor::score_prompts(const engine::StepPlan& plan, engine::StepResult& result) {
  struct Target {
    size_t sequence;  // index in the plan
    TokenId token;
  };
  std::vector<int> rows;
  std::vector<Target> targets;  // of each row
  int row = 0;
  for (size_t i = 0; i < plan.sequences.size(); ++i) {
    const engine::PlannedSequence& sequence = plan.sequences[i];
    result.sequences[i].scored = {static_cast<int32_t>(rows.size()), sequence.targets.count};
    for (const TokenId token : sequence.targets.of(plan.tokens)) {
      rows.push_back(row + static_cast<int>(rows.size()) - result.sequences[i].scored.first);
      targets.push_back({.sequence = i, .token = token});
    }
    row += sequence.token_count();
  }
  if (rows.empty()) return;
  const auto vocab = static_cast<size_t>(capacity_.vocab_size);
  const size_t sampled =
      options_.sampled_vocab > 0 ? std::min(vocab, size_t{1} * options_.sampled_vocab) : vocab;
  result.prompt_tokens.resize(rows.size());
  std::vector<char> broken(rows.size(), 0);
  const auto score = [&](size_t first, float* logits, size_t count) {
    pool_.parallel_for(static_cast<int64_t>(count), 1, [&](int64_t begin, int64_t end, int worker) {
      for (int64_t i = begin; i < end; ++i) {
        const size_t at = first + static_cast<size_t>(i);
        const SeatState& seat = seats_[plan.sequences[targets[at].sequence].seat];
        sampling::ScoredChoice scored =
            samplers_[worker].score({logits + static_cast<size_t>(i) * vocab, sampled},
                                    targets[at].token, seat.sampling.prompt_logprobs);
        broken[at] = scored.choice.usable ? 0 : 1;
        result.prompt_tokens[at] = {
            {targets[at].token, scored.choice.logprob, std::move(scored.choice.top)}, scored.rank};
      }
    });
  };
  const Result<void> computed = model_->logits_of(rows, score);
  for (size_t at = 0; at < targets.size(); ++at) {
    engine::SequenceResult& given = result.sequences[targets[at].sequence];
    if ((computed.ok() && broken[at] == 0) || given.error) continue;
    given.error = std::make_unique<Error>(computed.ok() ? broken_logits() : computed.error());
    given.tokens.count = 0;
  }
}

// The last state, or the mean over all. A state does not depend on its batch, and a mean adds them
// in the order of positions: so neither do embeddings.
Result<void> LocalExecutor::pool(const engine::StepPlan& plan, engine::StepResult& result) {
  const size_t size = static_cast<size_t>(capacity_.embedding_size);
  std::vector<int> rows;          // whose states are wanted
  std::vector<size_t> sequences;  // of each row, the index in the plan
  int row = 0;
  for (size_t i = 0; i < plan.sequences.size(); ++i) {
    const engine::PlannedSequence& sequence = plan.sequences[i];
    const SeatState& seat = seats_[sequence.seat];
    const int end = row + sequence.token_count();
    int first = end;
    if (seat.pooling == request::Pooling::kMean) first = row;
    if (seat.pooling == request::Pooling::kLast && sequence.embed) first = end - 1;
    for (int wanted = first; wanted < end; ++wanted) {
      rows.push_back(wanted);
      sequences.push_back(i);
    }
    row = end;
  }
  if (rows.empty()) return {};
  const auto sees = [&](size_t index, const float* state) {
    SeatState& seat = seats_[plan.sequences[sequences[index]].seat];
    if (seat.pooling == request::Pooling::kLast) return seat.sum.assign(state, state + size);
    seat.sum.resize(size, 0.0);
    for (size_t i = 0; i < size; ++i) seat.sum[i] += static_cast<double>(state[i]);
  };
  TRY(model_->normed_rows(rows, sees));
  for (size_t i = 0; i < plan.sequences.size(); ++i) {
    const engine::PlannedSequence& sequence = plan.sequences[i];
    if (sequence.embed) give_embedding(sequence, result.sequences[i], result.floats);
  }
  return {};
}

void LocalExecutor::give_embedding(const engine::PlannedSequence& sequence,
                                   engine::SequenceResult& given, std::vector<float>& floats) {
  std::vector<double>& sum = seats_[sequence.seat].sum;
  const bool is_mean = seats_[sequence.seat].pooling == request::Pooling::kMean;
  const double count = is_mean ? sequence.start + sequence.token_count() : 1;
  const auto first = static_cast<int32_t>(floats.size());
  bool finite = true;
  for (const double value : sum) {
    floats.push_back(static_cast<float>(value / count));
    finite = finite && std::isfinite(floats.back());
  }
  sum.clear();
  if (finite) {
    given.embedding = {first, capacity_.embedding_size};
  } else {
    given.error = std::make_unique<Error>(broken_logits());
  }
}

}  // namespace pelton::executor
