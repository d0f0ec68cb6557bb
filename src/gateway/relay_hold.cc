// The part of gateway::Relay that waits for a replica, where its pool's come and go; or goes to
// another pool.
#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "gateway/client_headers.h"
#include "gateway/relay.h"
#include "net/sse.h"

namespace pelton::gateway {
namespace {

constexpr int64_t kMillisecond_ns = 1'000'000;
constexpr int64_t kLookMs = 500;  // so soon it sees that the gateway ends

std::string_view content_type(Relay::Request::KeepAlive form) {
  using KeepAlive = Relay::Request::KeepAlive;
  if (form == KeepAlive::kComments) return "text/event-stream; charset=utf-8";
  return form == KeepAlive::kLineBlanks ? "application/x-ndjson" : "application/json";
}

int64_t nanoseconds(double seconds) {
  return static_cast<int64_t>(seconds * 1e9);
}

api::ApiError api_error_of(const PoolGate::Refusal& refusal) {
  return {.status = refusal.status,
          .message = refusal.message,
          .type = refusal.status == 429 ? "rate_limit_error" : "server_error",
          .param = {},
          .code = refusal.code,
          .retry_after_s = std::max(static_cast<int>(std::ceil(refusal.retry_after_s)), 1)};
}

}  // namespace

void Relay::begin() {
  PoolGate* const gate = request_.gate.get();
  if (gate == nullptr) return attempt();
  const PoolSupply supply = services_.fleet.supply(request_.pool);
  if (gate->passes(supply, takes())) {
    attempt();
    return gate->note_passed();
  }
  // Nobody starts a worker: another pool may have one.
  if (supply.ready == 0 && !gate->is_scaled()) return attempt();
  const bool is_cold = supply.ready == 0 || takes() == PoolGate::Takes::kWhatThereIs;
  if (is_cold && gate->is_scaled() && request_.http.headers.get(kColdStartHeader) == "fail") {
    return refuse(gate->refuse_cold());
  }
  hold();
}

PoolGate::Takes Relay::takes() const {
  return media_work() == nullptr ? PoolGate::Takes::kWhatThereIs : PoolGate::Takes::kSlot;
}

// Instead of looking for a worker again and again.
bool Relay::must_hold(const PoolSupply& supply) const {
  if (gate() == nullptr || waits_for_trial_) return false;
  // What a worker has said is the answer where none will be started.
  if (supply.ready == 0) return gate()->is_scaled() || !refusal_;
  return takes() == PoolGate::Takes::kSlot && supply.free_slots == 0;
}

// Others of its pool have room, but not its adapter.
bool Relay::waits_for_slot() const {
  return gate() != nullptr && takes() == PoolGate::Takes::kSlot &&
         services_.fleet.is_full_of(request_.pool, request_.model);
}

int64_t Relay::slot_budget_ns() const {
  return nanoseconds(request_.gate->hold().time_max_s);
}

// What has begun already waits like the others, in its client's place.
void Relay::hold() {
  if (held_) return;
  begin_wait();
  const int64_t now_ns = services_.clock.now_ns();
  const HoldConfig config = request_.gate->hold();
  const PoolSupply supply = services_.fleet.supply(request_.pool);
  int64_t wait_max_ns = nanoseconds(config.time_max_s) - held_ns_;
  if (request_.deadline_ns) wait_max_ns = std::min(wait_max_ns, *request_.deadline_ns - now_ns);
  PoolGate::Refusal refusal;
  held_ = request_.gate->enter({.tenant = request_.principal.tenant,
                                .weight = request_.principal.weight,
                                .bytes = static_cast<int64_t>(request_.http.body.size()),
                                .wait_max_ns = wait_max_ns,
                                .request = weak_from_this(),
                                .takes = takes()},
                               refusal, supply);
  if (!held_) return fall_back() ? attempt() : refuse(refusal);
  move_to(PoolGate::Place::kHeld);
  held_since_ns_ = now_ns;
  keep_alive_ns_ = now_ns + nanoseconds(config.keep_alive_s);
  // One may have become ready since it was looked.
  request_.gate->release(services_.fleet.supply(request_.pool));
  watch_hold();
}

void Relay::leave_hold() {
  if (!held_) return;
  request_.gate->leave(*std::exchange(held_, std::nullopt));
  held_ns_ += services_.clock.now_ns() - held_since_ns_;
}

// Where no worker is there, and nobody starts one, it waits as long as it would anywhere.
bool Relay::end_stalled_hold(const PoolSupply& supply, int64_t now_ns) {
  if (request_.gate->is_scaled()) return false;
  if (supply.ready > 0) stalled_ns_ = now_ns;
  if (now_ns - stalled_ns_ < services_.resume_budget_ns) return false;
  leave_hold();
  if (fall_back()) {
    attempt();
    return true;
  }
  note_refused_region("503 no_worker");
  give_up(503, "no_worker", "no worker is there to answer this request; try again later");
  return true;
}

// Until it is released: comments, blanks or pings to its client, and the end of its patience.
void Relay::watch_hold() {
  if (over_ || !held_) return;
  if (services_.ends != nullptr && *services_.ends) return interrupt();
  const int64_t now_ns = services_.clock.now_ns();
  const PoolSupply supply = services_.fleet.supply(request_.pool);
  if (end_stalled_hold(supply, now_ns)) return;
  const HoldConfig config = request_.gate->hold();
  int64_t until_ns = held_since_ns_ + nanoseconds(config.time_max_s) - held_ns_;
  const bool has_deadline = request_.deadline_ns && *request_.deadline_ns < until_ns;
  if (has_deadline) until_ns = *request_.deadline_ns;
  if (now_ns >= until_ns) {
    leave_hold();
    if (!has_deadline) return refuse(request_.gate->refuse_late(takes(), supply));
    const bool is_full = takes() == PoolGate::Takes::kSlot && supply.ready > 0;
    return give_up(408, "deadline_exceeded",
                   fmt::format("no {} within the request's time",
                               is_full ? "worker was free" : "replica was ready"));
  }
  const bool is_kept = request_.keep_alive != Request::KeepAlive::kNone;
  if (is_kept && now_ns >= keep_alive_ns_) keep_alive(now_ns);
  const int64_t next_ns = is_kept ? std::min(until_ns, keep_alive_ns_) : until_ns;
  const int64_t wait_ms = (next_ns - now_ns + kMillisecond_ns - 1) / kMillisecond_ns;
  const auto wait = std::chrono::milliseconds(std::clamp<int64_t>(wait_ms, 1, kLookMs));
  exchange_->post_after(wait, [weak = weak_from_this(), number = *held_] {
    const auto self = weak.lock();
    if (self != nullptr && self->held_ == number) self->watch_hold();
  });
}

void Relay::keep_alive(int64_t now_ns) {
  keep_alive_ns_ = now_ns + 2 * nanoseconds(request_.gate->hold().keep_alive_s);
  // Its status goes with its last message, so nothing is given away; what the connection needs
  // besides are the listener's pings.
  if (request_.keep_alive == Request::KeepAlive::kMetadata) {
    return exchange_->start_stream(200, {});
  }
  if (request_.keep_alive == Request::KeepAlive::kPings) return exchange_->ping();
  if (!std::exchange(streaming_, true)) {
    early_ = true;
    net::HttpHeaders headers;
    headers.add("Content-Type", std::string(content_type(request_.keep_alive)));
    headers.add("Cache-Control", "no-cache");
    headers.add("x-request-id", request_.request_id);
    for (const auto& [name, value] : request_.limits.fields()) headers.add(name, value);
    exchange_->start_stream(200, std::move(headers));
  }
  if (request_.keep_alive != Request::KeepAlive::kComments) return exchange_->write(" ");
  std::string bytes;
  net::append_sse_comment(bytes, "waiting for a replica");
  exchange_->write(bytes);
}

void Relay::on_released() {
  exchange_->post([self = shared_from_this()] { self->go_on_released(); });
}

// Its slot is taken, or nobody's, only when it has been sent.
void Relay::go_on_released() {
  if (!over_ && held_) {
    leave_hold();
    tried_.clear();
    stalled_ns_ = services_.clock.now_ns();
    attempt();
  }
  request_.gate->note_passed();
}

void Relay::on_start_failed() {
  exchange_->post([self = shared_from_this()] {
    if (self->over_ || !self->held_) return;
    self->leave_hold();
    const autoscaler::PoolAnnouncement announced = self->request_.gate->announcement();
    self->refuse({.code = "model_start_failed",
                  .message = "the model did not start: " + announced.failure,
                  .retry_after_s = announced.again_s});
  });
}

void Relay::refuse(const PoolGate::Refusal& refusal) {
  request_.gate->note_refused();
  give_up(api_error_of(refusal));
}

void Relay::move_to(PoolGate::Place place) {
  if (gate() == nullptr || place == place_) return;
  request_.gate->move(place_, place);
  place_ = place;
}

net::HttpHeaders Relay::head_headers() const {
  net::HttpHeaders headers = answer_headers(*head_);
  for (const auto& [name, value] : request_.limits.fields()) headers.add(name, value);
  // Theirs is not passed on: it need not be the one that the client gave.
  if (foreign_ && !headers.has("x-request-id")) headers.add("x-request-id", request_.request_id);
  if (request_.resume && head_->streamed && !foreign_) {
    headers.add(std::string(kResumeHeader), request_.resume->ticket);
  }
  if (held_ns_ > 0) headers.add("x-pelton-held-ms", std::to_string(held_ns_ / kMillisecond_ns));
  return headers;
}

// Its pool is gone from the configuration: where the worker that had it is now.
bool Relay::follow_worker() {
  if (attempt_ == 0 || services_.fleet.has_pool(request_.pool)) return false;
  std::string pool = services_.fleet.pool_of(assignment_);
  if (pool.empty() || pool == request_.pool) return false;
  change_pool(std::move(pool));
  return true;
}

void Relay::change_pool(std::string pool) {
  request_.pool = std::move(pool);
  prefills_tried_.clear();
  if (request_.served == nullptr) return;
  request_.served = services_.counters.served.find(request_.pool, request_.model);
}

// Its pool has no worker, or those that were tried are full or fail: the next one, if its route has
// one. Whoever has begun an answer ends it.
bool Relay::fall_back() {
  const bool is_scaled = request_.gate && request_.gate->is_scaled();
  if (begun() || is_scaled || request_.fallback.empty()) return false;
  move_to(PoolGate::Place::kOver);
  left_gate_ = true;
  left_arm_ = arm_failed_ = true;
  change_pool(std::move(request_.fallback.front()));
  request_.fallback.erase(request_.fallback.begin());
  tried_.clear();
  failures_ = 0;
  refusal_.reset();
  stalled_ns_ = services_.clock.now_ns();
  ++services_.counters.fallbacks;
  return true;
}

}  // namespace pelton::gateway
