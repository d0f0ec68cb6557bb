#include "server/generation.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "server/reply.h"
#include "server/resumed_answers.h"

namespace pelton::server {
namespace {

// What one turn writes its events into, and what it takes its tokens with: one for all streams of a
// thread, so that a token allocates nothing and each finds what the one before has just used.
struct TurnBuffers {
  static constexpr size_t kBytesKept = size_t{64} << 10;
  static constexpr size_t kTokensKept = 64;

  void tidy() {
    events.clear();
    if (events.capacity() > kBytesKept) events.shrink_to_fit();
    batch.tokens.clear();
    if (batch.tokens.capacity() > kTokensKept) batch.tokens.shrink_to_fit();
    batch.end.reset();
  }

  bool taken = false;
  std::string events;
  engine::TokenStream::Batch batch;
};

thread_local TurnBuffers buffers_of_thread;

class BuffersInUse {
 public:
  BuffersInUse() : buffers_(buffers_of_thread.taken ? own_.emplace() : buffers_of_thread) {
    buffers_.taken = true;
  }
  ~BuffersInUse() {
    buffers_.tidy();
    buffers_.taken = false;
  }
  BuffersInUse(const BuffersInUse&) = delete;
  BuffersInUse& operator=(const BuffersInUse&) = delete;
  TurnBuffers& buffers() { return buffers_; }

 private:
  std::optional<TurnBuffers> own_;  // of a turn within another one
  TurnBuffers& buffers_;
};

}  // namespace

std::weak_ptr<Generation> Generation::run(Parts parts, const Context& context) {
  const bool begins_at_once = parts.begins_at_once && parts.mode == Mode::kStream;
  const auto generation = std::make_shared<Generation>(Key(), std::move(parts), context);
  generation->start(begins_at_once);
  return generation;
}

void Generation::cancel() {
  if (waits()) return end_waiting(engine::FinishReason::kCancelled);
  for (Choice& choice : choices_) {
    if (choice.progress != Progress::kRunning) continue;
    choice.progress = Progress::kCancelled;
    choice.stream.cancel();
  }
}

Generation::Generation(Key, Parts parts, const Context& context)
    : log_(context.log),
      meter_(context.meter),
      running_answers_(parts.running),
      id_(std::move(parts.id)),
      mode_(parts.mode),
      pacing_(parts.pacing),
      call_(std::move(parts.call)),
      answer_(std::move(parts.answer)),
      running_(parts.streams.size()) {
  watch_.emplace(meter_, GenerationWatch::Start{.choice_count = running_,
                                                .arrived_ns = call_.arrived_ns,
                                                .output_tokens_max = parts.output_tokens_max});
  for (engine::TokenStream& stream : parts.streams) choices_.push_back({std::move(stream)});
}

Generation::~Generation() {
  if (running_answers_ != nullptr) running_answers_->remove(id_, *this);
}

void Generation::end_reasoning() {
  if (over_) return;
  answer_->end_reasoning();
  for (size_t choice = 0; choice < choices_.size(); ++choice) force(choice);
}

void Generation::force(size_t choice) {
  if (choices_[choice].progress != Progress::kRunning) return;
  if (std::optional<engine::TokenConstraints> token_constraints =
          answer_->take_token_constraints(choice)) {
    choices_[choice].stream.force(*std::move(token_constraints));
  }
}

void Generation::start(bool begins_at_once) {
  if (running_answers_ != nullptr) {
    running_answers_->add(
        id_, {.tenant = call_.tenant, .generation = weak_from_this(), .exchange = call_.exchange});
  }
  net::Exchange& exchange = *call_.exchange;
  // This one reference keeps us alive; the exchange lets it go when it ends.
  exchange.on_closed([self = shared_from_this()] { self->client_left(); });
  const std::weak_ptr<Generation> weak = weak_from_this();
  exchange.on_drained([weak] {
    if (const auto self = weak.lock()) self->on_drained();
  });
  if (mode_ == Mode::kStream) {
    exchange.post_after(kTick, [weak] {
      if (const auto self = weak.lock()) self->on_tick();
    });
  }
  std::string events;
  if (begins_at_once) answer_->take_events(events);
  if (call_.resumed == nullptr) return listen(events);
  if (call_.resumed->delivered) events.clear();
  repeat(events);
}

void Generation::listen(const std::string& opening) {
  write(opening);
  notifier_ = call_.exchange->make_notifier(weak_from_this());
  answer_->begin(notifier_);
  if (running_ == 0) notifier_->notify();  // nothing is to be sampled: the answer is complete
  // A stream notifies only while it lives; the notifier and the exchange outlive it.
  for (Choice& choice : choices_) {
    if (choice.progress == Progress::kEnded) continue;
    choice.stream.on_ready([notifier = notifier_.get()] { notifier->notify(); });
  }
}

// Event by event, as they went out: what numbers its events counts those too.
void Generation::drop_events() {
  std::string known;
  if (mode_ == Mode::kStream) answer_->take_events(known);
}

void Generation::repeat(const std::string& opening) {
  if (over_) return;
  size_t left = kRepeatedMax;
  for (size_t i = 0; i < std::min(choices_.size(), call_.resumed->choices.size()); ++i) {
    left -= repeat_some(i, left);
    if (left > 0) continue;
    return call_.exchange->post([weak = weak_from_this(), opening] {
      if (const auto self = weak.lock()) self->repeat(opening);
    });
  }
  listen(opening);
}

size_t Generation::repeat_some(size_t index, size_t tokens_max) {
  const ResumedChoice& said = call_.resumed->choices[index];
  Choice& choice = choices_[index];
  if (choice.progress == Progress::kEnded) return 0;
  size_t count = 0;
  while (choice.repeated < said.tokens.size() && choice.progress == Progress::kRunning) {
    if (count == tokens_max) return count;
    ++count;
    const Answer::Wants wants = answer_->push(index, said.tokens[choice.repeated++]);
    drop_events();
    if (wants == Answer::Wants::kMore) continue;
    choice.progress = Progress::kSilenced;
    if (!said.end) choice.stream.cancel();
  }
  if (!said.end) return count;
  choice.progress = Progress::kEnded;
  --running_;
  watch_->end(index, *said.end);
  answer_->end(index, as_begun(call_.resumed.get(), index, *said.end));
  drop_events();
  return count;
}

void Generation::pump() {
  held_back_ = call_.exchange->queued_bytes() > pacing_.backlog_bytes_max;
  if (over_ || held_back_) return;
  oldest_ns_ = 0;
  BuffersInUse turn;
  std::string& events = turn.buffers().events;
  for (size_t i = 0; i < choices_.size() && !over_; ++i) take(i, turn.buffers().batch, events);
  if (over_) return;
  answer_->turn();
  if (const auto error = take_more()) {
    return fail(*error, {.reason = engine::FinishReason::kError}, events);
  }
  if (mode_ == Mode::kStream) answer_->take_events(events);
  if (running_ == 0 && !answer_->goes_on()) return finish(events);
  write(events);
  if (call_.observer != nullptr) call_.observer->flush();
  if (running_ > 0 || std::exchange(waits_, true)) return;
  answer_->begin_waiting(weak_from_this());
}

std::optional<api::ApiError> Generation::take_more() {
  while (true) {
    const auto ended = std::ranges::find(choices_, Progress::kEnded, &Choice::progress);
    const auto choice = static_cast<size_t>(ended - choices_.begin());
    Answer::More more = answer_->more(choice, call_);
    if (more.error || !more.stream) return std::move(more.error);
    if (ended == choices_.end()) {
      choices_.push_back({*std::move(more.stream)});
    } else {
      *ended = {*std::move(more.stream)};
    }
    ++running_;
    waits_ = false;
    watch_->begin(choice);
    choices_[choice].stream.on_ready([notifier = notifier_.get()] { notifier->notify(); });
  }
}

void Generation::say() {
  oldest_ns_ = 0;  // no token is among it
  std::string events;
  if (mode_ == Mode::kStream) answer_->take_events(events);
  write(events);
}

void Generation::go_on(std::vector<engine::TokenStream> streams, int output_tokens_max) {
  waits_ = false;
  choices_.clear();
  for (engine::TokenStream& stream : streams) choices_.push_back({std::move(stream)});
  running_ = choices_.size();
  watch_.emplace(meter_, GenerationWatch::Start{.choice_count = running_,
                                                .arrived_ns = meter_.now_ns(),
                                                .output_tokens_max = output_tokens_max});
  listen("");
}

void Generation::go_on_with(const api::ApiError& error) {
  waits_ = false;
  oldest_ns_ = 0;
  std::string events;
  if (mode_ == Mode::kStream) answer_->take_events(events);
  fail(error, {.reason = engine::FinishReason::kError}, events);
}

void Generation::end_waiting(engine::FinishReason reason) {
  waits_ = false;
  oldest_ns_ = 0;
  answer_->end(0, {.reason = reason});
  std::string events;
  if (mode_ == Mode::kStream) answer_->take_events(events);
  finish(events);
}

void Generation::on_drained() {
  if (unsent_since_ns_ != 0) watch_->delivered(std::exchange(unsent_since_ns_, 0));
  if (held_back_) pump();
}

void Generation::take(size_t index, engine::TokenStream::Batch& batch, std::string& events) {
  Choice& choice = choices_[index];
  if (choice.progress == Progress::kEnded) return;
  choice.stream.take_into(batch);
  if (batch.found && call_.observer != nullptr) call_.observer->note_found(index, *batch.found);
  if (!batch.prompt.empty()) answer_->prompt(index, std::move(batch.prompt));
  push(index, batch, events);
  if (!batch.end) return force(index);
  end(index, *batch.end, events);
}

void Generation::push(size_t index, const engine::TokenStream::Batch& batch, std::string& events) {
  Choice& choice = choices_[index];
  if (choice.progress == Progress::kRunning) watch_->tokens(index, batch.tokens.size());
  call_.note_output(batch.tokens.size());
  if (!batch.tokens.empty() && oldest_ns_ == 0) oldest_ns_ = batch.sampled_ns;
  const bool merged =
      mode_ == Mode::kWhole || call_.exchange->queued_bytes() >= pacing_.merged_from_bytes;
  for (const engine::SampledToken& token : batch.tokens) {
    if (choice.progress != Progress::kRunning) break;
    if (call_.observer != nullptr) call_.observer->note_token(index, token);
    const Answer::Wants wants = answer_->push(index, token);
    if (!merged) answer_->take_events(events);
    if (wants == Answer::Wants::kMore) continue;
    // Its end, with what it cost, is still to come.
    choice.progress = Progress::kSilenced;
    watch_->stopped(index);
    choice.stream.cancel();
  }
}

void Generation::end(size_t index, engine::StreamEnd end, std::string& events) {
  // The engine may have ended it by itself meanwhile, with tokens that are not emitted.
  const bool cancelled = choices_[index].progress == Progress::kCancelled;
  if (cancelled && end.reason != engine::FinishReason::kError)
    end.reason = engine::FinishReason::kCancelled;
  watch_->end(index, end);
  call_.note_end(end);
  if (end.reason == engine::FinishReason::kError) {
    return fail(end, events);
  }
  choices_[index].progress = Progress::kEnded;
  --running_;
  answer_->end(index, as_begun(call_.resumed.get(), index, end));
  // Of one that goes on, the last end is the choice's.
  if (call_.observer != nullptr && !answer_->goes_on()) call_.observer->note_end(index, end);
}

void Generation::finish(std::string& events) {
  if (mode_ == Mode::kWhole) {
    call_.send(answer_->whole_reply());
  } else {
    answer_->take_last_events(events);
    if (call_.observer != nullptr) call_.observer->note_last();
    begin_stream();  // also of one that has no bytes at all
    write(events);
    note_answered(200);
    call_.exchange->finish();
  }
  if (log_.enabled(base::LogLevel::kDebug)) log_.debug(fmt::format("{} answered", id_));
  release();
}

void Generation::fail(const engine::StreamEnd& end, std::string& events) {
  const Error error = end.error.value_or(Error{ErrorCode::kInternal, "the engine failed", ""});
  fail(call_.reported(error), end, events);
}

void Generation::fail(const api::ApiError& api_error, const engine::StreamEnd& end,
                      std::string& events) {
  // A deadline is its client's own choice, a format that cannot be followed its client's own doing,
  // and that there is no room is no fault.
  const bool is_ours = api_error.status >= 500;
  // Its client hears that the log says why.
  const std::string& why = end.error ? end.error->message : api_error.message;
  const std::string line = fmt::format("{} failed: {}", id_, why);
  is_ours ? log_.error(line) : log_.debug(line);
  answer_->fail(api_error, end);
  if (is_ours && call_.observer != nullptr) {
    std::string event;
    answer_->append_error(api_error, event);
    call_.observer->note_failure(api_error, event);
  }
  if (!stream_begun_) {
    call_.send(api_error);
  } else if (!answer_->has_error_events()) {
    note_answered(api_error.status);
    // An exchange that is dropped amid its answer leaves a body without an end.
    call_.exchange->on_closed([] {});
  } else {
    answer_->take_events(events);
    answer_->append_error(api_error, events);
    pass_on(events);
    note_answered(api_error.status);
    call_.exchange->finish();
  }
  release();
}

void Generation::client_left() {
  if (over_) return;
  if (log_.enabled(base::LogLevel::kDebug)) log_.debug(fmt::format("{} left by its client", id_));
  release();
}

void Generation::on_tick() {
  if (over_) return;
  const std::string_view quiet = answer_->quiet_event();
  if (!quiet.empty() && !wrote_since_tick_ && call_.exchange->queued_bytes() == 0) {
    begin_stream();
    pass_on(quiet);
  }
  wrote_since_tick_ = false;
  call_.exchange->post_after(kTick, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->on_tick();
  });
}

void Generation::begin_stream() {
  if (stream_begun_) return;
  stream_begun_ = true;
  net::HttpHeaders headers = call_.headers;
  headers.add("Content-Type", std::string(answer_->content_type()));
  headers.add("Cache-Control", "no-cache");
  headers.add("X-Accel-Buffering", "no");  // nginx would hold events back
  call_.exchange->start_stream(200, std::move(headers));
}

void Generation::write(std::string_view events) {
  if (events.empty()) return;
  begin_stream();
  wrote_since_tick_ = true;
  if (unsent_since_ns_ == 0) unsent_since_ns_ = oldest_ns_;
  pass_on(events);
}

// Counted here, as each token comes by: the call's entry lies elsewhere in memory.
void Generation::pass_on(std::string_view bytes) {
  written_bytes_ += bytes.size();
  call_.exchange->write(bytes);
}

void Generation::note_answered(int status) {
  call_.note_written(std::exchange(written_bytes_, 0));
  call_.note_answered(status);
}

// Cancels what still runs.
void Generation::release() {
  over_ = true;
  call_.note_written(std::exchange(written_bytes_, 0));
  choices_.clear();
}

}  // namespace pelton::server
