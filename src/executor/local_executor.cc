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

Error broken_logits() {
  return Error{ErrorCode::kBadCheckpoint,
               "the model computed NaN or infinity for this request; its weights may be damaged"};
}

// Rows may be wider than the vocabulary that a mask is over: what is beyond has no token.
std::span<const uint64_t> widened(std::span<const uint64_t> mask, size_t bits,
                                  std::vector<uint64_t>& room) {
  const size_t words = (bits + 63) / 64;
  if (mask.empty() || mask.size() >= words) return mask;
  if (mask.data() != room.data()) room.assign(mask.begin(), mask.end());
  room.resize(words, 0);
  return room;
}

// Never any token instead: what comes out is not what was asked for.
Error nothing_allowed() {
  return Error{ErrorCode::kInternal, "the request's grammar leaves no token that could follow"};
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
      .threads =
          options.threads > 0 ? options.threads : static_cast<int>(base::usable_cpus().size()),
      .prefix_cache = options.prefix_cache,
      .context_tokens = options.context_tokens,
      .swap_bytes = options.swap_bytes,
      .kv_bytes = options.kv_bytes,
      .memory_utilization = options.memory_utilization,
      .memory_bytes = base::memory_limit_bytes()};
}

Result<std::unique_ptr<LocalExecutor>> LocalExecutor::create(
    const checkpoint::Checkpoint& checkpoint, const Options& options) {
  TRY_ASSIGN(cost_model::MemoryRequest request, memory_request(options));
  auto pool =
      std::make_unique<base::ThreadPool>(base::ThreadPool::Options{.threads = request.threads});
  std::unique_ptr<StepModel> model;
  if (options.device) {
    request.kv_dtype = options.kv_dtype.value_or(tensor::DType::kF16);
    TRY_ASSIGN(const auto wish, kernels::gpu::parse_form_wish(options.kernel_choice));
    TRY_ASSIGN(model, DeviceStepModel::load(checkpoint, *options.device, request,
                                            {.wish = wish, .folder = options.kernel_choice_folder},
                                            *pool));
  } else {
    TRY_ASSIGN(const cost_model::Footprint footprint, cost_model::footprint(checkpoint, request));
    TRY(cost_model::check_fits(footprint));
    TRY_ASSIGN(const kernels::KernelChoice choice, kernels::parse_kernel_choice(options.kernels));
    TRY_ASSIGN(model, HostModel::load(checkpoint,
                                      {.kernels = choice,
                                       .batch_tokens_max = options.batch_tokens_max,
                                       .logit_rows_max = options.sequences_max},
                                      footprint, *pool));
  }
  return std::unique_ptr<LocalExecutor>(
      new LocalExecutor(options, std::move(pool), std::move(model), checkpoint.config()));
}

LocalExecutor::LocalExecutor(const Options& options, std::unique_ptr<base::ThreadPool> pool,
                             std::unique_ptr<StepModel> model,
                             const checkpoint::ModelConfig& config)
    : options_(options),
      pool_holder_(std::move(pool)),
      pool_(*pool_holder_),
      model_(std::move(model)),
      capacity_{.block_tokens = footprint().kv.block_tokens,
                .full_block_count = footprint().kv.full_block_count,
                .window_block_count = footprint().kv.window_block_count,
                .host_full_block_count = footprint().swap.full_block_count,
                .host_window_block_count = footprint().swap.window_block_count,
                .window_tokens = config.sliding_window,
                .sequences_max = options.sequences_max,
                .pooled_sequences_max = std::min(options.batch_tokens_max, kPooledSequencesMax),
                .embedding_size = config.hidden_size,
                .batch_tokens_max = options.batch_tokens_max,
                .context_tokens_max = footprint().context_tokens_max,
                .vocab_size = config.vocab_size},
      seats_(static_cast<size_t>(capacity_.seat_count())),
      samplers_(static_cast<size_t>(pool_.size())) {
  int64_t sampling = 0;
  for (sampling::Sampler& sampler : samplers_) {
    sampler.reserve(config.vocab_size);
    sampling += sampler.bytes();
  }
  for (int seat = 0; seat < capacity_.sequences_max; ++seat) {
    std::vector<uint64_t>& mask = seats_[static_cast<size_t>(seat)].mask;
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
  if (flights_[0].has_begun) finish(flights_[0]);  // nobody collects it
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
    if (is_drawn_from && (arrival != nullptr || seat.guide)) return false;
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
    const engine::Arrival* const arrival = plan.arrival_of(sequence);
    if (arrival == nullptr) continue;
    seat.sampling = arrival->sampling;
    seat.history.clear();
    seat.pooling = arrival->pooling;
    seat.sum.clear();
    seat.guide = arrival->guide;
    seat.guide_lost = false;
    seat.allowed.reset();
    seat.known = 0;
    const std::span<const TokenId> history(arrival->history);
    if (history.empty()) continue;
    const auto prompt = static_cast<size_t>(arrival->prompt_count);
    seat.history.add_prompt(history.first(prompt));
    for (const TokenId token : history.subspan(prompt)) {
      seat.history.add_output(token);
      if (seat.guide && !seat.guide->accept(token)) seat.guide_lost = true;
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
    const engine::SeatTables& tables = seats_[sequence.seat].tables;
    input.sequences.push_back(
        {sequence.start, sequence.token_count(), tables.full.data(), tables.window.data()});
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
    draw.on_device = !draw.error && flight.rows.add(input_of(flight.plan, draw), draw.pending_row);
    if (draw.error) flight.rows.skip();
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
          } else if (draw.error) {
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

void LocalExecutor::fill_mask(SeatState& seat) const {
  seat.allowed =
      widened(seat.guide->mask(seat.mask), static_cast<size_t>(sampled_vocab()), seat.mask);
}

// What a guide allows next is known as soon as its last token is, so it is found out between two
// steps, when nothing else is computed; whoever samples finds it there.
void LocalExecutor::fill_masks(const engine::StepPlan& plan) {
  guided_.clear();
  for (const engine::PlannedSequence& sequence : plan.sequences) {
    SeatState& seat = seats_[sequence.seat];
    const bool wanted = seat.guide && !seat.guide_lost && !seat.allowed && !seat.guide->over();
    if (wanted) guided_.push_back(&seat);
  }
  if (guided_.empty()) return;
  pool_.parallel_for(static_cast<int64_t>(guided_.size()), 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) fill_mask(*guided_[i]);
  });
}

// What may be drawn from a row, as far as the sequence says: known before the row is.
void LocalExecutor::prepare(const engine::StepPlan& plan, Draw& draw) {
  const engine::PlannedSequence& sequence = plan.sequences[draw.index];
  SeatState& seat = seats_[sequence.seat];
  draw.banned = sequence.banned.of(plan.banned);
  if (seat.guide_lost) {
    draw.error = nothing_allowed();
    return;
  }
  if (seat.guide) {
    if (!seat.allowed) fill_mask(seat);
    draw.allowed = *seat.allowed;
    // An end that must come comes, though it is early.
    if (!draw.allowed.empty() && !draw.banned.empty() &&
        !grammar::allows_other(draw.allowed, draw.banned)) {
      draw.banned = {};
    }
    if (!draw.allowed.empty() && !grammar::allows_other(draw.allowed, {})) {
      draw.error = nothing_allowed();
      return;
    }
  }
  draw.only = only_token(sequence.forced, sampled_vocab(), draw.allowed);
  if (!draw.only.empty()) {
    draw.allowed = draw.only;
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
  seat.last_token = choice.token;
  if (!choice.usable) return fail(broken_logits());
  seat.allowed.reset();
  if (seat.guide && !seat.guide->accept(choice.token)) return fail(nothing_allowed());
  if (seat.sampling.has_penalties()) seat.history.add_output(choice.token);
  result.tokens[given.tokens.first] = {choice.token, choice.logprob, choice.top};
  if (seat.guide) jump(sequence, more);
}

// A token that was put there has others behind it that the scheduler will put there; and whoever
// wants to know how likely tokens were wants them computed.
void LocalExecutor::jump(const engine::PlannedSequence& sequence, std::vector<TokenId>& more) {
  SeatState& seat = seats_[sequence.seat];
  const int most = std::min(options_.jump_tokens_max, engine::kJumpTokensMax);
  if (most <= 0 || sequence.forced != engine::kNotForced || seat.sampling.logprobs >= 0) return;
  more = seat.guide->forced(static_cast<size_t>(most));
  if (more.empty()) return;
  for (const TokenId token : more) {
    CHECK(seat.guide->accept(token), "a forced token that its guide refuses");
    if (seat.sampling.has_penalties()) seat.history.add_output(token);
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
