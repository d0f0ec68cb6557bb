#include "server/generation.h"

#include <optional>
#include <utility>

#include <fmt/format.h>

#include "server/reply.h"

namespace pelton::server {

std::weak_ptr<Generation> Generation::run(Parts parts, const House& house) {
  const std::shared_ptr<Generation> generation(new Generation(std::move(parts), house));
  generation->start();
  return generation;
}

void Generation::cancel() {
  for (size_t choice = 0; choice < streams_.size(); ++choice) {
    if (progress_[choice] != Progress::kRunning) continue;
    progress_[choice] = Progress::kSilenced;
    streams_[choice].cancel();
  }
}

Generation::Generation(Parts parts, const House& house)
    : log_(house.log),
      running_answers_(house.running),
      id_(std::move(parts.id)),
      mode_(parts.mode),
      call_(std::move(parts.call)),
      answer_(std::move(parts.answer)),
      streams_(std::move(parts.streams)),
      progress_(streams_.size(), Progress::kRunning),
      running_(streams_.size()),
      watch_(house.meter, {.choice_count = streams_.size(),
                           .arrived_ns = call_.arrived_ns,
                           .output_tokens_max = parts.output_tokens_max}) {}

Generation::~Generation() {
  if (running_answers_ != nullptr) running_answers_->remove(id_, *this);
}

void Generation::end_reasoning() {
  if (over_) return;
  answer_->end_reasoning();
  for (size_t choice = 0; choice < streams_.size(); ++choice) force(choice);
}

void Generation::force(size_t choice) {
  if (progress_[choice] != Progress::kRunning) return;
  if (std::optional<engine::Forcing> forcing = answer_->take_forcing(choice)) {
    streams_[choice].force(*std::move(forcing));
  }
}

void Generation::start() {
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
  if (streams_.empty()) {  // nothing is to be sampled: the answer is complete
    exchange.post([weak] {
      if (const auto self = weak.lock()) self->pump();
    });
  }
  for (engine::TokenStream& stream : streams_) {
    // The stream calls this only while it lives, and the exchange outlives it.
    stream.on_ready([&exchange, weak] {
      exchange.post([weak] {
        if (const auto self = weak.lock()) self->pump();
      });
    });
  }
}

void Generation::pump() {
  const std::shared_ptr<Generation> alive = shared_from_this();
  if (over_ || call_.exchange->queued_bytes() > kBacklogBytesMax) return;
  oldest_ns_ = 0;
  std::string events;
  if (mode_ == Mode::kStream) events.reserve(kEventBytes * streams_.size());
  for (size_t choice = 0; choice < streams_.size() && !over_; ++choice) take(choice, events);
  if (over_) return;
  if (mode_ == Mode::kStream) answer_->take_events(events);
  if (running_ == 0) return finish(std::move(events));
  write(std::move(events));
}

void Generation::on_drained() {
  if (unsent_since_ns_ != 0) watch_.delivered(std::exchange(unsent_since_ns_, 0));
  pump();
}

void Generation::take(size_t choice, std::string& events) {
  Progress& progress = progress_[choice];
  if (progress == Progress::kEnded) return;
  engine::TokenStream::Batch batch = streams_[choice].take();
  if (progress == Progress::kRunning) watch_.tokens(choice, batch.tokens.size());
  if (!batch.tokens.empty() && oldest_ns_ == 0) oldest_ns_ = batch.sampled_ns;
  const bool merged = mode_ == Mode::kWhole || call_.exchange->queued_bytes() > kMergedBacklogBytes;
  for (const engine::SampledToken& token : batch.tokens) {
    if (progress == Progress::kSilenced) break;
    const Answer::Wants wants = answer_->push(choice, token);
    if (!merged) answer_->take_events(events);
    if (wants == Answer::Wants::kMore) continue;
    // Its end, with what it cost, is still to come.
    progress = Progress::kSilenced;
    streams_[choice].cancel();
  }
  if (!batch.end) return force(choice);
  watch_.end(choice, *batch.end);
  call_.note_end(*batch.end);
  if (batch.end->reason == engine::FinishReason::kError) {
    return fail(batch.end->error.value_or(Error{ErrorCode::kInternal, "the engine failed", ""}));
  }
  progress = Progress::kEnded;
  --running_;
  answer_->end(choice, *batch.end);
}

void Generation::finish(std::string events) {
  if (mode_ == Mode::kWhole) {
    call_.send(json_reply(answer_->whole_body()));
  } else {
    answer_->take_last_events(events);
    write(std::move(events));
    call_.note_answered(200);
    call_.exchange->finish();
  }
  if (log_.enabled(base::LogLevel::kDebug)) log_.debug(fmt::format("{} answered", id_));
  release();
}

void Generation::fail(const Error& error) {
  // A deadline is its client's own wish.
  const bool is_ours = error.code != ErrorCode::kDeadline;
  const std::string line = fmt::format("{} failed: {}", id_, error.message);
  is_ours ? log_.error(line) : log_.debug(line);
  const api::ApiError api_error = api::api_error(error);
  if (!stream_begun_) {
    call_.send(api_error);
  } else {
    std::string event;
    answer_->append_error(api_error, event);
    call_.exchange->write(std::move(event));
    call_.note_answered(api_error.status);
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
  if (!wrote_since_tick_ && call_.exchange->queued_bytes() == 0) {
    begin_stream();
    call_.exchange->write(std::string(answer_->quiet_event()));
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
  headers.add("Content-Type", "text/event-stream; charset=utf-8");
  headers.add("Cache-Control", "no-cache");
  headers.add("X-Accel-Buffering", "no");  // nginx would hold events back
  call_.exchange->start_stream(200, std::move(headers));
}

void Generation::write(std::string events) {
  if (events.empty()) return;
  begin_stream();
  wrote_since_tick_ = true;
  if (unsent_since_ns_ == 0) unsent_since_ns_ = oldest_ns_;
  call_.exchange->write(std::move(events));
}

// Cancels what still runs.
void Generation::release() {
  over_ = true;
  streams_.clear();
}

}  // namespace pelton::server
