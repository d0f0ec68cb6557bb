#include "console/event_streams.h"

#include <charconv>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "console/pages.h"

namespace pelton::console {
namespace {

constexpr std::chrono::milliseconds kTick{250};
constexpr int kNewsAtOnce = 64;
constexpr int kQuietTicks = 20;  // then a comment, so that a client which has gone is noticed

int64_t number_of(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? number : 0;
}

net::HttpResponse refusal(int status, std::string code, std::string message) {
  return net::error_response(
      {.status = status, .code = std::move(code), .message = std::move(message)});
}

}  // namespace

// One browser's. The exchange is kept by what waits for its next turn, and by nothing else.
class EventStreams::Stream : public std::enable_shared_from_this<Stream> {
 public:
  Stream(EventStreams& all, std::shared_ptr<net::Exchange> exchange, MayGoOn may_go_on,
         int64_t sent)
      : all_(all), exchange_(std::move(exchange)), may_go_on_(std::move(may_go_on)), sent_(sent) {}
  ~Stream() { --all_.streams_; }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  void start() {
    exchange_->on_closed([weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->over_ = true;
    });
    net::HttpHeaders headers;
    headers.add("Content-Type", "text/event-stream; charset=utf-8");
    headers.add("Cache-Control", "no-store");
    headers.add("X-Accel-Buffering", "no");  // nginx would hold events back
    exchange_->start_stream(200, std::move(headers));
    tick();
  }

 private:
  void tick() {
    if (over_) return;
    const bool ends = (all_.parts_.ends && all_.parts_.ends()) || (may_go_on_ && !may_go_on_());
    if (ends) return exchange_->finish();
    if (exchange_->queued_bytes() == 0) write_news();
    exchange_->post_after(kTick, [self = shared_from_this()] { self->tick(); });
  }

  void write_news() {
    for (int i = 0; i < kNewsAtOnce; ++i) {
      const News news = all_.parts_.news(sent_);
      if (news.data.empty()) break;
      quiet_ = -1;
      sent_ = news.newest;
      exchange_->write(fmt::format("id: {}\ndata: {}\n\n", news.newest, news.data));
    }
    if (++quiet_ >= kQuietTicks) {
      quiet_ = 0;
      exchange_->write(": \n\n");
    }
  }

  EventStreams& all_;
  const std::shared_ptr<net::Exchange> exchange_;
  const MayGoOn may_go_on_;
  int64_t sent_;
  int quiet_ = 0;
  bool over_ = false;
};

void EventStreams::follow(const net::HttpRequest& request,
                          const std::shared_ptr<net::Exchange>& exchange, MayGoOn may_go_on) {
  // Pages of other sites could take all streams that there are.
  if (!is_own_page(request)) {
    return exchange->send(refusal(403, "forbidden_origin", "this is for the console's own page"));
  }
  if (request.method == "HEAD") return exchange->send({.status = 200, .headers = {}, .body = {}});
  if (++streams_ > kStreamsMax) {
    --streams_;
    return exchange->send(
        refusal(503, "too_many_consoles", fmt::format("{} streams are open already", kStreamsMax)));
  }
  const int64_t sent = number_of(request.headers.get("Last-Event-ID"));
  std::make_shared<Stream>(*this, exchange, std::move(may_go_on), sent)->start();
}

}  // namespace pelton::console
