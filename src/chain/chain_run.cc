#include "chain/chain_run.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace pelton::chain {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr double kWaitMax_s = 30;
// So many builtins are computed before others have their turn on the thread.
constexpr int kComputedMax = 32;

// What the value cannot be computed of is the request's or the model's doing.
constexpr int kUnprocessable = 422;
// A host that a step asks is none of ours.
constexpr int kFailedDependency = 424;
constexpr int kTimedOut = 408;

int64_t ns(double seconds) {
  return static_cast<int64_t>(seconds * static_cast<double>(kSecond));
}

bool may_retry_status(const Step::Retry& retry, int status) {
  return (retry.server_error && status >= 500) || (retry.busy && status == 429);
}

bool may_retry_answer(const Step::Retry& retry, const CallAnswer& answer) {
  switch (answer.fault) {
    case CallAnswer::Fault::kNone:
      return may_retry_status(retry, answer.status);
    case CallAnswer::Fault::kTimeout:
      return retry.timeout;
    case CallAnswer::Fault::kUnreachable:
      return retry.unreachable;
    case CallAnswer::Fault::kTooLarge:
      return false;
  }
  return false;
}

std::string failure_text(const Step& step, const CallAnswer& answer) {
  switch (answer.fault) {
    case CallAnswer::Fault::kTimeout:
      return fmt::format("no answer within {} s", step.timeout_s);
    case CallAnswer::Fault::kUnreachable:
      return fmt::format("is not reached: {}", answer.detail);
    case CallAnswer::Fault::kTooLarge:
      return "the answer is too large: " + answer.detail;
    case CallAnswer::Fault::kNone:
      break;
  }
  return fmt::format("answered {}: {}", answer.status, error_text(answer));
}

int failure_status(const Step& step, const CallAnswer& answer) {
  if (step.kind == Step::Kind::kHttp) return kFailedDependency;
  switch (answer.fault) {
    case CallAnswer::Fault::kTimeout:
      return kTimedOut;
    case CallAnswer::Fault::kTooLarge:
      return kUnprocessable;
    case CallAnswer::Fault::kUnreachable:
      return 502;
    case CallAnswer::Fault::kNone:
      break;
  }
  return answer.status >= 400 ? answer.status : kFailedDependency;
}

}  // namespace

ChainRun::ChainRun(const Chain& chain, Json input, const Options& options, int64_t now_ns)
    : chain_(chain),
      input_(std::move(input)),
      options_(options),
      states_(chain.steps.size()),
      steps_left_(chain.steps.size()) {
  for (size_t i = 0; i < chain.steps.size(); ++i) {
    index_.emplace(chain.steps[i].name, i);
    states_[i].needs_left = chain.steps[i].needs.size();
    states_[i].uses_left = chain.steps[i].used_by.size() + (chain.steps[i].is_output ? 1 : 0);
  }
  for (size_t i = 0; i < chain.steps.size(); ++i) {
    if (!over_ && states_[i].needs_left == 0 && states_[i].phase == StepState::Phase::kWaiting) {
      begin(i, now_ns);
    }
  }
}

ValueOf ChainRun::names(const Json* item, const Json* index) const {
  return [this, item, index](std::string_view name) -> const Json* {
    if (name == "input") return &input_;
    if (name == "item") return item;
    if (name == "index") return index;
    const auto found = index_.find(name);
    return found == index_.end() ? nullptr : &states_[found->second].value;
  };
}

ChainRun::Work ChainRun::advance(int64_t now_ns) {
  computed_ = 0;
  interrupted_ = false;
  expire(now_ns);
  if (!held_) {
    for (size_t i = 0; i < states_.size() && !over_; ++i) pump(i, now_ns);
  }
  return std::exchange(work_, {});
}

std::optional<int64_t> ChainRun::wake_ns() const {
  if (over_) return std::nullopt;
  std::optional<int64_t> first = options_.deadline_ns;
  const auto note = [&](int64_t at) { first = first ? std::min(*first, at) : at; };
  if (interrupted_ && !held_) note(0);
  if (!deadlines_.empty()) note(deadlines_.begin()->first);
  for (size_t i = 0; i < states_.size(); ++i) {
    // Where all its calls are under way an answer comes before anything else can begin.
    if (held_ || states_[i].phase != StepState::Phase::kRunning || !has_capacity(i)) continue;
    for (const Attempt& attempt : states_[i].again) note(attempt.at_ns);
  }
  return first;
}

void ChainRun::expire(int64_t now_ns) {
  if (over_) return;
  if (options_.deadline_ns && now_ns >= *options_.deadline_ns) {
    return end({.kind = RunFailure::Kind::kDeadline,
                .step = {},
                .status = kTimedOut,
                .message = "the chain did not end before its deadline"});
  }
  while (!over_ && !deadlines_.empty() && deadlines_.begin()->first <= now_ns) {
    const uint64_t call = deadlines_.begin()->second;
    work_.ended.push_back(call);
    on_answer(call, {.fault = CallAnswer::Fault::kTimeout, .status = 0, .body = {}, .detail = {}},
              now_ns);
  }
}

// Its needs are there: what is to be done, or that it is left out.
void ChainRun::begin(size_t step, int64_t now_ns) {
  const Step& what = chain_.steps[step];
  StepState& state = states_[step];
  state.phase = StepState::Phase::kRunning;
  state.started_ns = now_ns;
  const ValueOf values = names(nullptr, nullptr);
  if (what.when) {
    const Result<Evaluated> holds = evaluate(what.when->expression, values);
    if (!holds.ok()) return fail(step, kUnprocessable, "'when': " + holds.error().message);
    if (!holds->get().is_bool() || !holds->get().as_bool()) {
      state.summary.skipped = true;
      work_.events.push_back({.kind = RunEvent::Kind::kStepSkipped, .step = step});
      return finish_step(step, Json(), now_ns);
    }
  }
  state.piece_count = 1;
  if (what.for_each) {
    Result<Evaluated> items = evaluate(what.for_each->expression, values);
    if (!items.ok()) return fail(step, kUnprocessable, "'for_each': " + items.error().message);
    if (!items->get().is_array()) {
      return fail(step, kUnprocessable,
                  fmt::format("'for_each' is {}, no list", items->get().kind_name()));
    }
    state.piece_count = std::ssize(items->get().as_array());
    if (state.piece_count > what.pieces_max) {
      return fail(step, kUnprocessable,
                  fmt::format("'for_each' has {} pieces; at most {} (pieces_max)",
                              state.piece_count, what.pieces_max));
    }
    state.items = *std::move(items);
    state.results.resize(static_cast<size_t>(state.piece_count));
    state.summary.pieces = state.piece_count;
  }
  state.pieces_left = state.piece_count;
  work_.events.push_back({.kind = RunEvent::Kind::kStepStarted,
                          .step = step,
                          .piece = -1,
                          .pieces = state.summary.pieces});
  if (state.piece_count == 0) finish_step(step, Json(Json::Array{}), now_ns);
}

bool ChainRun::has_capacity(size_t step) const {
  return states_[step].in_flight < chain_.steps[step].parallel &&
         std::ssize(in_flight_) < options_.calls_max && bodies_bytes_ < options_.bodies_bytes_max;
}

// One that has failed and waited goes before a new piece.
std::optional<ChainRun::Attempt> ChainRun::next_attempt(StepState& state, int64_t now_ns) {
  const auto due = std::ranges::find_if(
      state.again, [&](const Attempt& attempt) { return attempt.at_ns <= now_ns; });
  if (due != state.again.end()) {
    const Attempt attempt = *due;
    state.again.erase(due);
    return attempt;
  }
  // Those that wait count: what fails is not left behind by thousands of others.
  if (state.next_piece >= state.piece_count) return std::nullopt;
  return Attempt{.piece = state.next_piece++, .number = 0, .at_ns = 0};
}

void ChainRun::pump(size_t step, int64_t now_ns) {
  StepState& state = states_[step];
  const Step& what = chain_.steps[step];
  while (!over_ && state.phase == StepState::Phase::kRunning && has_capacity(step)) {
    if (state.in_flight + std::ssize(state.again) >= what.parallel && !state.again.empty()) {
      const bool due = std::ranges::any_of(
          state.again, [&](const Attempt& attempt) { return attempt.at_ns <= now_ns; });
      if (!due) return;
    }
    if (computed_ >= kComputedMax) {
      interrupted_ = state.next_piece < state.piece_count || !state.again.empty() || interrupted_;
      return;
    }
    const std::optional<Attempt> attempt = next_attempt(state, now_ns);
    if (!attempt) return;
    start(step, *attempt, now_ns);
  }
}

void ChainRun::start(size_t step, const Attempt& attempt, int64_t now_ns) {
  const Step& what = chain_.steps[step];
  StepState& state = states_[step];
  const Json index(attempt.piece);
  const Json* const item =
      state.items ? &state.items->get().as_array()[static_cast<size_t>(attempt.piece)] : nullptr;
  // What a builtin is given is sent to nobody.
  const int64_t bytes_max =
      what.kind == Step::Kind::kBuiltin ? options_.value_bytes_max : options_.rendered_bytes_max;
  RenderBudget budget{.bytes_left = bytes_max};
  const Result<Json> arguments = render(what.with, names(item, &index), budget);
  ++computed_;
  if (!arguments.ok()) {
    const bool too_large = arguments.error().code == ErrorCode::kDoesNotFit;
    return fail(step, kUnprocessable,
                too_large
                    ? fmt::format("{}: at most {} bytes", arguments.error().message, bytes_max)
                    : arguments.error().message,
                state.items ? attempt.piece : -1);
  }
  if (what.kind != Step::Kind::kBuiltin) return start_call(step, attempt, *arguments, now_ns);
  for (const Builtin::Parameter& one : what.builtin->parameters) {
    const Json* const value = arguments->find(one.name);
    if (holds(one.type, value == nullptr ? Json() : *value)) continue;
    return fail(step, kUnprocessable, fmt::format("'{}' must be {}", one.name, type_text(one.type)),
                state.items ? attempt.piece : -1);
  }
  Result<Json> value = what.builtin->function(*arguments);
  if (!value.ok()) {
    return fail(step, kUnprocessable, value.error().message, state.items ? attempt.piece : -1);
  }
  finish_piece(step, attempt.piece, *std::move(value), now_ns);
}

void ChainRun::start_call(size_t step, const Attempt& attempt, const Json& arguments,
                          int64_t now_ns) {
  const Step& what = chain_.steps[step];
  StepState& state = states_[step];
  Result<StepCall> made = make_call(what, arguments, options_.any_model);
  if (!made.ok()) {
    return fail(step, kUnprocessable, made.error().message, state.items ? attempt.piece : -1);
  }
  StepCall call = *std::move(made);
  call.id = next_call_++;
  call.piece = state.items ? attempt.piece : -1;
  call.attempt = attempt.number;
  call.streamed = options_.streamed && chain_.stream_from == step;
  call.deadline_ns = now_ns + ns(what.timeout_s);
  if (options_.deadline_ns) call.deadline_ns = std::min(call.deadline_ns, *options_.deadline_ns);
  call.answer_bytes_max = options_.answer_bytes_max;
  in_flight_.emplace(call.id, InFlight{.step = step,
                                       .attempt = attempt,
                                       .deadline_ns = call.deadline_ns,
                                       .body_bytes = std::ssize(call.body),
                                       .has_text = false});
  bodies_bytes_ += std::ssize(call.body);
  deadlines_.emplace(call.deadline_ns, call.id);
  ++state.in_flight;
  ++state.summary.calls;
  work_.calls.push_back(std::move(call));
}

void ChainRun::on_answer(uint64_t call, const CallAnswer& answer, int64_t now_ns) {
  const auto found = in_flight_.find(call);
  if (over_ || found == in_flight_.end()) return;
  const InFlight one = found->second;
  deadlines_.erase({one.deadline_ns, call});
  in_flight_.erase(found);
  bodies_bytes_ -= one.body_bytes;
  --states_[one.step].in_flight;
  const Step& what = chain_.steps[one.step];
  const bool good = answer.fault == CallAnswer::Fault::kNone && answer.status / 100 == 2;
  if (!good) {
    return on_failed(one.step, one.attempt, answer, !one.has_text, now_ns);
  }
  Result<Json> value = answer_value(what, answer);
  if (!value.ok()) {
    const bool is_http = what.kind == Step::Kind::kHttp;
    return fail(one.step, is_http ? kFailedDependency : kUnprocessable, value.error().message,
                states_[one.step].items ? one.attempt.piece : -1);
  }
  states_[one.step].summary.usage += usage_of(*value);
  finish_piece(one.step, one.attempt.piece, *std::move(value), now_ns);
}

void ChainRun::on_text(uint64_t call, std::string text) {
  const auto found = in_flight_.find(call);
  if (over_ || found == in_flight_.end() || text.empty()) return;
  found->second.has_text = true;
  work_.events.push_back({.kind = RunEvent::Kind::kText,
                          .step = found->second.step,
                          .piece = -1,
                          .pieces = -1,
                          .attempt = 0,
                          .duration_ns = 0,
                          .usage = {},
                          .text = std::move(text)});
}

// `may_retry`: nothing of its answer has been passed on.
void ChainRun::on_failed(size_t step, const Attempt& attempt, const CallAnswer& answer,
                         bool may_retry, int64_t now_ns) {
  const Step& what = chain_.steps[step];
  StepState& state = states_[step];
  const std::string text = failure_text(what, answer);
  const bool again =
      may_retry && attempt.number < what.retry.most && may_retry_answer(what.retry, answer);
  const int64_t piece = state.items ? attempt.piece : -1;
  if (!again) return fail(step, failure_status(what, answer), text, piece);
  const double wait_s = std::min(kWaitMax_s, std::ldexp(what.retry.wait_s, attempt.number));
  state.again.push_back(
      {.piece = attempt.piece, .number = attempt.number + 1, .at_ns = now_ns + ns(wait_s)});
  work_.events.push_back({.kind = RunEvent::Kind::kRetry,
                          .step = step,
                          .piece = piece,
                          .pieces = -1,
                          .attempt = attempt.number,
                          .duration_ns = 0,
                          .usage = {},
                          .text = text});
}

void ChainRun::finish_piece(size_t step, int64_t piece, Json value, int64_t now_ns) {
  StepState& state = states_[step];
  keep_bytes(step, approximate_bytes(value));
  if (over_) return;
  if (!state.items) return finish_step(step, std::move(value), now_ns);
  state.results[static_cast<size_t>(piece)] = std::move(value);
  work_.events.push_back({.kind = RunEvent::Kind::kPieceDone, .step = step, .piece = piece});
  if (--state.pieces_left == 0) finish_step(step, Json(std::move(state.results)), now_ns);
}

void ChainRun::finish_step(size_t step, Json value, int64_t now_ns) {
  StepState& state = states_[step];
  state.phase = StepState::Phase::kDone;
  state.value = std::move(value);
  state.items.reset();
  state.results = {};
  state.summary.duration_ns = now_ns - state.started_ns;
  if (state.uses_left == 0) {
    state.value = Json();
    value_bytes_ -= std::exchange(state.value_bytes, 0);
  }
  if (!state.summary.skipped) {
    work_.events.push_back({.kind = RunEvent::Kind::kStepDone,
                            .step = step,
                            .piece = -1,
                            .pieces = -1,
                            .attempt = 0,
                            .duration_ns = state.summary.duration_ns,
                            .usage = state.summary.usage,
                            .text = {}});
  }
  release_needs(step);
  if (--steps_left_ == 0) return finish();
  for (const size_t next : chain_.steps[step].used_by) {
    if (over_) return;
    if (--states_[next].needs_left == 0) begin(next, now_ns);
  }
}

// Values that nothing will read any more.
void ChainRun::release_needs(size_t step) {
  for (const size_t need : chain_.steps[step].needs) {
    StepState& state = states_[need];
    if (--state.uses_left > 0) continue;
    state.value = Json();
    value_bytes_ -= std::exchange(state.value_bytes, 0);
  }
}

void ChainRun::keep_bytes(size_t step, int64_t bytes) {
  states_[step].value_bytes += bytes;
  value_bytes_ += bytes;
  if (value_bytes_ <= options_.value_bytes_max) return;
  fail(step, kUnprocessable,
       fmt::format("with its value the run would hold more than {} bytes",
                   options_.value_bytes_max));
}

void ChainRun::finish() {
  RenderBudget budget{.bytes_left = options_.value_bytes_max};
  Result<Json> output = render(chain_.output, names(nullptr, nullptr), budget);
  if (!output.ok()) {
    return end({.kind = RunFailure::Kind::kStep,
                .step = "output",
                .status = kUnprocessable,
                .message = "output: " + output.error().message});
  }
  output_ = *std::move(output);
  over_ = true;
}

void ChainRun::fail(size_t step, int status, std::string_view what, int64_t piece) {
  const std::string& name = chain_.steps[step].name;
  const std::string where = piece < 0 ? "" : fmt::format(", piece {}", piece);
  end({.kind = RunFailure::Kind::kStep,
       .step = name,
       .status = status,
       .message = fmt::format("step '{}'{}: {}", name, where, what)});
}

void ChainRun::cancel() {
  if (over_) return;
  end({.kind = RunFailure::Kind::kCancelled,
       .step = {},
       .status = 499,
       .message = "the chain was cancelled"});
}

void ChainRun::end(RunFailure failure) {
  if (over_) return;
  over_ = true;
  failure_ = std::move(failure);
  end_calls();
}

void ChainRun::end_calls() {
  // Of calls that were to be made and have not been yet nobody knows.
  work_.calls.clear();
  for (const auto& [call, one] : in_flight_) work_.ended.push_back(call);
  in_flight_.clear();
  bodies_bytes_ = 0;
  deadlines_.clear();
}

std::vector<ChainRun::StepSummary> ChainRun::summaries() const {
  std::vector<StepSummary> all;
  for (const StepState& state : states_) all.push_back(state.summary);
  return all;
}

Usage ChainRun::usage() const {
  Usage sum;
  for (const StepState& state : states_) sum += state.summary.usage;
  return sum;
}

}  // namespace pelton::chain
