#include "gateway/live_uplink.h"

#include <atomic>
#include <chrono>
#include <utility>

#include "cluster/envelope.h"
#include "cluster/frame.h"

namespace pelton::gateway {
namespace {

constexpr size_t kBatchBytesMax = size_t{1} << 20;  // but for one message
constexpr std::chrono::milliseconds kConnectTime{1'000};
constexpr std::chrono::milliseconds kHeardTime{10'000};
constexpr std::chrono::milliseconds kAgain{200};
constexpr int kFailuresMax = 3;

}  // namespace

bool LiveUplink::say(std::string message) {
  if (over_) return true;  // it ends already
  const bool has_room =
      waiting_.size() < kWaitingMessagesMax && waiting_bytes_ + message.size() <= kWaitingBytesMax;
  if (!has_room) return false;
  waiting_bytes_ += message.size();
  waiting_.push_back(std::move(message));
  send_next();
  return true;
}

void LiveUplink::drain() {
  drains_ = true;
  send_next();
}

void LiveUplink::stop() {
  over_ = true;
  waiting_.clear();
  if (!sent_.empty()) options_.client.cancel(call_);
}

void LiveUplink::send_next() {
  if (over_ || !sent_.empty() || (waiting_.empty() && !drains_)) return;
  std::string bodies;
  const int64_t first = next_;
  while (!waiting_.empty() &&
         (bodies.empty() || bodies.size() + waiting_.front().size() <= kBatchBytesMax)) {
    cluster::append_frame(bodies, {.type = cluster::FrameType::kBody, .payload = waiting_.front()});
    waiting_bytes_ -= waiting_.front().size();
    waiting_.pop_front();
    ++next_;
  }
  const bool drains = drains_ && waiting_.empty();
  if (drains) drains_ = false;
  const std::string said = encode(cluster::SaidEnvelope{.incarnation = place_.incarnation,
                                                        .gateway = options_.gateway,
                                                        .dispatch = place_.dispatch,
                                                        .first = first,
                                                        .drains = drains});
  cluster::append_frame(sent_, {.type = cluster::FrameType::kSaid, .payload = said});
  sent_ += bodies;
  failures_ = 0;
  send();
}

void LiveUplink::send() {
  net::HttpCall call{.method = "POST",
                     .host = place_.host,
                     .port = place_.port,
                     .tls = place_.tls,
                     .trust = place_.trust,
                     .target = "/fleet/v1/say",
                     .headers = {},
                     .body = sent_,
                     .repeatable = true,  // each message has a number, and is heard once
                     .connect_time_max = kConnectTime,
                     .whole_time_max = kHeardTime};
  const auto status = std::make_shared<std::atomic<int>>(0);
  net::HttpCallEvents events;
  events.on_head = [status](int got, const net::HttpHeaders&) { *status = got; };
  events.on_done = [weak = weak_from_this(), connection = options_.connection,
                    status](const Result<void>& result) {
    connection->post([weak, status, is_reached = result.ok()] {
      if (const auto self = weak.lock()) self->on_done(is_reached, *status);
    });
  };
  call_ = options_.client.start(std::move(call), std::move(events));
}

void LiveUplink::on_done(bool is_reached, int status) {
  if (over_) return;
  if (is_reached && status >= 200 && status < 300) {
    sent_.clear();
    return send_next();
  }
  // Its session is over there: what it has said of that is on its way.
  if (is_reached && (status == 404 || status == 410)) return stop();
  if (is_reached || ++failures_ >= kFailuresMax) {
    sent_.clear();
    stop();
    broken_ = true;
    return options_.on_broken();
  }
  options_.connection->post_after(kAgain, [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self != nullptr && !self->over_) self->send();
  });
}

}  // namespace pelton::gateway
