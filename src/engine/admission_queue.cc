#include "engine/admission_queue.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/check.h"

namespace pelton::engine {
namespace {

using admission::WaitEstimate;

// Of the places in the queue that are still free, a tenant may take so many for one it leaves: so
// one who floods it fills seven eighths, and the others always find room.
constexpr int kPlacesForOneLeft = 7;

// Estimates are rough, and whoever is let in because he might just be ready in time is as likely
// not to be: then all that was computed for him is lost to those who could have been.
constexpr double kCaution = 1.25;

double seconds(int64_t ns) {
  return static_cast<double>(ns) * 1e-9;
}

AdmissionQueue::Kind kind_of(const request::GenerationRequest& request) {
  return request.pooling ? AdmissionQueue::Kind::kPooled : AdmissionQueue::Kind::kSampled;
}

bool is_background(const request::GenerationRequest& request) {
  return request.priority > 0;
}

// What is only fetched is nothing to be computed.
int64_t tokens_of(const request::GenerationRequest& request) {
  return request.peer && request.peer->ahead ? 0 : static_cast<int64_t>(request.prompt.size());
}

}  // namespace

AdmissionQueue::Ticket AdmissionQueue::ticket(const request::GenerationRequest& request) {
  return {.tenant = request.tenant,
          .kind = kind_of(request),
          .is_background = is_background(request),
          .prompt_tokens = static_cast<int>(tokens_of(request))};
}

Result<void> AdmissionQueue::enter(request::GenerationRequest& request, int answers,
                                   int64_t now_ns) {
  const int64_t tokens = tokens_of(request);
  const bool behind = is_background(request);
  TRY(check_bounds({.tenant = request.tenant,
                    .weight = request.weight,
                    .answers = answers,
                    .tokens = tokens,
                    .is_background = behind}));
  const Kind kind = kind_of(request);
  const int64_t wait = wait_of(
      {.tenant = request.tenant, .weight = request.weight, .kind = kind, .is_background = behind},
      now_ns);
  TRY(check_wait(wait));
  TRY(check_deadline(request, wait, now_ns));
  if (options_.wait_max_ns > 0) {
    const int64_t limit = now_ns + options_.wait_max_ns;
    request.start_by_ns = std::min(request.start_by_ns.value_or(limit), limit);
  }
  Queue& queue = queue_of(kind);
  Tenant& tenant = queue.tenants[request.tenant];
  tenant.weight = request.weight;
  for (Kinds* kinds : {&tenant.waiting, &queue.waiting, &waiting_}) {
    Waiting& waiting = kinds->of(behind);
    waiting.requests += answers;
    waiting.tokens += tokens;
  }
  return {};
}

Result<void> AdmissionQueue::room_for(const Candidate& candidate, int64_t now_ns) const {
  TRY(check_bounds({.tenant = candidate.tenant,
                    .weight = candidate.weight,
                    .is_background = candidate.is_background}));
  return check_wait(wait_of(candidate, now_ns));
}

Result<void> AdmissionQueue::check_bounds(const Asked& asked) const {
  const auto [requests, all_tokens] = waiting_.before(asked.is_background);
  if (requests == 0) return {};
  if (requests + asked.answers > options_.requests_max) {
    return Error{ErrorCode::kOverloaded, fmt::format("{} requests are waiting already; {} may",
                                                     requests, options_.requests_max)};
  }
  if (all_tokens + asked.tokens > options_.tokens_max) {
    return Error{ErrorCode::kOverloaded,
                 fmt::format("{} prompt tokens are waiting already; {} more are over the {} that "
                             "may wait",
                             all_tokens, asked.tokens, options_.tokens_max)};
  }
  const Waiting own = counted(asked);
  if (asked.tenant.empty() || own.requests == 0) return {};
  const int64_t places_left = options_.requests_max - requests;
  const int64_t tokens_left = options_.tokens_max - all_tokens;
  if (own.requests + asked.answers > kPlacesForOneLeft * places_left ||
      own.tokens + asked.tokens > kPlacesForOneLeft * tokens_left) {
    return Error{ErrorCode::kOverloaded,
                 fmt::format("{} requests of yours are waiting already; the places that are left "
                             "are for others",
                             own.requests)};
  }
  return {};
}

Result<void> AdmissionQueue::check_wait(int64_t wait_ns) const {
  const double wait = static_cast<double>(wait_ns) * kCaution;
  if (options_.wait_max_ns == 0 || wait <= static_cast<double>(options_.wait_max_ns)) return {};
  return Error{ErrorCode::kOverloaded,
               fmt::format("a request would wait about {:.1f} s for its turn; {:.1f} s are the "
                           "most that one may",
                           seconds(wait_ns), seconds(options_.wait_max_ns))};
}

// Where nobody waits a request is tried as long as it can begin to answer: it may well be short.
Result<void> AdmissionQueue::check_deadline(request::GenerationRequest& request, int64_t wait_ns,
                                            int64_t now_ns) const {
  if (!request.deadline_ns) return {};
  const int64_t left = *request.deadline_ns - now_ns;
  if (left <= 0) return Error{ErrorCode::kDeadline, "the deadline has passed"};
  const WaitEstimate& estimate = queue_of(kind_of(request)).estimate;
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  const int64_t needed = wait_ns > 0 && !request.pooling
                             ? estimate.service_ns(prompt, request.stop.max_new_tokens)
                             : estimate.first_token_ns(prompt);
  const double wanted = static_cast<double>(wait_ns) * kCaution + static_cast<double>(needed);
  if (wanted > static_cast<double>(left)) {
    return Error{ErrorCode::kOverloaded,
                 fmt::format("this request would wait about {:.1f} s for its turn and then take "
                             "about {:.1f} s; its deadline is in {:.1f} s",
                             seconds(wait_ns), seconds(needed), seconds(left))};
  }
  request.start_by_ns = *request.deadline_ns - needed;
  return {};
}

// Tenants take turns by weight, so who has few waiting does not wait for all of those who have
// many.
int64_t AdmissionQueue::wait_of(const Candidate& candidate, int64_t now_ns) const {
  const Queue& queue = queue_of(candidate.kind);
  double others = 0;
  for (const auto& [name, one] : queue.tenants) {
    if (name != candidate.tenant) others += one.weight;
  }
  const bool behind = candidate.is_background;
  const auto own = queue.tenants.find(candidate.tenant);
  const double own_waiting =
      own == queue.tenants.end() ? 0 : own->second.waiting.before(behind).requests;
  const double in_turn = (own_waiting + 1) * (candidate.weight + others) / candidate.weight - 1;
  int64_t places =
      static_cast<int64_t>(std::min<double>(queue.waiting.before(behind).requests, in_turn)) + 1;
  if (!left_waiting_) {
    places -= std::max(0, options_.slots[static_cast<size_t>(candidate.kind)] - queue.scheduled);
  }
  return places <= 0 ? 0 : queue.estimate.wait_ns(places, now_ns);
}

AdmissionQueue::Waiting AdmissionQueue::counted(const Asked& asked) const {
  Waiting all;
  for (const Queue& queue : queues_) {
    const auto found = queue.tenants.find(asked.tenant);
    if (found == queue.tenants.end()) continue;
    const Waiting own = found->second.waiting.before(asked.is_background);
    all.requests += own.requests;
    all.tokens += own.tokens;
  }
  return all;
}

int64_t AdmissionQueue::retry_after_ns(int64_t now_ns) const {
  const Queue& queue = queue_of(Kind::kSampled);
  return queue.estimate.wait_ns(std::max(1, queue.waiting.before(false).requests / 2), now_ns);
}

int64_t AdmissionQueue::wait_ns(int64_t now_ns) const {
  return wait_of({}, now_ns);
}

void AdmissionQueue::note_places(Places places, int64_t now_ns) {
  left_waiting_ = places == Places::kTaken;
  for (Queue& queue : queues_) {
    queue.estimate.places_are(queue.waiting.before(true).requests > 0 ? places : Places::kFree,
                              now_ns);
  }
}

void AdmissionQueue::leave(const Ticket& ticket) {
  Queue& queue = queue_of(ticket.kind);
  const auto tenant = queue.tenants.find(ticket.tenant);
  CHECK(tenant != queue.tenants.end(), "a request leaves the line twice");
  for (Kinds* kinds : {&tenant->second.waiting, &queue.waiting, &waiting_}) {
    Waiting& waiting = kinds->of(ticket.is_background);
    --waiting.requests;
    waiting.tokens -= ticket.prompt_tokens;
  }
  if (tenant->second.waiting.before(true).requests == 0) queue.tenants.erase(tenant);
}

void AdmissionQueue::note_seated(const Ticket& ticket) {
  leave(ticket);
  ++queue_of(ticket.kind).scheduled;
}

// What was cut short shows that a place is free, and nothing of what a request costs.
void AdmissionQueue::note_left_slot(const Ticket& ticket, const StreamEnd& end,
                                    const RequestTimes& times, int64_t now_ns) {
  Queue& queue = queue_of(ticket.kind);
  --queue.scheduled;
  queue.estimate.place_freed(now_ns);
  if (end.reason == FinishReason::kCancelled || end.reason == FinishReason::kError) return;
  const int64_t first_ns = times.first_token_ns == 0 ? now_ns : times.first_token_ns;
  queue.estimate.served({.prompt_tokens = end.prompt_tokens,
                         .prefill_ns = first_ns - times.scheduled_ns,
                         .output_tokens = end.output_tokens,
                         .decode_ns = now_ns - first_ns});
}

void AdmissionQueue::note_never_scheduled(const Ticket& ticket) {
  leave(ticket);
}

}  // namespace pelton::engine
