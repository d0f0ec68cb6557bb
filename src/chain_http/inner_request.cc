#include "chain_http/inner_request.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "chain_http/text_stream.h"

namespace pelton::chain_http {
namespace {

using Fault = chain::CallAnswer::Fault;

constexpr int64_t kDayMs = 86'400'000;  // no header says more

// Whoever answers holds it; on the runs' thread, but that it may be dropped without an answer
// anywhere.
class InnerExchange final : public net::Exchange,
                            public std::enable_shared_from_this<InnerExchange> {
 public:
  InnerExchange(std::shared_ptr<net::WorkLoop::Queue> loop, const chain::StepCall& call,
                StepCallEvents events)
      : loop_(std::move(loop)),
        bytes_max_(call.answer_bytes_max),
        events_(std::move(events)),
        stream_(call.step->endpoint, call.answer_bytes_max) {}
  ~InnerExchange() override {
    if (!over_) report(dropped());
  }

  void send(net::HttpResponse response) override {
    if (std::exchange(over_, true)) return;
    report(whole(std::move(response)));
    let_go();
  }
  void start_stream(int status, net::HttpHeaders) override { status_ = status; }
  void write(std::string_view bytes) override {
    if (over_ || refused_) return;
    const bool wanted =
        stream_.feed(bytes, [this](std::string text) { events_.on_text(std::move(text)); });
    if (wanted) return;
    // Its answer is known: the rest of it is not computed. Posted, as whoever writes is at work.
    refused_ = true;
    report(stream_.answer());
    loop_->post([weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->leave();
    });
  }
  void finish() override {
    if (std::exchange(over_, true)) return;
    report(stream_.answer());
    let_go();
  }
  size_t queued_bytes() const override { return over_ ? 0 : events_.backlog_bytes(); }
  void on_drained(std::function<void()> drained) override { drained_ = std::move(drained); }
  void on_closed(std::function<void()> closed) override {
    if (over_) return loop_->post(std::move(closed));
    closed_ = std::move(closed);
  }
  bool closed() const override { return over_; }
  void post(std::function<void()> work) override { loop_->post(std::move(work)); }
  void post_after(std::chrono::milliseconds delay, std::function<void()> work) override {
    loop_->post_after(delay, std::move(work));
  }

  // Nobody wants its answer any more.
  void leave() {
    if (std::exchange(over_, true)) return;
    const std::function<void()> closed = std::exchange(closed_, nullptr);
    drained_ = nullptr;
    if (closed) closed();
  }
  void drain() {
    const std::function<void()> drained = drained_;
    if (!over_ && drained) drained();
  }
  void forget() { events_.on_answer = nullptr; }

 private:
  static chain::CallAnswer dropped() {
    return {.fault = Fault::kNone,
            .status = 500,
            .body = R"({"error":{"message":"The request was dropped."}})",
            .detail = {}};
  }
  static chain::CallAnswer too_large(std::string detail) {
    return {.fault = Fault::kTooLarge, .status = 0, .body = {}, .detail = std::move(detail)};
  }
  chain::CallAnswer whole(net::HttpResponse response) const {
    if (std::ssize(response.body) > bytes_max_) {
      return too_large("at most " + std::to_string(bytes_max_) + " bytes");
    }
    if (!events_.keep_bytes(response.body.size())) return too_large(std::string(kTooLargeTogether));
    return {.fault = Fault::kNone,
            .status = response.status,
            .body = std::move(response.body),
            .detail = {}};
  }
  void report(chain::CallAnswer answer) {
    if (!events_.on_answer) return;
    loop_->post([on_answer = std::exchange(events_.on_answer, nullptr),
                 held = std::make_shared<chain::CallAnswer>(std::move(answer))] {
      on_answer(std::move(*held));
    });
  }
  // Posted, as whoever answers is still at work.
  void let_go() {
    drained_ = nullptr;
    loop_->post([closed = std::exchange(closed_, nullptr)] {});
  }

  const std::shared_ptr<net::WorkLoop::Queue> loop_;
  const int64_t bytes_max_;
  StepCallEvents events_;
  TextStream stream_;
  int status_ = 200;
  std::function<void()> drained_;
  std::function<void()> closed_;
  bool refused_ = false;  // nothing that is still written is read
  bool over_ = false;
};

class InnerCall final : public RunningCall {
 public:
  explicit InnerCall(const std::shared_ptr<InnerExchange>& exchange) : exchange_(exchange) {}
  ~InnerCall() override {
    const auto exchange = exchange_.lock();
    if (exchange == nullptr) return;
    exchange->forget();
    exchange->leave();
  }
  void on_drained() override {
    if (const auto exchange = exchange_.lock()) exchange->drain();
  }

 private:
  const std::weak_ptr<InnerExchange> exchange_;
};

}  // namespace

std::unique_ptr<RunningCall> start_inner_request(const InnerRequests& way,
                                                 const chain::StepCall& call,
                                                 StepCallEvents events) {
  net::HttpRequest request{.method = "POST",
                           .path = call.path,
                           .query = {},
                           .headers = way.headers,
                           .body = call.streamed ? with_stream(call.body) : call.body,
                           .remote = "chain"};
  request.headers.add("Content-Type", "application/json");
  // Somewhat later than the run itself gives it up, and says so.
  const int64_t left_ms = std::max<int64_t>(0, (call.deadline_ns - way.now_ns()) / 1'000'000);
  request.headers.add("x-request-timeout-ms", std::to_string(std::min(left_ms + 1'000, kDayMs)));
  const auto exchange = std::make_shared<InnerExchange>(way.loop, call, std::move(events));
  auto running = std::make_unique<InnerCall>(exchange);
  way.send(std::move(request), exchange);
  return running;
}

}  // namespace pelton::chain_http
