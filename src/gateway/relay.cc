#include "gateway/relay.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>

#include <fmt/format.h>

#include "api/error.h"
#include "base/random.h"
#include "gateway/asked.h"
#include "gateway/client_headers.h"
#include "gateway/interruption.h"
#include "net/sent_again.h"

namespace pelton::gateway {
namespace {

constexpr size_t kBacklogMax = size_t{256} << 10;
constexpr std::chrono::milliseconds kLookAgain{20};
constexpr std::chrono::milliseconds kConnectTime{1'000};
// A worker says something at least every five seconds while it streams.
constexpr std::chrono::milliseconds kQuietTime{600'000};
// Amid an answer, and without a further token of it.
constexpr int kMovesMax = 16;
// What a worker answers instead of running an attempt.
constexpr int kWrongIncarnation = 409;
constexpr int kAlreadyBegun = 425;
constexpr size_t kWholeMax = size_t{256} << 20;
constexpr std::string_view kSpeech = "/v1/audio/speech";

// The worker has the adapter no more, or another version than the answer began with; another one
// may.
bool is_unknown_adapter(const net::HttpResponse& answer) {
  return answer.status == 404 ||
         (answer.status == 409 && answer.body.find("adapter_changed") != std::string::npos);
}

// An answer that another worker might give better. What one does not implement (501) none of its
// pool does, and no fault of a worker's is behind it.
bool is_elsewhere(int status) {
  return status == 429 || (status >= 500 && status != 501);
}

// Of a foreign server: its own key is refused, or it is somewhere else. Its client can mend
// neither.
bool is_its_pools_fault(int status) {
  return status == 401 || status == 403 || status == 407 || (status >= 300 && status < 400);
}

bool is_busy(int status) {
  return status == 429 || status == 503;
}

// It is being stopped: what it says is no answer to a request that another one may have.
bool is_leaving(const net::HttpResponse& answer) {
  constexpr std::string_view kSays = "The server is shutting down";
  return answer.status == 503 && answer.body.find(kSays) != std::string::npos;
}

}  // namespace

void Relay::start(Request request, std::shared_ptr<net::Exchange> exchange,
                  const Services& services) {
  ++services.counters.open;
  const auto relay =
      std::make_shared<Relay>(Key(), std::move(request), std::move(exchange), services);
  relay->exchange_->on_closed([relay] { relay->client_left(); });
  const std::weak_ptr<Relay> weak = relay;
  relay->exchange_->on_drained([weak] {
    if (const auto self = weak.lock()) self->drained();
  });
  const int64_t now_ns = services.clock.now_ns();
  services.retry_budget.note_request(now_ns);
  if (relay->request_.gate) relay->request_.gate->note_request();
  if (services.quarantine.holds(relay->request_.http, now_ns)) return relay->give_up_quarantined();
  relay->begin();
}

Relay::Relay(Key, Request request, std::shared_ptr<net::Exchange> exchange,
             const Services& services)
    : services_(services),
      request_(std::move(request)),
      runs_tools_(asks_for_tools(request_.http)),
      exchange_(std::move(exchange)),
      started_ns_(services.clock.now_ns()),
      preferred_(request_.home),
      stalled_ns_(started_ns_) {
  if (request_.arm) request_.arm->note_request();
}

// Where this request may be what ends workers, only one that no other such request is sent to.
std::optional<Fleet::Assignment> Relay::assign() {
  const std::vector<std::string> avoided = services_.quarantine.tried_by_others(request_.http);
  const uint64_t draw = base::random_bits(base::fnv1a64(request_.request_id), request_.seed) +
                        static_cast<uint64_t>(attempt_);
  const bool goes_on = stream_ && stream_->said() > 0;
  const ForeignNeed need = goes_on ? stream_->need() : ForeignNeed::kNone;
  // What has been said is gone on with by those that would have said the same.
  const std::optional<std::string_view> alike =
      begun() ? std::optional<std::string_view>(assignment_.fingerprint) : std::nullopt;
  const int64_t begun_ns = services_.clock.now_ns();
  std::optional<Fleet::Assignment> assignment = services_.fleet.assign(
      {.pool = request_.pool,
       .model = request_.model,
       .excluded = tried_,
       .prompt = request_.prompt,
       .draw = draw,
       .avoided = avoided,
       .preferred = preferred_,
       .need = need,
       .region = request_.region,
       .fingerprint = alike,
       .request_id = request_.request_id,
       .may_split = !begun() && !request_.is_copy && !runs_tools_ && !request_.uplink && !replays(),
       .source = split_source(),
       .may_stay = decides_late_,
       .stays_here = request_.stays_here || request_.is_copy,
       .media = media_work(),
       .has_home = request_.speaks_of_id,
       .body_bytes = std::ssize(request_.http.body)});
  services_.counters.figures.note_decision(
      static_cast<double>(services_.clock.now_ns() - begun_ns) * 1e-9);
  waits_for_trial_ = !assignment && !avoided.empty();
  if (!assignment) return assignment;
  const auto trial = services_.quarantine.begin_trial(request_.http, assignment->incarnation);
  is_trial_ = trial == Quarantine::Trial::kBegun;
  if (trial != Quarantine::Trial::kTaken) return assignment;
  services_.fleet.note_outcome(*assignment, Fleet::Outcome::kNeither);
  waits_for_trial_ = true;
  return std::nullopt;
}

void Relay::attempt() {
  if (over_ || running_) return;
  if (services_.ends != nullptr && *services_.ends) return interrupt();
  // Another request like it may have ended the workers meanwhile.
  const bool is_suspect = crashed_ || (attempt_ > 0 && !begun());
  if (is_suspect && services_.quarantine.holds(request_.http, services_.clock.now_ns())) {
    return give_up_quarantined();
  }
  std::optional<Fleet::Assignment> assignment = assign();
  if (!assignment && follow_worker()) assignment = assign();
  if (!assignment) return wait_for_worker();
  send_to(*std::move(assignment));
}

void Relay::send_to(Fleet::Assignment assignment) {
  move_to(PoolGate::Place::kInService);
  assignment_ = std::move(assignment);
  if (request_.names_adapter || (media_work() != nullptr && !media_work()->lora.empty())) {
    ++services_.counters.adapter_requests;
    if (assignment_.has_adapter) ++services_.counters.adapter_resident;
  }
  if (assignment_.fetches && !begun()) ++services_.counters.prefix_copies;
  tried_.push_back(assignment_.worker);
  running_ = true;
  progressed_ = paused_ = was_paused_ = false;
  attempt_said_ = 0;
  in_flight_.emplace(services_.quarantine, request_.http);
  preferred_.reset();
  warm_ups_failed_ = 0;
  attempted_ns_ = services_.clock.now_ns();
  // What may be ending workers stays with one.
  splits_ = (assignment_.splits || assignment_.may_leave) && !is_trial_ && !crashed_;
  decides_late_ = splits_ && !assignment_.splits;
  split_tried_.clear();
  note_sent();
  reader_ = AnswerReader();
  foreign_.reset();
  if (assignment_.is_foreign) begin_foreign();
  // Its answer is known by this name while it is under way.
  if (request_.http.path == "/v1/chat/completions") {
    services_.running.note(
        "chatcmpl-" + request_.request_id,
        {.pool = request_.pool, .worker = assignment_.worker, .serial = assignment_.serial});
  }
  services_.fleet.listen(assignment_, weak_from_this(), attempt_);
  place_uplink();
  if (assignment_.is_foreign && begin_pair()) return;
  start_call();
  fetch_ahead();
}

void Relay::start_call() {
  const int number = attempt_;
  net::HttpCallEvents events;
  const auto self = shared_from_this();
  const auto status = std::make_shared<std::atomic<int>>(0);
  const auto sent_again = std::make_shared<std::atomic<bool>>(false);
  events.on_head = [self, number, status, sent_again, is_foreign = assignment_.is_foreign](
                       int got, const net::HttpHeaders& headers) {
    *status = got;
    *sent_again = headers.has(net::kSentAgainHeader);
    if (!is_foreign) return;
    self->exchange_->post(
        [self, number, got, headers] { self->on_foreign_head(number, got, headers); });
  };
  events.on_body = [self, number](std::string_view bytes) {
    self->exchange_->post(
        [self, number, bytes = std::string(bytes)] { self->on_bytes(number, bytes); });
  };
  events.on_done = [self, number, status, sent_again](Result<void> result) {
    self->exchange_->post([self, number, status, sent_again, result = std::move(result)] {
      self->on_done(number, {.status = *status, .sent_again = *sent_again}, result);
    });
  };
  call_ = services_.client.start(foreign_ ? foreign_call_to(assignment_) : call_to(assignment_),
                                 std::move(events));
  watch_attempt();
}

void Relay::place_uplink() {
  if (!request_.uplink) return;
  request_.uplink->set_place({.host = assignment_.host,
                              .port = assignment_.port,
                              .tls = assignment_.tls,
                              .trust = assignment_.trust,
                              .incarnation = assignment_.incarnation,
                              .dispatch = assignment_.dispatch});
}

// Nobody takes it just now, or all have been tried: again soon, until the budget is spent.
void Relay::wait_for_worker() {
  begin_wait();
  const int64_t now_ns = services_.clock.now_ns();
  const bool overdue = request_.deadline_ns && now_ns >= *request_.deadline_ns;
  const PoolSupply supply = services_.fleet.supply(request_.pool);
  if ((supply.ready == 0 || refusal_) && !overdue && fall_back()) return attempt();
  if (!overdue && must_hold(supply)) return hold();
  if (refusal_ && !begun()) {
    if (refuse_away()) return;
    if (request_.other_pools.empty()) return send_refusal();
    change_pool(std::move(request_.other_pools.back()));
    request_.other_pools.pop_back();
    tried_.clear();
    return attempt();
  }
  if (overdue) {
    note_refused_region("408 deadline_exceeded");
    return give_up(408, "deadline_exceeded", "no worker answered within the request's time");
  }
  const bool is_full = waits_for_slot();
  const int64_t budget_ns = is_full ? slot_budget_ns() : services_.resume_budget_ns;
  if (now_ns - stalled_ns_ >= budget_ns) {
    if (is_full) return refuse(request_.gate->refuse_late(takes(), supply));
    note_refused_region("503 no_worker");
    return give_up(503, "no_worker", "no worker is there to answer this request; try again later");
  }
  if (!waits_for_trial_) {
    tried_.clear();
    prefills_tried_.clear();
  }
  exchange_->post_after(kLookAgain, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->attempt();
  });
}

std::string Relay::run_body(const Fleet::Assignment& assignment, int further_max) const {
  cluster::RunEnvelope envelope{.incarnation = assignment.incarnation,
                                .request_id = request_.request_id,
                                .gateway = services_.gateway,
                                .attempt = attempt_,
                                .dispatch = assignment.dispatch,
                                .method = request_.http.method,
                                .path = request_.http.path,
                                .query = request_.http.query,
                                .remote = request_.http.remote,
                                .headers = forwarded_headers(request_.http.headers),
                                .tenant = request_.principal.tenant,
                                .weight = request_.principal.weight,
                                .seed = request_.seed,
                                .created_ms = request_.created_ms,
                                // All who compute its prompt have the same, in whatever zone.
                                .date = base::local_date(request_.created_ms),
                                .delivered = streaming_ && !early_,
                                .further_max = further_max,
                                .warmed = warmed_attempt_ == attempt_ && further_max == 0,
                                .peer = assignment.peer};
  envelope.headers.emplace_back("x-request-id", request_.request_id);
  // Tools are run where nobody else goes on with what they have done.
  if (runs_tools_) envelope.headers.emplace_back("x-pelton-stays", "1");
  if (request_.uplink) add_handshake(envelope.headers);
  if (request_.deadline_ns) {
    const int64_t left_ns = *request_.deadline_ns - services_.clock.now_ns();
    envelope.deadline_ms = std::max<int64_t>(left_ns / 1'000'000, 1);
  }
  std::string body;
  cluster::append_frame(body, {.type = cluster::FrameType::kRun, .payload = encode(envelope)});
  body += prompts_;
  // One name may lead to other weights at another worker: an answer goes on under its own.
  if (!adapter_.empty() && begun()) {
    cluster::append_frame(body, {.type = cluster::FrameType::kAdapter,
                                 .flags = cluster::Frame::kOptional,
                                 .payload = adapter_});
  }
  for (size_t i = 0; i < said_.size(); ++i) {
    said_[i].append_frames(static_cast<uint16_t>(i), body);
  }
  cluster::append_frame(body, {.type = cluster::FrameType::kBody, .payload = request_.http.body});
  return body;
}

net::HttpCall Relay::call_to(const Fleet::Assignment& assignment, int further_max) const {
  return {.method = "POST",
          .host = assignment.host,
          .port = assignment.port,
          .tls = assignment.tls,
          .trust = assignment.trust,
          .target = "/fleet/v1/run",
          .headers = {},
          .body = run_body(assignment, further_max),
          .repeatable = true,  // it is begun once, by its number (RB-03)
          .connect_time_max = kConnectTime,
          .quiet_time_max = kQuietTime};
}

void Relay::pause_if_behind() {
  if (!running_ || paused_ || exchange_->queued_bytes() <= kBacklogMax) return;
  paused_ = was_paused_ = true;
  services_.client.pause(call_);
}

void Relay::on_bytes(int attempt, const std::string& bytes) {
  if (over_ || !running_ || attempt != attempt_) return;  // of an attempt that is over
  heard_ = true;
  if (foreign_) return on_foreign_bytes(bytes);
  reader_.push(bytes);
  while (running_ && !over_) {
    Result<std::optional<AnswerUpdate>> update = reader_.next();
    if (!update.ok()) return end_attempt(Failure::kUnreadable, update.error().message);
    if (!*update) break;
    if (!apply(**std::move(update))) return;
    if (splits_ && !warm_up_) consider_split();
  }
  pause_if_behind();
}

bool Relay::apply(AnswerUpdate update) {
  if (update.error) {
    error_event_ = std::move(update.error->event);
    end_attempt(Failure::kError, update.error->message);
    return false;
  }
  const Result<void> kept = keep(update);
  if (!kept.ok()) {
    end_attempt(Failure::kUnreadable, kept.error().message);
    return false;
  }
  return relay(update);
}

Result<void> Relay::keep(AnswerUpdate& update) {
  if (prompts_.empty()) prompts_ = std::move(update.prompts);
  if (!update.adapter.empty() && !begun()) adapter_ = std::move(update.adapter);
  for (auto& [choice, found] : update.found) {
    if (said_.size() <= choice) said_.resize(choice + 1u);
    said_[choice].note_found(std::move(found));
    if (choice == 0 && attempt_ == 0 && !progressed_) note_fetched();
  }
  for (auto& [choice, list] : update.tokens) {
    if (said_.size() <= choice) said_.resize(choice + 1u);
    attempt_said_ += list.tokens.size();
    if (warm_up_) services_.counters.warm_tokens += std::ssize(list.tokens);
    TRY(said_[choice].add(std::move(list)));
  }
  for (auto& [choice, end] : update.finished) {
    if (said_.size() <= choice) said_.resize(choice + 1u);
    note_end(end, said_[choice]);
    TRY(said_[choice].finish(std::move(end)));
  }
  if (update.tokens.empty() && update.finished.empty()) return {};
  note_progress();
  if (attempt_said_ > 1) note_harmless();
  return {};
}

void Relay::note_harmless() {
  in_flight_.reset();
  if (!std::exchange(crashed_, false) && !is_trial_) return;
  is_trial_ = false;
  services_.quarantine.note_begun(request_.http, assignment_.incarnation);
}

void Relay::note_progress() {
  stalled_ns_ = services_.clock.now_ns();
  note_said(stalled_ns_);
  if (!progressed_) first_ns_ = stalled_ns_;
  if (answer_ns_ == 0) {
    answer_ns_ = stalled_ns_;
    first_attempted_ns_ = attempted_ns_;
    if (request_.arm) {
      request_.arm->note_first_token(static_cast<double>(answer_ns_ - started_ns_) * 1e-9);
    }
  }
  if (!std::exchange(progressed_, true) && attempt_ == 0) {
    services_.fleet.note_first_token(assignment_,
                                     static_cast<double>(stalled_ns_ - attempted_ns_) * 1e-9);
  }
}

bool Relay::relay(AnswerUpdate& update) {
  note_response(update.bytes);
  if (update.head) {
    if (streaming_ && !early_ &&
        !update.head->streamed) {  // an error's status, where a stream has begun
      const bool busy = is_busy(update.head->status);
      end_attempt(busy ? Failure::kBusy : Failure::kRefused,
                  fmt::format("status {}", update.head->status));
      return false;
    }
    head_ = std::move(update.head);
    whole_.clear();
  }
  if (head_ && head_->streamed) {
    if (request_.uplink) note_harmless();
    if (replays()) return replay(update.last);
    if (!streaming_ && !update.bytes.empty()) {
      streaming_ = true;
      exchange_->start_stream(head_->status, head_headers());
    }
    if (!update.bytes.empty()) {
      early_ = false;
      if (request_.http.path == "/v1/responses") events_ = next_event(update.bytes, events_);
      write_events(std::move(update.bytes));
    }
    if (!update.last) return true;
    finish();
    return false;
  }
  whole_ += update.bytes;
  if (whole_.size() > kWholeMax) {
    end_attempt(Failure::kUnreadable, "an answer without bounds");
    return false;
  }
  if (!update.last) return true;
  if (!head_) {
    end_attempt(Failure::kUnreadable, "an answer without a head");
    return false;
  }
  net::HttpResponse answer{
      .status = head_->status, .headers = head_headers(), .body = std::move(whole_)};
  send_whole(std::move(answer));
  return false;
}

void Relay::send_whole(net::HttpResponse answer) {
  if (is_unknown_here(answer)) {
    lacks_id_.insert(assignment_.worker);
    refusal_ = std::move(answer);
    return end_attempt(Failure::kUnknown, "it has nothing of that id");
  }
  if (request_.names_adapter && is_unknown_adapter(answer)) {
    if (!begun()) refusal_ = std::move(answer);
    // It will say so again, and there was no other to ask meanwhile.
    if (begun() && !lacks_adapter_.insert(assignment_.worker).second) failures_ = kMovesMax;
    return end_attempt(Failure::kUnknown, "it lacks the adapter, or has another version");
  }
  if (foreign_ && is_its_pools_fault(answer.status)) {
    return end_attempt(Failure::kRefused, fmt::format("status {}", answer.status));
  }
  // One that replaces it comes: it is looked for, or waited for, in its client's stead.
  if (request_.gate && !foreign_ && is_leaving(answer)) {
    return end_attempt(Failure::kLeaving, "it is being stopped");
  }
  // What another region does not have, or not for this tenant, workers here may.
  const bool is_not_there = assignment_.kind == WorkerKind::kRegion && !begun() &&
                            (answer.status == 403 || answer.status == 404);
  if (is_not_there) {
    const int status = answer.status;
    refusal_ = std::move(answer);
    return end_attempt(Failure::kBusy, fmt::format("status {}", status));
  }
  if (is_elsewhere(answer.status)) {
    const int status = answer.status;
    if (!begun()) refusal_ = std::move(answer);
    return end_attempt(is_busy(status) ? Failure::kBusy : Failure::kRefused,
                       fmt::format("status {}", status));
  }
  // Amid a stream that another one began; or its request is none here, which another one took.
  if (begun() && (foreign_ || answer.status == 400 || answer.status == 422)) {
    return end_attempt(Failure::kRefused, fmt::format("status {}", answer.status));
  }
  if (request_.media && !note_video(answer)) return;
  if (answer.status == 200) note_served();
  note_stored(answer);
  close(Fleet::Outcome::kServed);
  ++services_.counters.answered;
  note_over(answer.status < 400 ? ArmFigures::Outcome::kOk : ArmFigures::Outcome::kClientError,
            answer.status);
  send_answer(std::move(answer));
}

// Where the client has a stream's head already, as its only event; behind blanks as it is.
void Relay::send_answer(net::HttpResponse answer) {
  if (!early_) return exchange_->send(std::move(answer));
  exchange_->write(has_blanks() ? answer.body : error_event(request_.http.path, answer.body));
  exchange_->finish();
}

// What the last worker that was tried said is the answer.
void Relay::send_refusal() {
  over_ = true;
  note_over(ArmFigures::Outcome::kError, refusal_->status);
  in_flight_.reset();
  settle(Fleet::Outcome::kFailed);
  move_to(PoolGate::Place::kOver);
  --services_.counters.open;
  ++services_.counters.answered;
  send_answer(*std::move(refusal_));
}

void Relay::finish() {
  note_served();
  note_made();
  close(Fleet::Outcome::kServed);
  ++services_.counters.answered;
  note_over(ArmFigures::Outcome::kOk, head_->status);
  if (!streaming_) exchange_->start_stream(head_->status, head_headers());
  exchange_->finish();
}

void Relay::close(Fleet::Outcome outcome) {
  drop_warm_up(Fleet::Outcome::kNeither);
  drop_ahead();
  end_split(SplitCounters::Outcome::kEnded);
  services_.fleet.note_outcome(assignment_, outcome);
  if (outcome == Fleet::Outcome::kServed) {
    note_harmless();
    if (!response_id_.empty()) note_home(response_id_);  // it may have moved
  }
  if (std::exchange(is_trial_, false)) services_.quarantine.end_trial(assignment_.incarnation);
  settle(outcome);
  in_flight_.reset();
  running_ = false;
  over_ = true;
  --services_.counters.open;
  move_to(PoolGate::Place::kOver);
  if (gate() != nullptr) gate()->release(services_.fleet.supply(request_.pool));
}

bool Relay::begun() const {
  return (streaming_ && !early_) || said_count() > 0;
}

size_t Relay::said_count() const {
  size_t count = 0;
  for (const SaidTokens& one : said_) count += one.count();
  return count;
}

// The answer had not ended: on_done() comes after the last bytes.
void Relay::on_done(int attempt, const CallEnd& end, const Result<void>& result) {
  if (over_ || !running_ || attempt != attempt_) return;
  if (!result.ok()) {
    if (request_.media && result.error().code == ErrorCode::kDeadline) return end_late();
    const bool reached = result.error().code != ErrorCode::kUnavailable;
    return end_attempt(reached ? Failure::kLost : Failure::kUnreached, result.error().message);
  }
  if (foreign_) return on_foreign_end();
  if (end.status == kWrongIncarnation) {
    // Where a kept connection broke with the request in it, the start that was meant may have gone
    // because of that.
    return end_attempt(end.sent_again ? Failure::kLost : Failure::kAnother,
                       "another start of the worker answers");
  }
  if (end.status == kAlreadyBegun && end.sent_again) {
    // It lives: the request has done it no harm, and it has failed nobody.
    return end_attempt(Failure::kAnother, "the connection broke with the attempt begun");
  }
  if (end.status != 200) {
    return end_attempt(Failure::kBusy, fmt::format("fleet status {}", end.status));
  }
  end_attempt(Failure::kUnreadable, "the answer ended without its end");
}

void Relay::on_worker_lost(int attempt) {
  const auto self = shared_from_this();
  exchange_->post([self, attempt] {
    if (attempt < 0) return self->fail_warm_up(attempt, Fleet::Outcome::kNeither);
    if (attempt >= kAheadNumbers) return self->lose_prefill(attempt - kAheadNumbers);
    if (self->over_ || !self->running_ || attempt != self->attempt_) return;
    self->services_.client.cancel(self->call_);
    self->end_attempt(Failure::kDown, "the worker is down");
  });
}

void Relay::on_worker_leaving(int attempt) {
  const auto self = shared_from_this();
  exchange_->post([self, attempt] {
    if (attempt < 0) return self->fail_warm_up(attempt, Fleet::Outcome::kNeither);
    if (self->over_ || !self->running_ || attempt != self->attempt_) return;
    self->request_.is_copy ? self->end_copy() : self->leave_worker();
  });
}

void Relay::end_attempt(Failure failure, const std::string& why) {
  running_ = false;
  end_split(SplitCounters::Outcome::kLost);
  // Who has been at it goes on with it.
  if (warm_up_) preferred_ = {.worker = warm_up_->target.worker, .serial = warm_up_->target.serial};
  drop_warm_up(Fleet::Outcome::kNeither);
  if (assignment_.is_foreign) drop_ahead();
  move_to(PoolGate::Place::kHeld);
  services_.client.cancel(call_);
  const bool is_fault = failure == Failure::kLost || failure == Failure::kUnreached ||
                        failure == Failure::kRefused || failure == Failure::kError ||
                        failure == Failure::kUnreadable || failure == Failure::kSilent;
  services_.fleet.note_outcome(assignment_,
                               is_fault ? Fleet::Outcome::kFailed : Fleet::Outcome::kNeither);
  arm_failed_ = arm_failed_ || ((is_fault || failure == Failure::kDown) && !left_arm_);
  services_.log.info(fmt::format("request {} attempt {} at worker {}:{} is over: {}",
                                 request_.request_id, attempt_, assignment_.host, assignment_.port,
                                 why));
  ++attempt_;
  if (progressed_) {
    failures_ = 0;
    tried_ = {assignment_.worker};  // others that failed before are as good as any again
  }
  const bool said_no = failure == Failure::kBusy || failure == Failure::kLeaving ||
                       failure == Failure::kRefused || failure == Failure::kAnother;
  if (!said_no) stalled_ns_ = services_.clock.now_ns();
  const bool is_lost = failure == Failure::kLost || failure == Failure::kDown;
  if (!is_lost && std::exchange(is_trial_, false)) {
    services_.quarantine.end_trial(assignment_.incarnation);
  }
  // A foreign one that breaks a connection may be as well as before: its probes say so, not this.
  // And one session begins like any other.
  const bool is_alike = request_.uplink || (foreign_ && failure == Failure::kLost);
  if (!is_lost || is_alike) return go_on(failure);
  // Beyond the first step behind its prompt, and what was said of the answer, it is harmless.
  if (attempt_said_ > 1) return go_on(failure);
  crashed_ = true;
  is_trial_ = false;
  const bool is_guilty = services_.quarantine.note_crash(request_.http, assignment_.incarnation,
                                                         services_.clock.now_ns());
  if (is_guilty) return give_up_quarantined();
  go_on(failure);
}

// Nobody waits for it.
void Relay::end_copy() {
  client_left();
  exchange_->finish();
}

void Relay::go_on(Failure failure) {
  in_flight_.reset();  // behind note_crash(): another one like it waits for that
  if (foreign_ && streaming_ && !early_ && !go_on_foreign()) {
    return give_up(502, "worker_failed", "the worker failed amid its answer");
  }
  if (over_) return;
  // Sound that has been heard is not made again from where it broke off, nor heard again.
  const bool is_sound_over = request_.http.path == kSpeech || request_.uplink;
  if (streaming_ && !early_ && is_sound_over) {
    return give_up(502, "worker_failed", "the worker failed amid its answer");
  }
  if (runs_tools_ && begun()) {
    return give_up(502, "worker_failed", "the worker that ran tools for this response failed");
  }
  if (may_have_begun_video(failure)) {
    return give_up(502, "worker_failed",
                   "the worker failed as it took the video; whether it makes it is not known");
  }
  if (request_.is_copy) return give_up(502, "worker_failed", "the worker that was tried failed");
  if (begun()) {
    // Who is busy now will not be for ever: the resume budget is what bounds that.
    const bool is_for_now =
        failure == Failure::kBusy || failure == Failure::kAnother || failure == Failure::kLeaving;
    if (!is_for_now && ++failures_ > kMovesMax) {
      return give_up(502, "worker_failed", "the workers that were tried failed");
    }
    begin_move(GatewayFigures::Move::kCold);
    return attempt();
  }
  // How many workers may be lost with it the quarantine says; one that loses it again and lives on
  // has not been lost, and one whose answer cannot be read, or does not come, lives.
  const bool is_lost =
      failure == Failure::kLost || failure == Failure::kUnreadable || failure == Failure::kSilent;
  const bool is_anew = is_lost && note_lost();
  const bool is_charged = failure == Failure::kBusy || failure == Failure::kRefused ||
                          failure == Failure::kError || (is_lost && !is_anew);
  // A replica that has gone may be the only one: the next one is waited for.
  // Nobody knows a foreign one's starts.
  const bool is_free =
      (is_anew && failure == Failure::kLost && !foreign_) || failure == Failure::kDown ||
      failure == Failure::kAnother || failure == Failure::kLeaving ||
      failure == Failure::kUnknown ||
      (failure == Failure::kUnreached && request_.gate && request_.gate->is_scaled());
  if ((!is_free && ++failures_ > services_.retries_max) ||
      (is_charged && !services_.retry_budget.take(services_.clock.now_ns()))) {
    if (fall_back()) return attempt();
    if (refusal_) return send_refusal();
    if (assignment_.kind == WorkerKind::kRegion && (is_lost || failure == Failure::kUnreached)) {
      note_refused_region("503 no_worker");
      return give_up(503, "no_worker",
                     "the region that may answer this request is lost; try again later");
    }
    return give_up(502, "worker_failed", "the workers that were tried failed");
  }
  if (failure != Failure::kUnknown) services_.counters.figures.note_retry(retry_of(failure));
  attempt();
}

// Whether this start of this worker has not lost the request before.
bool Relay::note_lost() {
  std::string start = fmt::format("{} {}", assignment_.worker, assignment_.incarnation);
  if (std::ranges::find(lost_at_, start) != lost_at_.end()) return false;
  lost_at_.push_back(std::move(start));
  return true;
}

void Relay::give_up_quarantined() {
  ++services_.counters.quarantined;
  give_up(500, "request_quarantined",
          "workers were lost while they began this request; it is not sent to another one");
}

void Relay::give_up(int status, std::string_view code, std::string_view message) {
  give_up({.status = status,
           .message = std::string(message),
           .type = "server_error",
           .param = {},
           .code = code,
           .retry_after_s = status == 503 ? 1 : 0});
}

bool Relay::is_sound() const {
  if (!head_ || early_) return false;
  if (media_) return true;
  return std::ranges::any_of(head_->headers, [](const auto& field) {
    return net::equals_without_case(field.first, "Content-Type") &&
           field.second.starts_with("audio/");
  });
}

void Relay::give_up(api::ApiError error) {
  over_ = true;
  note_over(ArmFigures::Outcome::kError, streaming_ ? 200 : error.status);
  in_flight_.reset();
  settle(Fleet::Outcome::kFailed);
  move_to(PoolGate::Place::kOver);
  --services_.counters.open;
  if (streaming_) {
    ++services_.counters.interrupted;
    if (!early_) error.code = "stream_interrupted";
    if (has_blanks()) {
      exchange_->write(error_answer(request_.http.path, error, request_.request_id).body);
      return exchange_->finish();
    }
    if (is_sound()) {
      // Its bytes have no room for an error: an exchange that is dropped leaves a body without an
      // end.
      return exchange_->post([relay = shared_from_this()] { relay->exchange_->on_closed([] {}); });
    }
    exchange_->write(error_event_.empty() ? interruption_event(request_.http.path, error, events_)
                                          : error_event_);
    return exchange_->finish();
  }
  ++services_.counters.unserved;
  exchange_->send(error_answer(request_.http.path, error, request_.request_id));
}

void Relay::client_left() {
  if (over_) return;
  // Who leaves a session has ended it.
  const bool is_end = request_.uplink && streaming_;
  const bool is_broken = is_end && request_.uplink->is_broken();
  ++(is_broken ? services_.counters.interrupted
     : is_end  ? services_.counters.answered
               : services_.counters.left);
  note_over(is_broken ? ArmFigures::Outcome::kError
            : is_end  ? ArmFigures::Outcome::kOk
                      : ArmFigures::Outcome::kLeft,
            streaming_ ? 200 : 0);
  if (running_) {
    services_.client.cancel(call_);
    return close(Fleet::Outcome::kNeither);
  }
  over_ = true;
  settle(Fleet::Outcome::kNeither);
  leave_hold();
  move_to(PoolGate::Place::kOver);
  --services_.counters.open;
}

void Relay::drained() {
  if (!paused_ || over_) return;
  paused_ = false;
  if (running_) services_.client.resume(call_);
}

}  // namespace pelton::gateway
