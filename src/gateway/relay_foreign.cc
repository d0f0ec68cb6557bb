// The part of gateway::Relay that speaks with a worker which is no Pelton: the request goes as it
// came, and of the answer only whole events are passed on. Where that is plain text, and another
// worker has shown that it can, that one goes on with it (gateway/foreign_stream.h).
#include <algorithm>
#include <utility>

#include "base/json.h"
#include "gateway/client_headers.h"
#include "gateway/relay.h"
#include "net/url.h"

namespace pelton::gateway {
namespace {

constexpr std::chrono::milliseconds kConnectTime{1'000};
constexpr std::chrono::milliseconds kQuietTime{600'000};
constexpr std::string_view kDone = "data: [DONE]\n\n";
// Where a picture's bytes are none: what has become of a video, an error.
constexpr size_t kMediaBodyBytesMax = size_t{4} << 20;

// Of an answer whose tokens nobody counts: one each, nearly.
int64_t event_count(std::string_view events) {
  int64_t count = 0;
  for (size_t at = events.find("data: {"); at != std::string_view::npos;
       at = events.find("data: {", at + 1)) {
    ++count;
  }
  return count;
}

}  // namespace

void Relay::begin_foreign() {
  media_.reset();
  ForeignAnswer::Expected expected;
  if (request_.media) expected = {.body_bytes_max = kMediaBodyBytesMax, .json = true};
  foreign_.emplace(request_.http.path, expected);
  if (begun()) {
    if (stream_) stream_->go_on();
    return;
  }
  if (assignment_.kind == WorkerKind::kRegion) {
    stream_.reset();
    return;
  }
  stream_ = ForeignStream::of(request_.http, assignment_.kind, assignment_.abilities);
}

net::HttpCall Relay::foreign_call_to(const Fleet::Assignment& assignment) const {
  const net::HttpRequest& http = request_.http;
  std::string target;
  for (size_t at = 0; at < http.path.size();) {
    const size_t end = std::min(http.path.find('/', at), http.path.size());
    target += net::percent_encode(http.path.substr(at, end - at));
    if (end < http.path.size()) target += '/';
    at = end + 1;
  }
  if (!http.query.empty()) target += "?" + http.query;
  net::HttpCall call{
      .method = http.method,
      .host = assignment.host,
      .port = assignment.port,
      .tls = assignment.tls,
      .trust = assignment.trust,
      .target = std::move(target),
      .headers = foreign_headers(assignment.kind == WorkerKind::kRegion && request_.deadline_ns
                                     ? without_deadlines(http.headers)
                                     : http.headers,
                                 services_.gateway),
      .body = !pair_fields_.empty() ? pair_fields_
              : stream_             ? stream_->body()
                                    : http.body,
      // As what another worker would be asked anyway if this one were lost.
      .repeatable = true,
      .connect_time_max = kConnectTime,
      .quiet_time_max = kQuietTime};
  if (request_.media) bound_media_call(call);
  call.headers.add("x-request-id", request_.request_id);
  if (assignment.kind == WorkerKind::kRegion) {
    call.headers.add(std::string(kRegionTenantHeader), request_.principal.tenant);
    if (request_.deadline_ns) {
      const int64_t left_ms = (*request_.deadline_ns - services_.clock.now_ns()) / 1'000'000;
      call.headers.add("x-request-timeout-ms", std::to_string(std::max<int64_t>(left_ms, 1)));
    }
    if (request_.resume) {
      call.headers.add(std::string(kResumeHeader), request_.resume->asked);
    }
    if (!request_.region.empty())
      call.headers.add(std::string(kRegionStaysHeader), request_.region);
  }
  if (!assignment.api_key.empty()) {
    call.headers.add("Authorization", "Bearer " + assignment.api_key);
  }
  return call;
}

void Relay::on_foreign_head(int attempt, int status, const net::HttpHeaders& headers) {
  if (over_ || !running_ || attempt != attempt_) return;
  foreign_->begin(status, headers);
  if (assignment_.kind == WorkerKind::kRegion) {
    services_.counters.regions.note(assignment_.region, request_.principal.tenant,
                                    {.requests = 1, .bytes_out = std::ssize(request_.http.body)});
  }
  head_ = foreign_->head();
  if (passes_media(status, headers)) begin_media(headers);
}

void Relay::on_foreign_bytes(const std::string& bytes) {
  if (assignment_.kind == WorkerKind::kRegion) {
    services_.counters.regions.note(assignment_.region, request_.principal.tenant,
                                    {.bytes_in = std::ssize(bytes)});
  }
  if (media_) return on_media_bytes(bytes);
  const Result<std::string> events = foreign_->push(bytes);
  if (!events.ok()) return end_attempt(Failure::kUnreadable, events.error().message);
  if (!events->empty()) {
    note_progress();
    note_harmless();
    if (!std::exchange(streaming_, true)) {
      exchange_->start_stream(head_->status, head_headers());
    }
    early_ = false;
    const std::string passed = stream_ ? stream_->pass(*events) : *events;
    foreign_said_ = stream_ ? stream_->said() : foreign_said_ + event_count(passed);
    exchange_->write(passed);
  }
  if (foreign_->ended()) return finish();
  pause_if_behind();
}

void Relay::on_foreign_end() {
  if (media_) return on_media_end();
  Result<std::string> body = foreign_->finish();
  if (!body.ok()) return end_attempt(Failure::kUnreadable, body.error().message);
  if (foreign_->streamed()) return finish();
  const bool is_counted =
      request_.ticket != nullptr || request_.arm != nullptr || request_.served != nullptr;
  const Result<Json> json = is_counted && head_->status == 200 ? Json::parse(*body) : Json();
  const Json* usage = json.ok() ? json->find("usage") : nullptr;
  if (usage != nullptr && usage->is_object()) {
    const auto count = [&](std::string_view name, std::string_view other) {
      const auto first = usage->integer(name);
      const int64_t claimed = first ? *first : usage->integer(other).value_or(0);
      return std::clamp<int64_t>(claimed, 0, kClaimedTokensMax);
    };
    prompt_tokens_ = count("prompt_tokens", "input_tokens");
    foreign_said_ = count("completion_tokens", "output_tokens");
  }
  send_whole({.status = head_->status, .headers = head_headers(), .body = *std::move(body)});
}

bool Relay::go_on_foreign() {
  if (!stream_) return false;
  if (stream_->is_complete()) {
    exchange_->write(kDone);
    over_ = true;
    settle(Fleet::Outcome::kServed);
    --services_.counters.open;
    ++services_.counters.answered;
    note_over(ArmFigures::Outcome::kOk, 200);
    move_to(PoolGate::Place::kOver);
    exchange_->finish();
    return true;
  }
  return stream_->said() > 0 && stream_->need() != ForeignNeed::kNone;
}

}  // namespace pelton::gateway
