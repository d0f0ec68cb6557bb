#include "net/http_client.h"

#include <array>
#include <atomic>
#include <future>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "net/http_server.h"
#include "net/sent_again.h"
#include "net/sse.h"

namespace pelton::net {
namespace {

using std::chrono::milliseconds;

// A socket that a test answers itself.
int listening(uint16_t& port) {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{.sin_family = AF_INET, .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
  socklen_t size = sizeof address;
  EXPECT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size), 0);
  EXPECT_EQ(::listen(listener, 4), 0);
  port = ntohs(address.sin_port);
  return listener;
}

class HttpClientTest : public testing::Test {
 protected:
  void SetUp() override {
    options_.port = 0;
    restart();
  }
  void restart() {
    server_.emplace(
        options_,
        [this](HttpRequest request, std::shared_ptr<Exchange> exchange) {
          serve(request, exchange);
        },
        log_);
    const Result<void> started = server_->start();
    ASSERT_TRUE(started.ok()) << started.error().message;
    options_.port = server_->port();  // again, after a restart
  }

  void serve(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
    if (request.path == "/echo") {
      HttpResponse response;
      response.headers.add("X-Remote", request.remote);
      response.headers.add("X-Seen", std::string(request.headers.get("X-Sent")));
      response.body = request.method + " " + request.query + " " + request.body;
      return exchange->send(std::move(response));
    }
    if (request.path == "/sse") {
      exchange->start_stream(200, {});
      for (int i = 0; i < 100; ++i) {
        std::string event;
        append_sse_data(event, std::to_string(i));
        exchange->write(event);
      }
      return exchange->finish();
    }
    if (request.path == "/big") {
      // Writes the next block when the one before has left.
      exchange->start_stream(200, {});
      const auto left = std::make_shared<int>(512);
      const std::weak_ptr<Exchange> weak = exchange;
      {
        std::lock_guard lock(mutex_);
        kept_.push_back(exchange);
      }
      exchange->on_drained([this, weak, left] {
        const std::shared_ptr<Exchange> one = weak.lock();
        if (one == nullptr) return;
        blocks_sent_.fetch_add(1);
        if (--*left == 0) return one->finish();
        one->write(std::string(64 * 1024, 'b'));
      });
      return;
    }
    if (request.path == "/hold") {
      exchange->on_closed([this] { closed_.fetch_add(1); });
      if (request.query == "stream") exchange->start_stream(200, {});
      std::lock_guard lock(mutex_);
      kept_.push_back(exchange);
      return;
    }
    exchange->send({.status = 404, .body = "no"});
  }

  HttpCall call(std::string method, std::string target) {
    HttpCall made;
    made.method = std::move(method);
    made.port = server_->port();
    made.target = std::move(target);
    return made;
  }
  void TearDown() override {
    server_.reset();
    kept_.clear();
  }

  static bool soon(const std::function<bool()>& condition) {
    for (int i = 0; i < 5000 && !condition(); ++i) std::this_thread::sleep_for(milliseconds(1));
    return condition();
  }

  base::SystemClock clock_;
  base::Log log_{clock_, {.level = base::LogLevel::kNone}};
  HttpServer::Options options_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<Exchange>> kept_;
  std::atomic<int> closed_{0};
  std::atomic<int> blocks_sent_{0};
  std::optional<HttpServer> server_;
};

TEST_F(HttpClientTest, FetchesAndKeepsConnections) {
  HttpClient client({});
  std::string remote;
  for (int i = 0; i < 5; ++i) {
    HttpCall post = call("POST", "/echo?q=1");
    post.body = "body" + std::to_string(i);
    post.headers.add("X-Sent", "yes");
    const Result<HttpResponse> response = http_fetch(client, std::move(post));
    ASSERT_TRUE(response.ok()) << response.error().message;
    EXPECT_EQ(response->status, 200);
    EXPECT_EQ(response->headers.get("x-seen"), "yes");
    EXPECT_EQ(response->body, "POST q=1 body" + std::to_string(i));
    if (i > 0) {
      EXPECT_EQ(response->headers.get("X-Remote"), remote);
    }
    remote = response->headers.get("X-Remote");
  }
  EXPECT_EQ(server_->connection_count(), 1);
  EXPECT_EQ(http_fetch(client, call("GET", "/none"))->status, 404);
  EXPECT_EQ(http_fetch(client, call("HEAD", "/echo"))->body, "");
}

TEST_F(HttpClientTest, LargeBodiesBothWays) {
  HttpCall post = call("POST", "/echo");
  post.body.assign(20'000'000, 'p');
  const Result<HttpResponse> response = http_fetch(std::move(post));
  ASSERT_TRUE(response.ok()) << response.error().message;
  EXPECT_EQ(response->body.size(), 20'000'000u + 6);
}

TEST_F(HttpClientTest, RefusalOfALargeBodyIsHeard) {
  options_.port = 0;
  options_.body_bytes_max = 1000;
  restart();
  HttpCall post = call("POST", "/echo");
  post.body.assign(5'000'000, 'p');
  const Result<HttpResponse> response = http_fetch(std::move(post));
  ASSERT_TRUE(response.ok()) << response.error().message;
  EXPECT_EQ(response->status, 413);
}

TEST_F(HttpClientTest, StreamsEvents) {
  HttpClient client({});
  SseParser parser({});
  std::vector<std::string> events;
  std::promise<Result<void>> done;
  HttpCallEvents told;
  told.on_body = [&](std::string_view bytes) {
    const Result<void> fed =
        parser.feed(bytes, [&](const SseEvent& event) { events.push_back(event.data); });
    EXPECT_TRUE(fed.ok());
  };
  told.on_done = [&](Result<void> result) { done.set_value(std::move(result)); };
  std::future<Result<void>> future = done.get_future();
  client.start(call("GET", "/sse"), std::move(told));
  ASSERT_TRUE(future.get().ok());
  ASSERT_EQ(events.size(), 100u);
  EXPECT_EQ(events.back(), "99");
}

TEST_F(HttpClientTest, AKeptConnectionThatDiedIsReplaced) {
  HttpClient client({});
  ASSERT_TRUE(http_fetch(client, call("GET", "/echo")).ok());
  server_->stop(milliseconds(0));
  restart();
  const Result<HttpResponse> again = http_fetch(client, call("GET", "/echo"));
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(again->status, 200);
}

// A server that goes with a request in a kept connection may have seen it, and gone because of it:
// that is not "no connection".
TEST_F(HttpClientTest, AServerThatGoesWithAKeptConnectionMayHaveSeenIt) {
  uint16_t port = 0;
  const int listener = listening(port);
  std::thread server([listener] {
    const int link = ::accept(listener, nullptr, nullptr);
    std::array<char, 4096> request{};
    constexpr std::string_view kAnswer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    EXPECT_GT(::recv(link, request.data(), request.size(), 0), 0);
    EXPECT_GT(::send(link, kAnswer.data(), kAnswer.size(), 0), 0);
    EXPECT_GT(::recv(link, request.data(), request.size(), 0), 0);
    ::close(listener);
    ::close(link);
  });
  HttpClient client({});
  const HttpCall asked{.port = port};
  EXPECT_TRUE(http_fetch(client, asked).ok());
  const Result<HttpResponse> lost = http_fetch(client, asked);
  server.join();
  ASSERT_FALSE(lost.ok());
  EXPECT_EQ(lost.error().code, ErrorCode::kIo) << lost.error().message;
  const Result<HttpResponse> refused = http_fetch(client, asked);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable) << refused.error().message;
}

// Who answers then may be another start of it: the caller learns of it.
TEST_F(HttpClientTest, WhatIsSentAgainSaysSo) {
  uint16_t port = 0;
  const int listener = listening(port);
  std::thread server([listener] {
    std::array<char, 4096> request{};
    constexpr std::string_view kAnswer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    for (int i = 0; i < 2; ++i) {
      const int link = ::accept(listener, nullptr, nullptr);
      EXPECT_GT(::recv(link, request.data(), request.size(), 0), 0);
      EXPECT_GT(::send(link, kAnswer.data(), kAnswer.size(), 0), 0);
      if (i == 0) {
        EXPECT_GT(::recv(link, request.data(), request.size(), 0), 0);
      }
      ::close(link);
    }
    ::close(listener);
  });
  HttpClient client({});
  const HttpCall asked{.port = port};
  const Result<HttpResponse> first = http_fetch(client, asked);
  ASSERT_TRUE(first.ok());
  EXPECT_FALSE(first->headers.has(kSentAgainHeader));
  const Result<HttpResponse> again = http_fetch(client, asked);
  server.join();
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_TRUE(again->headers.has(kSentAgainHeader));
}

// What a server may have begun is not asked of it twice, unless the caller says that this does no
// harm: a POST whose kept connection breaks without a byte of an answer.
TEST_F(HttpClientTest, APostIsNotSentAgainUnlessItIsRepeatable) {
  for (const bool repeatable : {false, true}) {
    uint16_t port = 0;
    const int listener = listening(port);
    std::atomic<int> seen{0};
    std::thread server([listener, &seen] {
      std::array<char, 4096> request{};
      constexpr std::string_view kAnswer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
      for (int link = 0; (link = ::accept(listener, nullptr, nullptr)) >= 0; ::close(link)) {
        for (bool first = true; ::recv(link, request.data(), request.size(), 0) > 0;) {
          ++seen;
          // It has the second one whole, and goes.
          if (!std::exchange(first, false)) break;
          EXPECT_GT(::send(link, kAnswer.data(), kAnswer.size(), MSG_NOSIGNAL), 0);
        }
      }
    });
    {
      HttpClient client({});
      HttpCall asked{.method = "POST", .port = port};
      asked.body = "x";
      asked.repeatable = repeatable;
      EXPECT_TRUE(http_fetch(client, asked).ok());
      const Result<HttpResponse> second = http_fetch(client, asked);
      EXPECT_EQ(second.ok(), repeatable);
      if (!repeatable) {
        EXPECT_EQ(second.error().code, ErrorCode::kIo);
      }
    }
    ::shutdown(listener, SHUT_RDWR);
    server.join();
    ::close(listener);
    EXPECT_EQ(seen, repeatable ? 3 : 2);
  }
}

TEST_F(HttpClientTest, IdleConnectionsAreLetGo) {
  HttpClient::Options options;
  options.idle_time_max = milliseconds(50);
  HttpClient client(options);
  ASSERT_TRUE(http_fetch(client, call("GET", "/echo")).ok());
  EXPECT_EQ(server_->connection_count(), 1);
  EXPECT_TRUE(soon([&] { return server_->connection_count() == 0; }));
}

TEST_F(HttpClientTest, CancelIsSeenByTheServer) {
  HttpClient client({});
  for (const char* target : {"/hold", "/hold?stream"}) {
    const int closed_before = closed_.load();
    std::promise<Result<void>> done;
    HttpCallEvents told;
    told.on_done = [&](Result<void> result) { done.set_value(std::move(result)); };
    std::future<Result<void>> future = done.get_future();
    const HttpClient::CallId id = client.start(call("GET", target), std::move(told));
    std::this_thread::sleep_for(milliseconds(50));
    client.cancel(id);
    const Result<void> result = future.get();
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code, ErrorCode::kCancelled);
    EXPECT_TRUE(soon([&] { return closed_.load() == closed_before + 1; }));
    client.cancel(id);  // a call that is over
  }
}

TEST_F(HttpClientTest, TimeLimits) {
  HttpCall slow_head = call("GET", "/hold");
  slow_head.head_time_max = milliseconds(60);
  EXPECT_EQ(http_fetch(std::move(slow_head)).error().code, ErrorCode::kDeadline);
  HttpCall slow_body = call("GET", "/hold?stream");
  slow_body.quiet_time_max = milliseconds(60);
  EXPECT_EQ(http_fetch(std::move(slow_body)).error().code, ErrorCode::kDeadline);
}

TEST_F(HttpClientTest, PausedCallHoldsTheServerBack) {
  HttpClient client({});
  std::atomic<size_t> got{0};
  std::promise<Result<void>> done;
  std::future<Result<void>> future = done.get_future();
  std::promise<void> head;
  HttpCallEvents told;
  told.on_head = [&](int, const HttpHeaders&) { head.set_value(); };
  told.on_body = [&](std::string_view bytes) { got.fetch_add(bytes.size()); };
  told.on_done = [&](Result<void> result) { done.set_value(std::move(result)); };
  const HttpClient::CallId id = client.start(call("GET", "/big"), std::move(told));
  client.pause(id);
  // 32 MB do not fit between us: the server has to stop somewhere.
  int sent = -1;
  EXPECT_TRUE(soon([&] {
    std::this_thread::sleep_for(milliseconds(100));
    return std::exchange(sent, blocks_sent_.load()) == blocks_sent_.load();
  }));
  EXPECT_LT(blocks_sent_.load(), 512);
  client.resume(id);
  ASSERT_TRUE(future.get().ok());
  EXPECT_EQ(got.load(), 511u * 64 * 1024);
}

TEST_F(HttpClientTest, FailuresHaveNames) {
  HttpCall refused = call("GET", "/");
  server_->stop(milliseconds(0));
  const Result<HttpResponse> no_one = http_fetch(refused);
  ASSERT_FALSE(no_one.ok());
  EXPECT_EQ(no_one.error().code, ErrorCode::kUnavailable);
  HttpCall bad_name = call("GET", "/");
  bad_name.host = "no-such-host.invalid";
  EXPECT_EQ(http_fetch(bad_name).error().code, ErrorCode::kUnavailable);
  HttpCall bad_target = call("GET", "/a b");
  EXPECT_EQ(http_fetch(bad_target).error().code, ErrorCode::kInvalidArgument);
  HttpCall bad_header = call("GET", "/");
  bad_header.headers.add("X", "a\r\nY: b");
  EXPECT_EQ(http_fetch(bad_header).error().code, ErrorCode::kInvalidArgument);
}

TEST_F(HttpClientTest, NamesAreResolved) {
  HttpCall by_name = call("GET", "/echo");
  by_name.host = "localhost";
  const Result<HttpResponse> response = http_fetch(std::move(by_name));
  ASSERT_TRUE(response.ok()) << response.error().message;
  EXPECT_EQ(response->status, 200);
}

TEST_F(HttpClientTest, EndOfTheClientEndsItsCalls) {
  std::atomic<int> cancelled{0};
  {
    HttpClient client({.threads = 2});
    for (int i = 0; i < 10; ++i) {
      HttpCallEvents told;
      told.on_done = [&](Result<void> result) {
        if (!result.ok() && result.error().code == ErrorCode::kCancelled) cancelled.fetch_add(1);
      };
      client.start(call("GET", "/hold"), std::move(told));
    }
  }
  EXPECT_EQ(cancelled.load(), 10);
}

TEST_F(HttpClientTest, ManyCallsAtOnce) {
  HttpClient client({.threads = 2});
  std::atomic<int> good{0};
  std::atomic<int> done{0};
  for (int i = 0; i < 300; ++i) {
    HttpCallEvents told;
    told.on_head = [&](int status, const HttpHeaders&) { good.fetch_add(status == 200 ? 1 : 0); };
    told.on_done = [&](Result<void>) { done.fetch_add(1); };
    client.start(call("GET", i % 2 == 0 ? "/sse" : "/echo"), std::move(told));
  }
  EXPECT_TRUE(soon([&] { return done.load() == 300; }));
  EXPECT_EQ(good.load(), 300);
}

}  // namespace
}  // namespace pelton::net
