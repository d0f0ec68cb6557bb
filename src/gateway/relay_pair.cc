// The part of gateway::Relay that has a request answered by two servers of another kind: who is
// chosen says the answer, and another one of its pool computes the prompt for it
// (gateway/foreign_pair.h). vLLM's first one ends before the second one is asked; SGLang's two
// meet. Where the first one fails, or what it has kept is expired, vLLM's second one computes the
// prompt itself; SGLang's cannot, and another pair is tried.
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
  const std::vector<size_t> excluded = {assignment_.worker};
  std::optional<Fleet::Assignment> prefill =
      services_.fleet.assign({.pool = request_.pool,
                              .model = request_.model,
                              .excluded = excluded,
                              .prompt = request_.prompt,
                              .region = request_.region,
                              .request_id = request_.request_id,
                              .computes_prompt = true});
  if (!prefill) {
    services_.counters.splits.note(SplitCounters::Outcome::kNoDecoder);
    if (is_vllm || assignment_.role == cluster::WorkerRole::kBoth) return false;
    end_attempt(Failure::kBusy, "no worker of its pool computes prompts");
    return true;
  }
  ahead_ = Ahead{.number = ++aheads_, .target = *std::move(prefill)};
  const std::string body = stream_ ? stream_->body() : request_.http.body;
  if (is_vllm) {
    ask_prefill(vllm_prefill_body(body));
    return true;
  }
  const uint64_t drawn = base::random_bits(base::fnv1a64(request_.request_id),
                                           request_.seed + static_cast<uint64_t>(attempt_));
  pair_fields_ = sglang_body(body, {.host = ahead_->target.host,
                                    .port = ahead_->target.bootstrap_port,
                                    .room = static_cast<int64_t>(drawn >> 1)});
  ask_prefill(pair_fields_);
  return false;
}

void Relay::ask_prefill(std::string body) {
  net::HttpCall call = foreign_call_to(ahead_->target);
  call.body = std::move(body);
  call.body_bytes_max = kAnswerBytesMax;
  const auto answer = std::make_shared<net::HttpResponse>();
  net::HttpCallEvents events;
  events.on_head = [answer](int status, const net::HttpHeaders&) { answer->status = status; };
  events.on_body = [answer](std::string_view bytes) { answer->body += bytes; };
  const auto self = shared_from_this();
  events.on_done = [self, answer, number = ahead_->number](const Result<void>& result) {
    const bool is_whole = result.ok() && answer->status == 200;
    self->exchange_->post([self, answer, number, is_whole] {
      self->on_prefilled(number, is_whole ? answer->body : "");
    });
  };
  ahead_->call = services_.client.start(std::move(call), std::move(events));
}

// `answer`: empty where there is none.
void Relay::on_prefilled(int number, const std::string& answer) {
  if (over_ || !running_ || !ahead_ || ahead_->number != number) return;
  const bool is_vllm = assignment_.kind == WorkerKind::kVllm;
  services_.fleet.note_outcome(ahead_->target,
                               answer.empty() ? Fleet::Outcome::kFailed : Fleet::Outcome::kServed);
  ahead_.reset();
  using Outcome = SplitCounters::Outcome;
  if (!is_vllm) {
    services_.counters.splits.note(answer.empty() ? Outcome::kFailed : Outcome::kHandedOver);
    if (!answer.empty()) return;
    services_.client.cancel(call_);
    return end_attempt(Failure::kAnother, "the worker that computes its prompt failed");
  }
  const Result<VllmHandOff> hand_off = read_vllm_hand_off(answer);
  const bool is_good = !answer.empty() && hand_off.ok() &&
                       (!hand_off->expires_s || unix_s() + kExpiryMarginS < *hand_off->expires_s);
  services_.counters.splits.note(is_good ? Outcome::kHandedOver : Outcome::kFailed);
  if (!answer.empty() && !hand_off.ok()) {
    services_.log.warning("request " + request_.request_id + ": " + hand_off.error().message);
  }
  if (is_good) {
    pair_fields_ = vllm_decode_body(stream_ ? stream_->body() : request_.http.body, *hand_off);
  }
  start_call();
}

}  // namespace pelton::gateway
