#include "net/connection_http2.h"

#include <algorithm>
#include <new>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "net/connection.h"
#include "net/connection_exchange.h"
#include "net/http_framing.h"

namespace pelton::net {
namespace {

namespace asio = boost::asio;
using std::chrono::steady_clock;

// Put together at a time, so that what one stream says does not wait for what all others said.
constexpr size_t kFramesBytes = 64 * 1024;
// Of answers that wait for a peer to read them. While there are more, its further requests wait.
constexpr size_t kUnsentBytes = size_t{1} << 20;

// Often enough for the shortest of the times that are watched.
std::chrono::milliseconds tick_of(const HttpServer::Options& options) {
  const auto least = std::min({options.first_byte_time_max, options.header_time_max,
                               options.idle_time_max, options.body_grace, options.stall_time_max});
  return std::clamp(least / 4, std::chrono::milliseconds(10), std::chrono::milliseconds(1000));
}

}  // namespace

Http2Connection::Http2Connection(Connection& connection)
    : connection_(connection),
      session_({.http = limits_of(connection.server_->options)}),
      tick_(tick_of(connection.server_->options)),
      idle_since_(steady_clock::now()) {
  connection_.set_deadline(Connection::Deadline::kTick, tick_);
}

void Http2Connection::on_bytes(std::string_view bytes) {
  const std::shared_ptr<Connection> alive = connection_.shared_from_this();
  const bool goes_on = session_.receive(bytes);
  for (const Http2Session::Event& event : session_.take_events()) {
    if (connection_.phase_ == Connection::Phase::kClosed) return;
    handle(event);
  }
  if (connection_.phase_ == Connection::Phase::kClosed) return;
  if (!connection_.hold_bytes(session_.held_bytes()) && !bodies_.empty()) {
    const int32_t last = bodies_.rbegin()->first;
    refuse(last, {503, "too_many_bytes", "too many large requests are being read just now"},
           error_form(last));
  }
  const int32_t header = session_.header_stream();
  if (header != std::exchange(header_stream_, header)) header_since_ = steady_clock::now();
  connection_.schedule_flush();
  if (goes_on) connection_.wait_readable();
}

void Http2Connection::handle(const Http2Session::Event& event) {
  using Kind = Http2Session::Event::Kind;
  switch (event.kind) {
    case Kind::kHead: {
      const HttpRequest* const head = session_.head(event.stream);
      if (head == nullptr) return;
      const auto& takes_body = connection_.server_->options.takes_body;
      if (takes_body && !takes_body(*head)) {
        session_.leave_body(event.stream);
        return begin(event.stream);
      }
      if (head->headers.has("Expect")) session_.send_continue(event.stream);
      connection_.stop_waiting();
      bodies_[event.stream].begun = steady_clock::now();
      return;
    }
    case Kind::kBody:
      return count_body(event.stream);
    case Kind::kRequest:
      return begin(event.stream);
    case Kind::kGone:
      return gone(event.stream);
  }
}

void Http2Connection::count_body(int32_t stream) {
  const auto body = bodies_.find(stream);
  if (body != bodies_.end()) {
    body->second.bytes = static_cast<int64_t>(session_.body_bytes(stream));
  }
}

void Http2Connection::begin(int32_t stream) {
  bodies_.erase(stream);
  if (session_.unsent_bytes() > kUnsentBytes) return held_back_.push_back(stream);
  std::optional<Http2Session::Taken> taken = session_.take(stream);
  if (!taken) return;
  connection_.stop_waiting();
  has_had_request_ = true;
  HttpRequest& request = taken->request;
  const ErrorForm form = error_form_of(request.path);
  if (taken->refusal) return refuse(stream, *taken->refusal, form);
  if (!connection_.server_->options.hosts.allow(request.headers.get("Host"))) {
    return refuse(stream, connection_.foreign_host(), form);
  }
  request.remote = connection_.remote_;
  request.tls = connection_.server_->options.tls != nullptr;
  answers_[stream].error_form = form;
  connection_.server_->handler(std::move(request), make_exchange(connection_.shared_from_this(),
                                                                 static_cast<uint64_t>(stream)));
}

void Http2Connection::begin_held_back() {
  while (!held_back_.empty() && session_.unsent_bytes() <= kUnsentBytes) {
    const int32_t stream = held_back_.front();
    held_back_.pop_front();
    begin(stream);
  }
}

// In the handler's place.
void Http2Connection::refuse(int32_t stream, const HttpReject& refusal, ErrorForm form) {
  bodies_.erase(stream);
  session_.refuse(stream, refusal);
  static_cast<void>(session_.take(stream));
  if (connection_.server_->log.enabled(base::LogLevel::kDebug)) {
    connection_.server_->log.debug(fmt::format("http {}: refused with {} {}", connection_.remote_,
                                               refusal.status, refusal.code));
  }
  whole(stream, connection_.refusal_response(refusal, form));
}

ErrorForm Http2Connection::error_form(int32_t stream) const {
  const HttpRequest* const head = session_.head(stream);
  return head == nullptr ? ErrorForm::kObject : error_form_of(head->path);
}

void Http2Connection::whole(int32_t stream, HttpResponse response) {
  session_.answer(stream, response.status, response.headers, connection_.loop_->http_date_now());
  session_.write(stream, response.body);
  session_.finish(stream);
  connection_.schedule_flush();
}

// The stream is over for the peer. Whoever still works for it hears so.
void Http2Connection::gone(int32_t stream) {
  bodies_.erase(stream);
  const auto found = answers_.find(stream);
  if (found != answers_.end()) {
    const Answer answer = std::move(found->second);
    answers_.erase(found);
    if (answer.closed) answer.closed();
  }
  if (connection_.phase_ == Connection::Phase::kAnswering && session_.stream_count() == 0) {
    idle_since_ = steady_clock::now();
    connection_.wait_for_header();
  }
}

void Http2Connection::pump() {
  if (!connection_.queue_.empty()) return;
  try {
    produce();
  } catch (const std::bad_alloc&) {
    connection_.out_of_memory();
  }
}

void Http2Connection::produce() {
  frames_.clear();
  if (session_.produce(frames_, kFramesBytes)) {
    connection_.queue_.push(std::string_view(frames_));
  }
  // Streams end as what they said leaves.
  for (const Http2Session::Event& event : session_.take_events()) {
    if (connection_.phase_ != Connection::Phase::kAnswering) return;
    handle(event);
  }
  begin_held_back();
}

void Http2Connection::on_queue_empty() {
  if (is_going_away_ && session_.stream_count() == 0 && !has_gone_away_) {
    has_gone_away_ = true;
    session_.go_away();
    return connection_.schedule_flush();
  }
  if (session_.is_over() || (has_gone_away_ && session_.stream_count() == 0)) {
    close();
    return connection_.linger();
  }
  std::vector<int32_t> drained;
  for (const auto& [stream, answer] : answers_) {
    if (answer.has_written && answer.drained && session_.unsent_bytes(stream) == 0) {
      drained.push_back(stream);
    }
  }
  for (const int32_t stream : drained) {
    Answer* answer = find(static_cast<uint64_t>(stream));
    if (answer == nullptr) continue;
    answer->has_written = false;
    std::function<void()> call = std::move(answer->drained);  // it may replace itself
    answer->drained = nullptr;
    call();
    answer = find(static_cast<uint64_t>(stream));
    if (answer != nullptr && !answer->drained) answer->drained = std::move(call);
  }
}

// ---- time

void Http2Connection::on_tick() {
  const std::shared_ptr<Connection> alive = connection_.shared_from_this();
  session_.tick(tick_);
  if (is_going_away_ && !std::exchange(has_gone_away_, true)) session_.go_away();
  look_at_time();
  connection_.hold_bytes(session_.held_bytes());
  if (connection_.phase_ != Connection::Phase::kAnswering) return;
  connection_.set_deadline(Connection::Deadline::kTick, tick_);
  connection_.schedule_flush();
}

void Http2Connection::look_at_time() {
  const HttpServer::Options& options = connection_.server_->options;
  const Time now = steady_clock::now();
  const auto idle_max = has_had_request_ ? options.idle_time_max : options.first_byte_time_max;
  const bool is_idle = session_.stream_count() == 0 && now - idle_since_ > idle_max;
  const bool is_late =
      session_.header_stream() != 0 && now - header_since_ > options.header_time_max;
  if (is_idle) return drain();
  if (is_late) return session_.give_up_header();
  look_at_bodies(now);
  look_at_answers(now);
}

// As Connection::on_body_bytes has it.
void Http2Connection::look_at_bodies(Time now) {
  const HttpServer::Options& options = connection_.server_->options;
  std::vector<int32_t> late;
  for (const auto& [stream, body] : bodies_) {
    const std::chrono::milliseconds earned(body.bytes * 1000 / options.body_rate_min);
    if (now - body.begun > std::min(options.body_grace + earned, options.body_time_max)) {
      late.push_back(stream);
    }
  }
  for (const int32_t stream : late) {
    refuse(stream, {408, "request_timeout", "the request body took too long"}, error_form(stream));
  }
}

// A peer that makes no room for what is said to it. Whether its machine takes anything is looked at
// elsewhere.
void Http2Connection::look_at_answers(Time now) {
  std::vector<int32_t> stalled;
  std::map<int32_t, Pace> paces;
  for (const int32_t stream : session_.unsent_streams()) {
    const uint64_t sent = session_.sent_bytes(stream);
    const auto before = paces_.find(stream);
    const bool moves = before == paces_.end() || before->second.sent_bytes != sent;
    const Pace pace{.sent_bytes = sent, .since = moves ? now : before->second.since};
    paces[stream] = pace;
    if (now - pace.since > connection_.server_->options.stall_time_max) stalled.push_back(stream);
  }
  paces_ = std::move(paces);
  for (const int32_t stream : stalled) {
    connection_.server_->log.debug(
        fmt::format("http {}: a stream takes nothing, and is cut off", connection_.remote_));
    session_.reset(stream);
    gone(stream);
  }
}

void Http2Connection::drain() {
  if (!std::exchange(is_going_away_, true)) session_.announce_end();
  connection_.schedule_flush();
}

void Http2Connection::close() {
  bodies_.clear();
  for (auto& [stream, answer] : std::exchange(answers_, {})) {
    if (answer.closed) answer.closed();
  }
}

// ---- what exchanges ask for

Http2Connection::Answer* Http2Connection::find(uint64_t id) {
  const auto found = answers_.find(static_cast<int32_t>(id));
  return found == answers_.end() ? nullptr : &found->second;
}

bool Http2Connection::is_over(uint64_t id) const {
  return !answers_.contains(static_cast<int32_t>(id));
}

size_t Http2Connection::queued_bytes(uint64_t id) const {
  return session_.unsent_bytes(static_cast<int32_t>(id));
}

void Http2Connection::send(uint64_t id, HttpResponse response) {
  if (is_over(id)) return;
  CHECK(response.status >= 200 && response.status <= 599);
  const Answer ended = std::move(*find(id));  // its callbacks go when we are done here
  answers_.erase(static_cast<int32_t>(id));
  whole(static_cast<int32_t>(id), std::move(response));
}

void Http2Connection::start_stream(uint64_t id, int status, const HttpHeaders& headers) {
  Answer* const answer = find(id);
  if (answer == nullptr) return;
  answer->is_streaming = true;
  session_.answer(static_cast<int32_t>(id), status, headers, connection_.loop_->http_date_now());
  connection_.schedule_flush();
}

void Http2Connection::write(uint64_t id, std::string_view bytes) {
  Answer* const answer = find(id);
  if (answer == nullptr || bytes.empty()) return;
  answer->has_written = true;
  session_.write(static_cast<int32_t>(id), bytes);
  connection_.schedule_flush();
}

void Http2Connection::finish(uint64_t id) {
  if (is_over(id)) return;
  const Answer ended = std::move(*find(id));
  answers_.erase(static_cast<int32_t>(id));
  session_.finish(static_cast<int32_t>(id));
  connection_.schedule_flush();
}

void Http2Connection::on_drained(uint64_t id, std::function<void()> drained) {
  if (Answer* const answer = find(id)) answer->drained = std::move(drained);
}

void Http2Connection::on_closed(uint64_t id, std::function<void()> closed) {
  if (Answer* const answer = find(id)) answer->closed = std::move(closed);
}

void Http2Connection::post_after(uint64_t id, std::chrono::milliseconds delay,
                                 std::function<void()> work) {
  Answer* const answer = find(id);
  if (answer == nullptr) return;
  answer->timers.push_back(
      std::make_unique<asio::steady_timer>(connection_.loop_->context(), delay));
  asio::steady_timer* const timer = answer->timers.back().get();
  timer->async_wait([connection = connection_.shared_from_this(), this, id, timer,
                     work = std::move(work)](const Connection::SystemError& error) {
    Answer* const waiting = error ? nullptr : find(id);
    if (waiting == nullptr) return;
    std::erase_if(waiting->timers, [timer](const auto& one) { return one.get() == timer; });
    work();
  });
}

void Http2Connection::dropped(uint64_t id) {
  Answer* const answer = find(id);
  if (answer == nullptr) return;
  answer->closed = nullptr;
  if (!answer->is_streaming) {
    return send(id, error_response({500, "internal_error", "the request was not answered"},
                                   answer->error_form));
  }
  connection_.server_->log.warning(
      fmt::format("http {}: a stream was dropped unfinished", connection_.remote_));
  answers_.erase(static_cast<int32_t>(id));
  session_.reset(static_cast<int32_t>(id));
  connection_.schedule_flush();
}

}  // namespace pelton::net
