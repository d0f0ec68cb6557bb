#include "chain_http/http_step.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "chain_http/text_stream.h"
#include "cli/toml_tree.h"
#include "net/url.h"

namespace pelton::chain_http {
namespace {

using Fault = chain::CallAnswer::Fault;

Fault fault_of(const Error& error) {
  return error.code == ErrorCode::kDeadline ? Fault::kTimeout : Fault::kUnreachable;
}

// What has come so far; shared by the client's thread, which only posts, and the runs'.
class HttpStep final : public RunningCall, public std::enable_shared_from_this<HttpStep> {
 public:
  HttpStep(net::HttpClient& client, const chain::StepCall& call, StepCallEvents events)
      : client_(client),
        bytes_max_(call.answer_bytes_max),
        streamed_(call.streamed),
        events_(std::move(events)),
        stream_(call.step->endpoint, call.answer_bytes_max) {}

  void start(net::HttpCall call, const std::shared_ptr<net::WorkLoop::Queue>& loop) {
    const std::weak_ptr<HttpStep> weak = weak_from_this();
    const auto post = [loop, weak](std::function<void(HttpStep&)> work) {
      loop->post([weak, work = std::move(work)] {
        if (const auto self = weak.lock()) work(*self);
      });
    };
    net::HttpCallEvents events;
    events.on_head = [post](int status, const net::HttpHeaders& headers) {
      const bool is_stream = headers.get("Content-Type").starts_with("text/event-stream");
      post([status, is_stream](HttpStep& self) {
        self.status_ = status;
        self.is_stream_ = is_stream;
      });
    };
    // Counted here: what is too much is not even posted.
    events.on_body = [post, left = raw_bytes_max()](std::string_view bytes) mutable {
      if (left < 0) return;
      left -= std::ssize(bytes);
      if (left < 0) return post([](HttpStep& self) { self.on_too_large(); });
      post([held = std::string(bytes)](HttpStep& self) { self.on_body(held); });
    };
    events.on_done = [post](Result<void> result) {
      const auto error = std::make_shared<std::optional<Error>>();
      if (!result.ok()) *error = std::move(result).error();
      post([error](HttpStep& self) { self.on_done(*error); });
    };
    id_ = client_.start(std::move(call), std::move(events));
  }

  void end() {
    events_ = {};
    if (!done_) client_.cancel(id_);
  }
  void on_drained() override {
    if (std::exchange(paused_, false)) client_.resume(id_);
  }

 private:
  // A stream says a token in some hundred bytes.
  int64_t raw_bytes_max() const { return streamed_ ? bytes_max_ * 64 : bytes_max_; }

  void on_too_large() { end_too_large(fmt::format("at most {} bytes", bytes_max_)); }
  void end_too_large(std::string detail) {
    if (done_) return;
    client_.cancel(id_);
    report({.fault = Fault::kTooLarge, .status = 0, .body = {}, .detail = std::move(detail)});
  }

  void on_body(const std::string& bytes) {
    if (done_ || !events_.on_answer) return;
    if (!streamed_ || !is_stream_ || status_ / 100 != 2) {
      // Of a stream that is none no more is kept than of any other answer.
      if (std::ssize(body_) + std::ssize(bytes) > bytes_max_) return on_too_large();
      if (!events_.keep_bytes(bytes.size())) return end_too_large(std::string(kTooLargeTogether));
      body_ += bytes;
      return;
    }
    const bool wanted = stream_.feed(bytes, [this](std::string text) {
      if (events_.on_text) events_.on_text(std::move(text));
    });
    if (!wanted) {
      client_.cancel(id_);
      return report(stream_.answer());
    }
    if (!paused_ && events_.backlog_bytes && events_.backlog_bytes() > kBacklogBytesMax) {
      paused_ = true;
      client_.pause(id_);
    }
  }

  void on_done(const std::optional<Error>& error) {
    if (done_) return;
    if (error) {
      const Fault fault = fault_of(*error);
      return report({.fault = fault, .status = 0, .body = {}, .detail = error->message});
    }
    if (streamed_ && is_stream_ && status_ / 100 == 2) return report(stream_.answer());
    report({.fault = Fault::kNone, .status = status_, .body = std::move(body_), .detail = {}});
  }

  void report(chain::CallAnswer answer) {
    done_ = true;
    const auto on_answer = std::exchange(events_.on_answer, nullptr);
    if (on_answer) on_answer(std::move(answer));
  }

  net::HttpClient& client_;
  const int64_t bytes_max_;
  const bool streamed_;
  StepCallEvents events_;
  TextStream stream_;
  net::HttpClient::CallId id_ = 0;
  int status_ = 0;
  bool is_stream_ = false;
  bool paused_ = false;
  bool done_ = false;
  std::string body_;
};

class HttpStepHandle final : public RunningCall {
 public:
  explicit HttpStepHandle(std::shared_ptr<HttpStep> step) : step_(std::move(step)) {}
  ~HttpStepHandle() override { step_->end(); }
  void on_drained() override { step_->on_drained(); }

 private:
  const std::shared_ptr<HttpStep> step_;
};

// "?a=1&b=x%20y" behind a target that may have a query of its own.
std::string with_query(std::string target,
                       const std::vector<std::pair<std::string, std::string>>& query) {
  for (const auto& [name, value] : query) {
    target += target.find('?') == std::string::npos ? '?' : '&';
    target += net::percent_encode(name) + "=" + net::percent_encode(value);
  }
  return target;
}

}  // namespace

std::unique_ptr<RunningCall> start_http_step(const HttpSteps& way, const chain::StepCall& call,
                                             StepCallEvents events) {
  const bool is_model = call.step->kind == chain::Step::Kind::kModel;
  const bool posts = is_model || call.step->posts;
  const std::string url = is_model ? way.models_url + call.path : call.step->target;
  Result<net::HttpCall> made = net::make_http_call(posts ? "POST" : "GET", url);
  if (!made.ok()) {
    way.loop->post([on_answer = events.on_answer, message = made.error().message] {
      on_answer({.fault = Fault::kUnreachable, .status = 0, .body = {}, .detail = message});
    });
    return std::make_unique<RunningCall>();
  }
  net::HttpCall http = *std::move(made);
  http.target = with_query(std::move(http.target), call.query);
  if (is_model) http.headers = way.model_headers;
  if (posts) http.headers.add("Content-Type", "application/json");
  http.headers.add("Accept", call.step->takes_text ? "*/*" : "application/json");
  http.body = call.streamed ? with_stream(call.body) : call.body;
  http.repeatable = is_model;
  // Somewhat later than the run itself gives it up.
  const int64_t left_ms = std::max<int64_t>(0, (call.deadline_ns - way.now_ns()) / 1'000'000);
  http.whole_time_max = std::chrono::milliseconds(left_ms + 1'000);
  const auto step = std::make_shared<HttpStep>(*way.client, call, std::move(events));
  step->start(std::move(http), way.loop);
  return std::make_unique<HttpStepHandle>(step);
}

Result<void> check_http_steps(const chain::Chain& chain, const std::vector<std::string>& hosts) {
  for (const chain::Step& step : chain.steps) {
    if (step.kind != chain::Step::Kind::kHttp) continue;
    const auto bad = [&](std::string_view what) {
      return cli::bad_toml(chain.file, step.line, fmt::format("step '{}': {}", step.name, what));
    };
    const Result<net::HttpUrl> url = net::parse_http_url(step.target);
    if (!url.ok()) return bad(url.error().message);
    const std::string with_port = net::format_host_port(url->host, url->port);
    const bool allowed = std::ranges::any_of(hosts, [&](const std::string& host) {
      return net::equals_without_case(host, url->host) || net::equals_without_case(host, with_port);
    });
    if (allowed) continue;
    return bad(hosts.empty()
                   ? fmt::format("asks {}, and no host is allowed; --chain-hosts names those that "
                                 "http: steps may ask",
                                 with_port)
                   : fmt::format("asks {}, which is not among the allowed hosts: {}", with_port,
                                 fmt::join(hosts, ", ")));
  }
  return {};
}

}  // namespace pelton::chain_http
