// The part of gateway::Relay that has a request answered by two servers of another kind: who is
// chosen says the answer, and another one of its pool computes the prompt for it
// (gateway/foreign_pair.h). vLLM's first one ends before the second one is asked; SGLang's two
// meet. Where the first one fails, or what it has kept is expired, vLLM's second one computes the
// prompt itself; SGLang's cannot, and another pair is tried, unless the second one says the answer
// by then. What the first one says of the request itself (4xx) its client gets.
#include <chrono>
#include <utility>

#include "base/digest.h"
#include "base/random.h"
#include "gateway/relay.h"

namespace pelton::gateway {
namespace {

constexpr size_t kAnswerBytesMax = size_t{16} << 20;  // of one token, with its log-probabilities
// Until the second one has read that there is something to fetch.
constexpr double kExpiryMarginS = 1;

// What says something of the request; other refusals are a server's own (its keys, the name that it
// serves), and another one may answer.
bool is_the_requests(int status) {
  return status == 400 || status == 413 || status == 422;
}

Fleet::Outcome outcome_of(int status) {
  if (status == 200) return Fleet::Outcome::kServed;
  const bool is_no_fault = status == 429 || is_the_requests(status);
  return is_no_fault ? Fleet::Outcome::kNeither : Fleet::Outcome::kFailed;
}

double unix_s() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

}  // namespace

// An answer of vLLM's that goes on elsewhere is computed there whole.
bool Relay::begin_pair() {
  pair_fields_.clear();
  if (!assignment_.pairs || !can_pair(assignment_.kind, request_.http.path, request_.http.body)) {
    return false;
  }
  const bool is_vllm = assignment_.kind == WorkerKind::kVllm;
  if (is_vllm && (begun() || std::exchange(has_paired_, true))) return false;
  if (!assign_prefill()) {
    services_.counters.splits.note(SplitCounters::Outcome::kNoDecoder);
    if (is_vllm || assignment_.role == cluster::WorkerRole::kBoth) return false;
    end_attempt(Failure::kBusy, "no worker of its pool computes prompts");
    return true;
  }
  if (is_vllm) {
    ask_prefill(vllm_prefill_body(stream_ ? stream_->body() : request_.http.body));
    watch_attempt();
    return true;
  }
  pair_fields_ = sglang_body(stream_ ? stream_->body() : request_.http.body,
                             {.host = ahead_->target.host,
                              .port = ahead_->target.bootstrap_port,
                              .room = static_cast<int64_t>(drawn() >> 1)});
  ask_prefill(pair_fields_);
  return false;
}

// Of each pair another one.
uint64_t Relay::drawn() const {
  return base::random_bits(base::fnv1a64(request_.request_id),
                           request_.seed + static_cast<uint64_t>(aheads_));
}

// One that has not failed it yet.
bool Relay::assign_prefill() {
  std::vector<size_t> excluded = prefills_tried_;
  excluded.push_back(assignment_.worker);
  std::optional<Fleet::Assignment> prefill =
      services_.fleet.assign({.pool = request_.pool,
                              .model = request_.model,
                              .excluded = excluded,
                              .prompt = request_.prompt,
                              .draw = drawn(),
                              .region = request_.region,
                              .request_id = request_.request_id,
                              .computes_prompt = true});
  if (!prefill) return false;
  prefills_tried_.push_back(prefill->worker);
  ahead_ = Ahead{.number = ++aheads_, .target = *std::move(prefill)};
  services_.fleet.listen(ahead_->target, weak_from_this(), kAheadNumbers + ahead_->number);
  return true;
}

void Relay::ask_prefill(std::string body) {
  net::HttpCall call = foreign_call_to(ahead_->target);
  call.body = std::move(body);
  call.body_bytes_max = kAnswerBytesMax;
  const auto answer = std::make_shared<net::HttpResponse>();
  net::HttpCallEvents events;
  events.on_head = [answer](int status, const net::HttpHeaders& headers) {
    answer->status = status;
    answer->headers = headers;
  };
  events.on_body = [answer](std::string_view bytes) { answer->body += bytes; };
  const auto self = shared_from_this();
  events.on_done = [self, answer, number = ahead_->number](const Result<void>& result) {
    if (!result.ok()) answer->status = 0;
    self->exchange_->post([self, answer, number] { self->on_prefilled(number, *answer); });
  };
  ahead_->call = services_.client.start(std::move(call), std::move(events));
}

// It is down: nothing more is heard of it.
void Relay::lose_prefill(int number) {
  if (!ahead_ || ahead_->number != number || !assignment_.is_foreign) return;
  services_.client.cancel(ahead_->call);
  on_prefilled(number, {.status = 0});
}

// Its status is 0 where there is no answer.
void Relay::on_prefilled(int number, const net::HttpResponse& answer) {
  if (over_ || !running_ || !ahead_ || ahead_->number != number) return;
  services_.fleet.note_outcome(ahead_->target, outcome_of(answer.status));
  ahead_.reset();
  // Of a stream something has been said; all else comes with its head.
  const bool goes_on = progressed_ || (foreign_->begun() && !foreign_->streamed());
  if (!goes_on && is_the_requests(answer.status)) return send_prefills(answer);
  assignment_.kind == WorkerKind::kVllm ? go_on_vllm(answer) : go_on_sglang(answer, goes_on);
}

void Relay::go_on_sglang(const net::HttpResponse& answer, bool goes_on) {
  using Outcome = SplitCounters::Outcome;
  const bool is_good = answer.status == 200;
  services_.counters.splits.note(is_good || goes_on ? Outcome::kHandedOver : Outcome::kFailed);
  if (is_good || goes_on) return;
  if (answer.status == 429) note_refusal(answer);
  std::erase(tried_, assignment_.worker);  // with another one it is as good as before
  end_attempt(answer.status == 429 ? Failure::kBusy : Failure::kAnother,
              "the worker that computes its prompt failed");
}

void Relay::go_on_vllm(const net::HttpResponse& answer) {
  using Outcome = SplitCounters::Outcome;
  if (answer.status == 429 && assign_prefill()) {
    return ask_prefill(vllm_prefill_body(stream_ ? stream_->body() : request_.http.body));
  }
  const bool is_answer = answer.status == 200;
  const Result<VllmHandOff> hand_off = read_vllm_hand_off(answer.body);
  const bool is_good = is_answer && hand_off.ok() &&
                       (!hand_off->expires_s || unix_s() + kExpiryMarginS < *hand_off->expires_s);
  services_.counters.splits.note(is_good ? Outcome::kHandedOver : Outcome::kFailed);
  if (is_answer && !hand_off.ok()) {
    services_.log.warning("request " + request_.request_id + ": " + hand_off.error().message);
  }
  if (is_good) {
    pair_fields_ = vllm_decode_body(stream_ ? stream_->body() : request_.http.body, *hand_off);
  }
  start_call();
}

// Its fields as a client of that server's gets them.
net::HttpResponse Relay::as_answer(const net::HttpResponse& answer) {
  ForeignAnswer read(request_.http.path);
  read.begin(answer.status, answer.headers);
  head_ = read.head();
  return {.status = answer.status, .headers = head_headers(), .body = answer.body};
}

void Relay::note_refusal(const net::HttpResponse& answer) {
  refusal_ = as_answer(answer);
}

// The request is what is wrong: neither server's fault, and the same at any other.
void Relay::send_prefills(const net::HttpResponse& answer) {
  services_.counters.splits.note(SplitCounters::Outcome::kEnded);
  services_.client.cancel(call_);
  net::HttpResponse said = as_answer(answer);
  close(Fleet::Outcome::kNeither);
  ++services_.counters.answered;
  note_over(ArmFigures::Outcome::kClientError, answer.status);
  send_answer(std::move(said));
}

}  // namespace pelton::gateway
