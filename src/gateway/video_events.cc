#include "gateway/video_events.h"

#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "gateway/media_request.h"
#include "net/socket_turn.h"
#include "net/sse.h"

namespace pelton::gateway {
namespace {

constexpr std::string_view kEvents = "/events";
constexpr std::chrono::milliseconds kAskAgain{500};
constexpr int kQuietAnswers = 20;   // then a comment says that somebody is there
constexpr int kUnansweredMax = 60;  // in a row: half a minute
constexpr size_t kBodyBytesMax = size_t{1} << 20;
constexpr size_t kQueuedBytesMax = size_t{1} << 20;  // of a client that does not read

}  // namespace

// One question's way back: an answer as it is, whether it is sent whole or in pieces.
class VideoEvents::Question final : public net::SocketTurn {
 public:
  explicit Question(const std::shared_ptr<VideoEvents>& asker)
      : SocketTurn(asker->exchange_,
                   [weak = std::weak_ptr(asker)] {
                     if (const auto alive = weak.lock()) alive->on_answer();
                   }),
        asker_(asker) {}

  void send(net::HttpResponse response) override {
    if (over()) return;
    if (const auto asker = asker_.lock()) asker->answer_ = std::move(response);
    end();
  }
  void start_stream(int status, net::HttpHeaders) override { pieces_.status = status; }
  void write(std::string_view bytes) override {
    if (pieces_.body.size() + bytes.size() <= kBodyBytesMax) pieces_.body += bytes;
  }
  void finish() override { send(std::move(pieces_)); }

 private:
  const std::weak_ptr<VideoEvents> asker_;
  net::HttpResponse pieces_;
};

bool VideoEvents::asked(const net::HttpRequest& request) {
  const std::string_view id = video_of_path(request.path);
  return request.method == "GET" && !id.empty() &&
         request.path == fmt::format("/v1/videos/{}{}", id, kEvents);
}

void VideoEvents::open(net::HttpRequest request, std::shared_ptr<net::Exchange> exchange,
                       Forward forward) {
  std::make_shared<VideoEvents>(Key(), std::move(request), std::move(exchange), std::move(forward))
      ->start();
}

VideoEvents::VideoEvents(Key, net::HttpRequest request, std::shared_ptr<net::Exchange> exchange,
                         Forward forward)
    : request_(std::move(request)), exchange_(std::move(exchange)), forward_(std::move(forward)) {}

void VideoEvents::start() {
  // This one reference keeps us alive; the exchange lets it go when it ends.
  exchange_->on_closed([self = shared_from_this()] {
    if (const auto question = self->question_.lock()) question->leave();
  });
  ask();
}

void VideoEvents::ask() {
  answer_.reset();
  const auto question = std::make_shared<Question>(shared_from_this());
  question_ = question;
  net::HttpRequest http{.method = "GET",
                        .path = request_.path.substr(0, request_.path.size() - kEvents.size()),
                        .query = request_.query,
                        .headers = {},
                        .body = {},
                        .remote = request_.remote};
  for (const auto& [name, value] : request_.headers.fields()) {
    if (!net::equals_without_case(name, "x-request-id")) http.headers.add(name, value);
  }
  forward_(std::move(http), question);
}

void VideoEvents::on_answer() {
  if (exchange_->closed()) return;
  const net::HttpResponse answer =
      std::exchange(answer_, std::nullopt)
          .value_or(net::HttpResponse{.status = 502,
                                      .headers = {},
                                      .body = R"({"error":{"message":"the question was lost"}})"});
  if (answer.status == 200 && video_state(answer.body)) return on_state(answer);
  on_failure(answer);
}

void VideoEvents::on_state(const net::HttpResponse& answer) {
  if (!std::exchange(has_begun_, true)) {
    net::HttpHeaders headers;
    headers.add("Content-Type", "text/event-stream");
    headers.add("Cache-Control", "no-cache");
    exchange_->start_stream(200, std::move(headers));
  }
  unanswered_ = 0;
  using Phase = VideoState::Phase;
  const Phase phase = video_state(answer.body)->phase;
  const bool is_over = phase != Phase::kUnderWay;
  const bool can_hear = exchange_->queued_bytes() <= kQueuedBytesMax;
  if (is_over || (answer.body != last_ && can_hear)) {
    last_ = answer.body;
    unchanged_ = 0;
    say(phase == Phase::kUnderWay ? "video.progress"
        : phase == Phase::kDone   ? "video.completed"
                                  : "video.failed",
        "video", last_);
  } else if (++unchanged_ % kQuietAnswers == 0 && can_hear) {
    std::string comment;
    net::append_sse_comment(comment, "the video is under way");
    exchange_->write(comment);
  }
  if (is_over) return exchange_->finish();
  ask_later();
}

// A worker that is away may come back; what is no video here any more is the end.
void VideoEvents::on_failure(const net::HttpResponse& answer) {
  if (!has_begun_) return exchange_->send(answer);
  if (answer.status >= 500 && ++unanswered_ < kUnansweredMax) return ask_later();
  const bool is_object = answer.body.starts_with('{');
  say("error", "answer", is_object ? std::string_view(answer.body) : "null");
  exchange_->finish();
}

void VideoEvents::ask_later() {
  exchange_->post_after(kAskAgain, [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self != nullptr && !self->exchange_->closed()) self->ask();
  });
}

void VideoEvents::say(std::string_view type, std::string_view field, std::string_view body) {
  std::string out;
  net::append_sse_event(out, type, fmt::format(R"({{"type":"{}","{}":{}}})", type, field, body));
  exchange_->write(out);
}

}  // namespace pelton::gateway
