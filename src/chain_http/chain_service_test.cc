// Runs over HTTP: whole and as events, clients that leave or read slowly, hosts that misbehave.
#include "chain_http/chain_service.h"

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/clock.h"
#include "base/log.h"
#include "chain_http/http_step.h"
#include "net/sse.h"

namespace pelton::chain_http {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

const std::string kChat = R"(name = "chat"
input = {q = "string"}
output = {text = "${second.text}", stream_from = "second"}
[[step]]
name = "first"
use = "model:m"
with = {prompt = "${input.q}"}
[[step]]
name = "second"
use = "model:m"
with = {prompt = "${first.text}"}
)";

std::string http_chain(int port, std::string_view more) {
  return fmt::format(R"(name = "ask"
input = {{q = "string?"}}
output = {{body = "${{ask.body}}"}}
[[step]]
name = "ask"
use = "http:http://127.0.0.1:{}/path"
with = {{q = "${{input.q}}"}}
{}
)",
                     port, more);
}

net::HttpResponse chat_answer(std::string_view text) {
  return {.status = 200,
          .headers = {},
          .body = chain::streamed_body(chain::Endpoint::kChat, text, "stop", Json())};
}

std::string chunk(std::string_view text) {
  std::string out;
  net::append_sse_data(out,
                       R"({"choices":[{"delta":{"content":")" + std::string(text) + R"("}}]})");
  return out;
}

// A service behind a listener, and a model that is a function.
class ChainServiceTest : public testing::Test {
 protected:
  void open(const std::string& text, ChainService::Options options = {}) {
    std::vector<chain::Chain> chains;
    chains.push_back(*chain::parse_chain(text, "c.toml"));
    Result<std::unique_ptr<ChainService>> service = ChainService::open(
        std::move(chains), options,
        [this](net::HttpRequest request, std::shared_ptr<net::Exchange> exchange,
               const ChainService::Caller& caller) {
          EXPECT_EQ(caller.principal.tenant, "t");
          EXPECT_EQ(request.headers.get("x-key"), "k");
          EXPECT_TRUE(request.headers.has("x-request-timeout-ms"));
          ++requests_;
          model_(std::move(request), std::move(exchange));
        },
        clock_);
    ASSERT_TRUE(service.ok()) << service.error().message;
    service_ = *std::move(service);
    listener_ = std::make_unique<net::HttpServer>(
        net::HttpServer::Options{.port = 0},
        [this](net::HttpRequest request, std::shared_ptr<net::Exchange> exchange) {
          ChainService::Caller caller;
          caller.principal.tenant = "t";
          caller.headers.add("x-key", "k");
          service_->run({.chain = service_->find(request.path.substr(1)),
                         .id = "chain_1",
                         .body = std::move(request.body),
                         .caller = std::move(caller),
                         .deadline_ns = {}},
                        std::move(exchange));
        },
        log_);
    ASSERT_TRUE(listener_->start().ok());
  }
  void TearDown() override {
    if (listener_ != nullptr) listener_->stop(std::chrono::milliseconds(0));
    service_.reset();
  }

  net::HttpCall call(std::string_view name, std::string body) const {
    net::HttpCall call;
    call.method = "POST";
    call.port = listener_->port();
    call.target = "/" + std::string(name);
    call.body = std::move(body);
    return call;
  }
  net::HttpResponse ask(std::string_view name, std::string body) {
    Result<net::HttpResponse> response = net::http_fetch(call(name, std::move(body)));
    EXPECT_TRUE(response.ok()) << response.error().message;
    return response.ok() ? *std::move(response) : net::HttpResponse();
  }

  const base::SystemClock clock_{};
  base::Log log_{clock_, {.level = base::LogLevel::kError}};
  std::function<void(net::HttpRequest, std::shared_ptr<net::Exchange>)> model_ =
      [](const net::HttpRequest& request, const std::shared_ptr<net::Exchange>& exchange) {
        const bool streamed = request.body.find("\"stream\":true") != std::string::npos;
        if (!streamed) return exchange->send(chat_answer("one"));
        exchange->start_stream(200, {});
        exchange->write(chunk("t"));
        exchange->write(chunk("wo"));
        exchange->write("data: [DONE]\n\n");
        exchange->finish();
      };
  std::atomic<int> requests_ = 0;
  std::unique_ptr<ChainService> service_;
  std::unique_ptr<net::HttpServer> listener_;
};

TEST_F(ChainServiceTest, AnswersWholeAndAsEvents) {
  open(kChat);
  const net::HttpResponse whole = ask("chat", R"({"input":{"q":"x"}})");
  EXPECT_EQ(whole.status, 200);
  EXPECT_THAT(whole.body, HasSubstr(R"("chain":"chat","output":{"text":"one"})"));
  const net::HttpResponse streamed = ask("chat", R"({"input":{"q":"x"},"stream":true})");
  std::vector<std::string> events;
  net::SseParser parser({});
  ASSERT_TRUE(parser
                  .feed(streamed.body,
                        [&](const net::SseEvent& event) {
                          events.push_back(event.event.empty() ? event.data : event.event);
                        })
                  .ok());
  EXPECT_THAT(events, ElementsAre("step.started", "step.done", "step.started", "output.delta",
                                  "output.delta", "step.done", "run.done", "[DONE]"));
  EXPECT_THAT(streamed.body, HasSubstr(R"("output":{"text":"two"})"));
}

TEST_F(ChainServiceTest, SumsSayWhatBecameOfRunsAndSteps) {
  open(kChat);
  ask("chat", R"({"input":{"q":"x"}})");
  ask("chat", R"({"input":{"q":"x"},"stream":true})");
  ask("chat", R"({"input":{"q":1}})");  // no run
  model_ = [](const net::HttpRequest&, const std::shared_ptr<net::Exchange>&) {};
  ask("chat", R"({"input":{"q":"x"}})");
  telemetry::PrometheusText text;
  service_->figures().add_metrics(text);
  const std::string page = text.text();
  for (const std::string line :
       {"pelton_chain_runs_total{chain=\"chat\",outcome=\"ok\"} 2",
        "pelton_chain_runs_total{chain=\"chat\",outcome=\"step_failed\"} 1",
        "pelton_chain_runs_total{chain=\"chat\",outcome=\"refused\"} 0",
        "pelton_chain_runs_open{chain=\"chat\"} 0",
        "pelton_chain_run_seconds_count{chain=\"chat\"} 2",
        "pelton_chain_step_seconds_count{chain=\"chat\",step=\"first\"} 2",
        "pelton_chain_step_seconds_count{chain=\"chat\",step=\"second\"} 2"}) {
    EXPECT_THAT(page, HasSubstr(line + "\n"));
  }
  EXPECT_THAT(page, Not(HasSubstr("\"x\""))) << "nothing of what was asked";
}

TEST_F(ChainServiceTest, RefusesWhatDoesNotFit) {
  open(kChat);
  EXPECT_THAT(ask("chat", R"({"input":{}})").body, HasSubstr("'input.q' is missing"));
  EXPECT_EQ(ask("chat", R"({"input":{"q":1}})").status, 400);
  EXPECT_THAT(ask("chat", R"({"inptu":{}})").body, HasSubstr("'inptu' is no field"));
  EXPECT_EQ(ask("chat", "<html>").status, 400);
  EXPECT_EQ(requests_, 0);
  model_ = [](const net::HttpRequest&, const std::shared_ptr<net::Exchange>& exchange) {
    exchange->send({.status = 429, .headers = {}, .body = R"({"error":{"message":"too many"}})"});
  };
  const net::HttpResponse refused = ask("chat", R"({"input":{"q":"x"}})");
  EXPECT_EQ(refused.status, 429);
  EXPECT_THAT(refused.body, HasSubstr("step 'first': answered 429: too many"));
  // One that is dropped without an answer is an answer too.
  model_ = [](const net::HttpRequest&, const std::shared_ptr<net::Exchange>&) {};
  EXPECT_THAT(ask("chat", R"({"input":{"q":"x"}})").body, HasSubstr("was dropped"));
}

TEST_F(ChainServiceTest, EndsItsRequestsWhenTheClientLeaves) {
  std::promise<void> begun;
  std::promise<void> left;
  std::shared_ptr<net::Exchange> kept;
  model_ = [&](const net::HttpRequest&, const std::shared_ptr<net::Exchange>& exchange) {
    kept = exchange;
    exchange->on_closed([&left] { left.set_value(); });
    begun.set_value();
  };
  open(kChat, {.runs_max = 2});
  {
    net::HttpClient client({});
    const net::HttpClient::CallId id = client.start(call("chat", R"({"input":{"q":"x"}})"), {});
    begun.get_future().wait();
    // There is room for one of a tenant's.
    const net::HttpResponse refused = ask("chat", R"({"input":{"q":"x"}})");
    EXPECT_EQ(refused.status, 429);
    EXPECT_THAT(refused.body, HasSubstr("1 of the tenant's chains run already"));
    client.cancel(id);
  }
  left.get_future().wait();
  kept.reset();
}

// Writes as long as its reader takes it, as a model's answer does.
class Flood : public std::enable_shared_from_this<Flood> {
 public:
  static constexpr size_t kChunks = 4000;
  static constexpr size_t kChunkBytes = 2000;

  Flood(std::shared_ptr<net::Exchange> exchange, std::atomic<size_t>& written)
      : exchange_(std::move(exchange)), written_(written) {}
  void start() {
    exchange_->start_stream(200, {});
    exchange_->on_drained([self = shared_from_this()] { self->pump(); });
    pump();
  }

 private:
  void pump() {
    while (left_ > 0) {
      if (exchange_->queued_bytes() > kBacklogBytesMax) return;
      --left_;
      written_ += kChunkBytes;
      exchange_->write(chunk(std::string(kChunkBytes, 'x')));
      // As tokens come: others have their turn.
      if (left_ % 16 == 0) {
        return exchange_->post([self = shared_from_this()] { self->pump(); });
      }
    }
    if (std::exchange(done_, true)) return;
    exchange_->write("data: [DONE]\n\n");
    exchange_->finish();
  }

  const std::shared_ptr<net::Exchange> exchange_;
  std::atomic<size_t>& written_;
  size_t left_ = kChunks;
  bool done_ = false;
};

TEST_F(ChainServiceTest, ASlowReaderHoldsTheModelBack) {
  std::atomic<size_t> written = 0;
  model_ = [&](const net::HttpRequest& request, const std::shared_ptr<net::Exchange>& exchange) {
    if (request.body.find("\"stream\":true") == std::string::npos) {
      return exchange->send(chat_answer("one"));
    }
    std::make_shared<Flood>(exchange, written)->start();
  };
  open(kChat);
  net::HttpClient client({});
  std::promise<void> head;
  std::promise<bool> done;
  std::atomic<size_t> read = 0;
  net::HttpCallEvents events;
  events.on_head = [&](int, const net::HttpHeaders&) { head.set_value(); };
  events.on_body = [&](std::string_view bytes) { read += bytes.size(); };
  events.on_done = [&](const Result<void>& result) { done.set_value(result.ok()); };
  const auto id =
      client.start(call("chat", R"({"input":{"q":"x"},"stream":true})"), std::move(events));
  head.get_future().wait();
  client.pause(id);
  // Until nothing more is written: what the kernel and the backlog hold, and no more.
  size_t before = 0;
  for (int same = 0; same < 10;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    same = written == before && before > 0 ? same + 1 : 0;
    before = written;
  }
  EXPECT_LT(written, Flood::kChunks * Flood::kChunkBytes);
  client.resume(id);
  EXPECT_TRUE(done.get_future().get());
  EXPECT_EQ(written, Flood::kChunks * Flood::kChunkBytes);
  EXPECT_GT(read, Flood::kChunks * Flood::kChunkBytes);
}

class HttpStepTest : public ChainServiceTest {
 protected:
  void SetUp() override {
    host_ = std::make_unique<net::HttpServer>(
        net::HttpServer::Options{.port = 0},
        [this](net::HttpRequest request, std::shared_ptr<net::Exchange> exchange) {
          answer_(std::move(request), std::move(exchange));
        },
        log_);
    ASSERT_TRUE(host_->start().ok());
  }
  void TearDown() override {
    ChainServiceTest::TearDown();
    host_->stop(std::chrono::milliseconds(0));
  }
  void open_chain(std::string_view more = "") {
    open(http_chain(host_->port(), more), {.http_hosts = {"127.0.0.1"}});
  }

  std::function<void(net::HttpRequest, std::shared_ptr<net::Exchange>)> answer_;
  std::unique_ptr<net::HttpServer> host_;
};

TEST_F(HttpStepTest, AsksAllowedHostsOnly) {
  answer_ = [](const net::HttpRequest& request, const std::shared_ptr<net::Exchange>& exchange) {
    exchange->send({.status = 200,
                    .headers = {},
                    .body = R"({"got":")" + request.method + request.path + request.query + "\"}"});
  };
  open_chain("method = \"GET\"");
  EXPECT_THAT(ask("ask", R"({"input":{"q":"a b"}})").body,
              HasSubstr(R"("output":{"body":{"got":"GET/pathq=a%20b"}})"));
  const chain::Chain chain = *chain::parse_chain(http_chain(9, ""), "c.toml");
  EXPECT_TRUE(check_http_steps(chain, {"127.0.0.1:9"}).ok());
  EXPECT_THAT(check_http_steps(chain, {}).error().message,
              HasSubstr("c.toml:4: step 'ask': asks 127.0.0.1:9, and no host is allowed"));
  EXPECT_THAT(check_http_steps(chain, {"127.0.0.1:8", "h"}).error().message,
              HasSubstr("not among the allowed hosts: 127.0.0.1:8, h"));
}

TEST_F(HttpStepTest, NamesTheStepThatGotHtmlOrAnError) {
  answer_ = [](const net::HttpRequest&, const std::shared_ptr<net::Exchange>& exchange) {
    exchange->send({.status = 200, .headers = {}, .body = "<html>hello</html>"});
  };
  open_chain();
  const net::HttpResponse html = ask("ask", "{}");
  EXPECT_EQ(html.status, 424);
  EXPECT_THAT(html.body, HasSubstr("step 'ask': the answer is no JSON but HTML"));
  answer_ = [](const net::HttpRequest&, const std::shared_ptr<net::Exchange>& exchange) {
    exchange->send({.status = 500, .headers = {}, .body = "oh"});
  };
  const net::HttpResponse error = ask("ask", "{}");
  EXPECT_EQ(error.status, 424);
  EXPECT_THAT(error.body, HasSubstr("step 'ask': answered 500: oh"));
}

// None is too large alone, and none ends.
TEST_F(HttpStepTest, AnswersUnderWayAreBoundedTogether) {
  std::mutex mutex;
  std::vector<std::shared_ptr<net::Exchange>> kept;
  answer_ = [&](const net::HttpRequest&, const std::shared_ptr<net::Exchange>& exchange) {
    {
      const std::lock_guard lock(mutex);
      kept.push_back(exchange);
    }
    exchange->start_stream(200, {});
    for (int i = 0; i < 7; ++i) exchange->write(std::string(size_t{1} << 20, ' '));
  };
  open(fmt::format(R"(name = "ask"
input = {{q = "[integer]"}}
output = {{n = "${{length(ask)}}"}}
[[step]]
name = "ask"
use = "http:http://127.0.0.1:{}/path"
for_each = "${{input.q}}"
parallel = 10
with = {{q = "${{item}}"}}
)",
                   host_->port()),
       {.http_hosts = {"127.0.0.1"}});
  EXPECT_THAT(ask("ask", R"({"input":{"q":[1,2,3,4,5,6,7,8,9,10]}})").body,
              HasSubstr("the answers that the run waits for are too large together"));
  kept.clear();
}

TEST_F(HttpStepTest, FollowsNoRedirect) {
  std::atomic<int> asked = 0;
  answer_ = [&](const net::HttpRequest&, const std::shared_ptr<net::Exchange>& exchange) {
    net::HttpResponse response{.status = 302, .headers = {}, .body = "{}"};
    if (++asked > 1) response.status = 200;
    response.headers.add("Location", fmt::format("http://127.0.0.1:{}/path", host_->port()));
    exchange->send(std::move(response));
  };
  open_chain();
  EXPECT_THAT(ask("ask", "{}").body, HasSubstr("step 'ask': answered 302"));
  EXPECT_EQ(asked, 1);
}

TEST_F(HttpStepTest, TakesNoEndlessAnswer) {
  answer_ = [](const net::HttpRequest&, const std::shared_ptr<net::Exchange>& exchange) {
    exchange->start_stream(200, {});
    const auto pump = std::make_shared<std::function<void()>>();
    *pump = [weak = std::weak_ptr<net::Exchange>(exchange)] {
      const auto alive = weak.lock();
      if (alive != nullptr && !alive->closed()) alive->write(std::string(1 << 20, 'x'));
    };
    exchange->on_drained([pump, exchange] { (*pump)(); });
    (*pump)();
  };
  open_chain();
  EXPECT_THAT(ask("ask", "{}").body, HasSubstr("the answer is too large: at most 8388608 bytes"));
}

TEST_F(HttpStepTest, WaitsForNoAnswerForEver) {
  std::shared_ptr<net::Exchange> kept;
  answer_ = [&](const net::HttpRequest&, std::shared_ptr<net::Exchange> exchange) {
    kept = std::move(exchange);
  };
  open_chain("timeout_s = 0.05");
  const net::HttpResponse late = ask("ask", "{}");
  EXPECT_EQ(late.status, 424);
  EXPECT_THAT(late.body, HasSubstr("no answer within 0.05 s"));
  kept.reset();
  host_->stop(std::chrono::milliseconds(0));
  EXPECT_THAT(ask("ask", "{}").body, HasSubstr("step 'ask': is not reached"));
}

}  // namespace
}  // namespace pelton::chain_http
