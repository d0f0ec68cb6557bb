#include "net/http_server.h"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/json.h"
#include "net/test_socket.h"

namespace pelton::net {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::string_view kGet = "GET /x HTTP/1.1\r\nHost: a\r\n\r\n";

// A server whose handler the test chooses by path.
class HttpServerTest : public testing::Test {
 protected:
  using Handler = HttpServer::Handler;

  void SetUp() override {
    options_.port = 0;
    options_.threads = 2;
    routes_["/x"] = [](HttpRequest request, std::shared_ptr<Exchange> exchange) {
      HttpResponse response;
      response.headers.add("Content-Type", "text/plain");
      response.body = request.method + " " + request.body;
      exchange->send(std::move(response));
    };
  }

  void start() {
    server_.emplace(
        options_,
        [this](HttpRequest request, std::shared_ptr<Exchange> exchange) {
          const auto route = routes_.find(request.path);
          if (route == routes_.end()) return exchange->send({.status = 404});
          route->second(std::move(request), std::move(exchange));
        },
        log_);
    const Result<void> started = server_->start();
    ASSERT_TRUE(started.ok()) << started.error().message;
  }

  // Holds each request's exchange for the test to play with.
  void hold_requests(const std::string& path) {
    routes_[path] = [this](HttpRequest, std::shared_ptr<Exchange> exchange) {
      std::lock_guard lock(mutex_);
      held_.push_back(std::move(exchange));
      changed_.notify_all();
    };
  }
  std::shared_ptr<Exchange> take_held() {
    std::unique_lock lock(mutex_);
    const bool came = changed_.wait_for(lock, milliseconds(5000), [&] { return !held_.empty(); });
    if (!came) return nullptr;
    std::shared_ptr<Exchange> exchange = std::move(held_.front());
    held_.pop_front();
    return exchange;
  }

  // Runs `work` on the exchange's thread and waits for it.
  static void on_net(const std::shared_ptr<Exchange>& exchange, const std::function<void()>& work) {
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
    exchange->post([&] {
      work();
      std::lock_guard lock(mutex);
      done = true;
      changed.notify_all();
    });
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return done; });
  }

  static bool soon(const std::function<bool()>& condition, int limit_ms = 5000) {
    const auto end = steady_clock::now() + milliseconds(limit_ms);
    while (!condition()) {
      if (steady_clock::now() > end) return false;
      std::this_thread::sleep_for(milliseconds(1));
    }
    return true;
  }

  std::string ask(std::string_view text) {
    TestSocket socket(server_->port());
    socket.send(text);
    return socket.read_response();
  }

  // The status line's number, after a check that the error body is OpenAI's.
  static int error_status(const std::string& response) {
    EXPECT_NE(response.find("Connection: close\r\n"), std::string::npos) << response;
    const size_t head = response.find("\r\n\r\n");
    const Result<Json> body = Json::parse(response.substr(head + 4));
    EXPECT_TRUE(body.ok()) << response;
    const Json* const error = body.ok() ? body->find("error") : nullptr;
    EXPECT_TRUE(error != nullptr && error->string("message") && error->string("type") &&
                error->find("param") != nullptr && error->string("code"))
        << response;
    return std::stoi(response.substr(9, 3));
  }

  base::SystemClock clock_;
  base::Log log_{clock_, {.level = base::LogLevel::kNone}};
  HttpServer::Options options_;
  std::map<std::string, Handler> routes_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Exchange>> held_;
  std::optional<HttpServer> server_;
};

TEST_F(HttpServerTest, AnswersAndKeepsTheConnection) {
  start();
  TestSocket socket(server_->port());
  for (int i = 0; i < 3; ++i) {
    socket.send("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi");
    const std::string response = socket.read_response();
    EXPECT_TRUE(response.starts_with("HTTP/1.1 200 OK\r\nDate: ")) << response;
    EXPECT_TRUE(response.ends_with("\r\n\r\nPOST hi")) << response;
    EXPECT_EQ(response.find("Connection:"), std::string::npos);
    EXPECT_EQ(response.find("Content-Encoding"), std::string::npos);
  }
  EXPECT_EQ(server_->connection_count(), 1);
}

TEST_F(HttpServerTest, ConnectionCloseIsObeyed) {
  start();
  TestSocket socket(server_->port());
  socket.send("GET /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
  const std::string response = socket.read_all();
  EXPECT_NE(response.find("Connection: close\r\n"), std::string::npos);
  EXPECT_TRUE(socket.closed_by_peer());
}

TEST_F(HttpServerTest, Http10) {
  routes_["/stream"] = [](HttpRequest, std::shared_ptr<Exchange> exchange) {
    exchange->start_stream(200, {});
    exchange->write("one");
    exchange->finish();
  };
  start();
  TestSocket closing(server_->port());
  closing.send("GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  const std::string stream = closing.read_all();
  EXPECT_EQ(stream.find("Transfer-Encoding"), std::string::npos);
  EXPECT_TRUE(stream.ends_with("\r\n\r\none"));
  TestSocket keeping(server_->port());
  keeping.send("GET /x HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_NE(keeping.read_response().find("Connection: keep-alive\r\n"), std::string::npos);
  keeping.send("GET /x HTTP/1.0\r\n\r\n");
  EXPECT_NE(keeping.read_all().find("Connection: close\r\n"), std::string::npos);
}

TEST_F(HttpServerTest, HeadHasLengthButNoBody) {
  start();
  TestSocket socket(server_->port());
  socket.send("HEAD /x HTTP/1.1\r\nHost: a\r\n\r\n");
  const std::string response = socket.read_until("\r\n\r\n");
  EXPECT_NE(response.find("Content-Length: 5\r\n"), std::string::npos);
  EXPECT_TRUE(response.ends_with("\r\n\r\n"));
  socket.send(kGet);
  EXPECT_TRUE(socket.read_response().starts_with("HTTP/1.1 200"));
}

TEST_F(HttpServerTest, OptionsReachesTheHandler) {
  start();
  EXPECT_TRUE(ask("OPTIONS /x HTTP/1.1\r\nHost: a\r\n\r\n").ends_with("OPTIONS "));
}

TEST_F(HttpServerTest, Streams) {
  routes_["/stream"] = [](HttpRequest, std::shared_ptr<Exchange> exchange) {
    HttpHeaders headers;
    headers.add("Content-Type", "text/event-stream");
    headers.add("Content-Length", "7");       // ours to say
    headers.add("X-Evil", "a\r\nX-More: b");  // must not become two
    exchange->start_stream(200, headers);
    exchange->write("data: 1\n\n");
    exchange->write("");
    exchange->post_after(milliseconds(10), [exchange] {
      exchange->write("data: 2\n\n");
      exchange->finish();
    });
  };
  start();
  TestSocket socket(server_->port());
  socket.send("GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
  const std::string response = socket.read_response();
  EXPECT_EQ(response.find("Content-Length"), std::string::npos);
  EXPECT_EQ(response.find("\r\nX-More"), std::string::npos);
  EXPECT_TRUE(response.ends_with("\r\n\r\n9\r\ndata: 1\n\n\r\n9\r\ndata: 2\n\n\r\n0\r\n\r\n"))
      << response;
  socket.send(kGet);
  EXPECT_TRUE(socket.read_response().starts_with("HTTP/1.1 200"));
}

TEST_F(HttpServerTest, Ht14ThousandPipelinedRequestsInOrder) {
  routes_["/n"] = [](HttpRequest request, std::shared_ptr<Exchange> exchange) {
    exchange->send({.body = fmt::format("<{}>", request.query)});
  };
  start();
  std::string text;
  for (int i = 0; i < 1000; ++i) {
    text += fmt::format("GET /n?{} HTTP/1.1\r\nHost: a\r\n\r\n", i);
  }
  TestSocket socket(server_->port());
  socket.send(text);
  const std::string answers = socket.read_until("<999>");
  size_t at = 0;
  for (int i = 0; i < 1000; ++i) {
    at = answers.find(fmt::format("<{}>", i), at);
    ASSERT_NE(at, std::string::npos) << i;
  }
}

TEST_F(HttpServerTest, PipelinedBytesBehindALongRequestAreBounded) {
  hold_requests("/hold");
  start();
  TestSocket socket(server_->port());
  socket.send("GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
  const std::shared_ptr<Exchange> exchange = take_held();
  ASSERT_NE(exchange, nullptr);
  const std::string body(1'000'000, 'b');
  std::thread sender([&] {
    for (int i = 0; i < 20; ++i) {
      socket.send("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n" + body);
    }
  });
  std::this_thread::sleep_for(milliseconds(50));
  on_net(exchange, [&] { exchange->send({.body = "first"}); });
  EXPECT_TRUE(socket.read_response().ends_with("first"));
  for (int i = 0; i < 20; ++i) {
    const std::string response = socket.read_response();
    EXPECT_TRUE(response.ends_with(body)) << i << " " << response.size();
    if (HasFailure()) socket.half_close();
  }
  sender.join();
}

TEST_F(HttpServerTest, RefusalsHaveAnErrorBodyAndClose) {
  options_.body_bytes_max = 100;
  start();
  const std::vector<std::pair<std::string, int>> cases = {
      {"GET / HTTP/1.1\r\n\r\n", 400},
      {"GET /" + std::string(100'000, 'a') + " HTTP/1.1\r\n", 414},
      {"GET / HTTP/1.1\r\nHost: a\r\nX: " + std::string(1 << 20, 'a') + "\r\n\r\n", 431},
      {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 101\r\n\r\n", 413},
      {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n65\r\nx", 413},
      {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
       400},
      {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello", 400},
      {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 501},
      {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n-2\r\nhello", 400},
      {"GET / HTTP/3.0\r\nHost: a\r\n\r\n", 505},
      {"FOO / HTTP/1.1\r\nHost: a\r\n\r\n", 405},
      {"GET http://other/ HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"GET /v1/../x HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nHost: a\r\nContent-Encoding: gzip\r\nContent-Length: 1\r\n\r\n", 415},
      {"POST / HTTP/1.1\r\nHost: a\r\nExpect: x\r\nContent-Length: 1\r\n\r\n", 417},
      {"\x16\x03\x01\x02", 400},
  };
  for (const auto& [text, status] : cases) {
    TestSocket socket(server_->port());
    socket.send(text);
    const std::string response = socket.read_all();
    ASSERT_FALSE(response.empty()) << text.substr(0, 80);
    EXPECT_EQ(error_status(response), status) << text.substr(0, 80);
    EXPECT_TRUE(socket.closed_by_peer());
  }
}

// The refusal comes while the client still sends: it must not be lost to a reset.
TEST_F(HttpServerTest, Ht17RefusalOfALargeBodyIsHeard) {
  options_.body_bytes_max = 1000;
  start();
  TestSocket socket(server_->port());
  socket.send("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5000000\r\n\r\n");
  std::thread sender([&] {
    for (int i = 0; i < 50; ++i) socket.send(std::string(100'000, 'b'));
    socket.half_close();
  });
  const std::string response = socket.read_all();
  sender.join();
  EXPECT_EQ(error_status(response), 413);
}

TEST_F(HttpServerTest, NothingBehindARefusalIsServed) {
  start();
  TestSocket socket(server_->port());
  socket.send(
      "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: "
      "chunked\r\n\r\n0\r\n\r\n" +
      std::string(kGet));
  const std::string response = socket.read_all();
  EXPECT_EQ(error_status(response), 400);
  EXPECT_EQ(response.find("HTTP/1.1 200"), std::string::npos);
}

TEST_F(HttpServerTest, Ht03SlowHeader) {
  options_.header_time_max = milliseconds(100);
  start();
  TestSocket slow(server_->port());
  slow.send("GET / HT");
  TestSocket witness(server_->port());
  witness.send(kGet);
  EXPECT_TRUE(witness.read_response().starts_with("HTTP/1.1 200"));
  EXPECT_EQ(error_status(slow.read_all()), 408);
}

TEST_F(HttpServerTest, Ht04SlowBody) {
  options_.body_time_max = milliseconds(100);
  start();
  TestSocket slow(server_->port());
  slow.send("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab");
  EXPECT_EQ(error_status(slow.read_all()), 408);
}

TEST_F(HttpServerTest, Ht13ExpectContinueThenBodyOrSilence) {
  options_.body_time_max = milliseconds(200);
  start();
  const std::string_view head =
      "POST /x HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n";
  TestSocket good(server_->port());
  good.send(head);
  EXPECT_EQ(good.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  good.send("hi");
  EXPECT_TRUE(good.read_response().ends_with("POST hi"));
  TestSocket silent(server_->port());
  silent.send(head);
  const std::string response = silent.read_all();
  EXPECT_TRUE(response.starts_with("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 408")) << response;
}

TEST_F(HttpServerTest, Ht20IdleConnectionsEnd) {
  options_.idle_time_max = options_.first_byte_time_max = milliseconds(80);
  start();
  TestSocket fresh(server_->port());
  TestSocket used(server_->port());
  used.send(kGet);
  EXPECT_TRUE(used.read_response().starts_with("HTTP/1.1 200"));
  EXPECT_TRUE(fresh.wait_closed());
  EXPECT_TRUE(used.wait_closed());
  EXPECT_TRUE(soon([&] { return server_->connection_count() == 0; }));
}

TEST_F(HttpServerTest, ConnectionLimitAnswers503) {
  options_.connections_max = 2;
  start();
  TestSocket a(server_->port());
  TestSocket b(server_->port());
  a.send(kGet);
  b.send(kGet);
  EXPECT_TRUE(a.read_response().starts_with("HTTP/1.1 200"));
  EXPECT_TRUE(b.read_response().starts_with("HTTP/1.1 200"));
  TestSocket c(server_->port());
  c.send(kGet);
  const std::string refused = c.read_all();
  EXPECT_EQ(error_status(refused), 503);
  EXPECT_NE(refused.find("Retry-After: "), std::string::npos);
  c.close();
  a.close();
  ASSERT_TRUE(soon([&] { return server_->connection_count() < 2; }));
  EXPECT_TRUE(ask(kGet).starts_with("HTTP/1.1 200"));
}

TEST_F(HttpServerTest, DroppedUnansweredIs500) {
  routes_["/drop"] = [](HttpRequest, std::shared_ptr<Exchange>) {};
  routes_["/drop_later"] = [](HttpRequest, std::shared_ptr<Exchange> exchange) {
    std::thread([exchange = std::move(exchange)]() mutable { exchange.reset(); }).detach();
  };
  start();
  TestSocket socket(server_->port());
  for (const char* path : {"/drop", "/drop_later", "/drop"}) {
    socket.send(std::string("GET ") + path + " HTTP/1.1\r\nHost: a\r\n\r\n");
    const std::string response = socket.read_response();
    EXPECT_TRUE(response.starts_with("HTTP/1.1 500")) << response;
    EXPECT_NE(response.find("\"error\""), std::string::npos);
  }
}

TEST_F(HttpServerTest, DroppedAmidAStreamCutsTheConnection) {
  routes_["/drop"] = [](HttpRequest, std::shared_ptr<Exchange> exchange) {
    exchange->start_stream(200, {});
    exchange->write("half");
  };
  start();
  TestSocket socket(server_->port());
  socket.send("GET /drop HTTP/1.1\r\nHost: a\r\n\r\n");
  const std::string response = socket.read_all();
  EXPECT_TRUE(socket.closed_by_peer());
  EXPECT_TRUE(response.ends_with("half\r\n")) << response;  // and no last chunk
}

// How long after the client's goodbye on_closed comes.
class Disconnect : public HttpServerTest, public testing::WithParamInterface<std::string> {};

TEST_P(Disconnect, IsSeenWhileNothingIsWritten) {
  hold_requests("/hold");
  start();
  for (const bool streaming : {false, true}) {
    TestSocket socket(server_->port());
    socket.send("GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
    const std::shared_ptr<Exchange> exchange = take_held();
    ASSERT_NE(exchange, nullptr);
    std::atomic<int> closed{0};
    on_net(exchange, [&] {
      exchange->on_closed([&] { closed.fetch_add(1); });
      if (!streaming) return;
      exchange->start_stream(200, {});
      exchange->write("data: x\n\n");
    });
    if (streaming) socket.read_until("data: x");
    std::this_thread::sleep_for(milliseconds(20));
    EXPECT_EQ(closed.load(), 0);
    const auto gone = steady_clock::now();
    if (GetParam() == "reset") {
      socket.reset();
    } else {
      socket.close();
    }
    EXPECT_TRUE(soon([&] { return closed.load() == 1; }, 2000)) << "streaming " << streaming;
    EXPECT_LT(steady_clock::now() - gone, milliseconds(100));
    on_net(exchange, [&] {
      EXPECT_TRUE(exchange->closed());
      EXPECT_EQ(exchange->queued_bytes(), 0u);
      if (streaming) exchange->write("ignored");
    });
    std::atomic<bool> closed_late{false};
    on_net(exchange, [&] { exchange->on_closed([&] { closed_late = true; }); });
    EXPECT_TRUE(soon([&] { return closed_late.load(); }));
    EXPECT_EQ(closed.load(), 1);
  }
  EXPECT_TRUE(soon([&] { return server_->connection_count() == 0; }));
}
INSTANTIATE_TEST_SUITE_P(Ways, Disconnect, testing::Values("close", "reset"),
                         [](const auto& info) { return info.param; });

TEST_F(HttpServerTest, Ht23HalfClosedClientIsStillAnswered) {
  hold_requests("/hold");
  start();
  for (const bool streaming : {false, true}) {
    TestSocket socket(server_->port());
    socket.send("GET /hold HTTP/1.1\r\nHost: a\r\n\r\n" + std::string(kGet));
    const std::shared_ptr<Exchange> exchange = take_held();
    ASSERT_NE(exchange, nullptr);
    std::atomic<bool> closed{false};
    on_net(exchange, [&] {
      exchange->on_closed([&] { closed = true; });
      if (streaming) exchange->start_stream(200, {});
    });
    socket.half_close();
    std::this_thread::sleep_for(milliseconds(50));
    EXPECT_FALSE(closed.load());
    on_net(exchange, [&] {
      if (!streaming) return exchange->send({.body = "late"});
      exchange->write("late");
      exchange->finish();
    });
    const std::string response = socket.read_all();
    EXPECT_NE(response.find(streaming ? "\r\n\r\n04\r\nlate\r\n0\r\n\r\n" : "\r\n\r\nlate"),
              std::string::npos)
        << response;
    EXPECT_TRUE(response.ends_with("GET ")) << response;  // the pipelined one too
    EXPECT_TRUE(socket.closed_by_peer());
  }
}

TEST_F(HttpServerTest, Ht24RequestThenResetLeaksNothing) {
  std::atomic<int> served{0};
  routes_["/x"] = [&](HttpRequest, std::shared_ptr<Exchange> exchange) {
    served.fetch_add(1);
    exchange->send({.body = std::string(1000, 'a')});
  };
  start();
  for (int i = 0; i < 500; ++i) {
    TestSocket socket(server_->port());
    socket.send(kGet);
    socket.reset();
  }
  EXPECT_TRUE(soon([&] { return server_->connection_count() == 0; }));
  EXPECT_TRUE(ask(kGet).starts_with("HTTP/1.1 200"));
}

TEST_F(HttpServerTest, SlowReaderBacklogShowsAndDrains) {
  hold_requests("/hold");
  start();
  TestSocket socket(server_->port(), 4096);
  socket.send("GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
  const std::shared_ptr<Exchange> exchange = take_held();
  ASSERT_NE(exchange, nullptr);
  std::atomic<int> drained{0};
  const std::string block(64 * 1024, 'z');
  size_t written = 0;
  on_net(exchange, [&] {
    exchange->on_drained([&] { drained.fetch_add(1); });
    exchange->start_stream(200, {});
  });
  ASSERT_TRUE(soon([&] { return drained.load() == 1; }));  // the head has left
  size_t queued = 0;
  for (int i = 0; i < 400 && queued < 4 * block.size(); ++i) {
    on_net(exchange, [&] { exchange->write(block); });
    written += block.size();
    std::this_thread::sleep_for(milliseconds(1));
    on_net(exchange, [&] { queued = exchange->queued_bytes(); });
  }
  ASSERT_GE(queued, 4 * block.size()) << "the kernel took all of " << written;
  EXPECT_LE(queued, written + written / 1000 + 100);
  const int drained_before = drained.load();
  std::this_thread::sleep_for(milliseconds(50));
  size_t queued_later = 0;
  on_net(exchange, [&] { queued_later = exchange->queued_bytes(); });
  EXPECT_LE(queued_later, queued);
  std::string got;
  std::thread reader([&] { got = socket.read_all(10'000); });
  EXPECT_TRUE(soon([&] { return drained.load() > drained_before; }, 10'000));
  on_net(exchange, [&] {
    EXPECT_EQ(exchange->queued_bytes(), 0u);
    exchange->finish();
  });
  server_->stop(milliseconds(5000));
  reader.join();
  EXPECT_EQ(static_cast<size_t>(std::count(got.begin(), got.end(), 'z')), written);
}

TEST_F(HttpServerTest, ReaderThatTakesNothingIsCutOff) {
  options_.stall_time_max = milliseconds(150);
  hold_requests("/hold");
  start();
  TestSocket socket(server_->port(), 4096);
  socket.send("GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
  const std::shared_ptr<Exchange> exchange = take_held();
  ASSERT_NE(exchange, nullptr);
  std::atomic<bool> closed{false};
  on_net(exchange, [&] {
    exchange->on_closed([&] { closed = true; });
    exchange->start_stream(200, {});
    exchange->write(std::string(64 << 20, 'z'));
  });
  EXPECT_TRUE(soon([&] { return closed.load(); }));
}

// FT-04: it takes some all the while, though never so much that there is room for more to be
// written.
TEST_F(HttpServerTest, FT_04_WhoReadsSlowlyIsNotCutOff) {
  options_.stall_time_max = milliseconds(300);
  hold_requests("/hold");
  start();
  TestSocket socket(server_->port(), 4096);
  socket.send("GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
  const std::shared_ptr<Exchange> exchange = take_held();
  ASSERT_NE(exchange, nullptr);
  std::atomic<bool> closed{false};
  on_net(exchange, [&] {
    exchange->on_closed([&] { closed = true; });
    exchange->start_stream(200, {});
    exchange->write(std::string(8 << 20, 'z'));
  });
  const auto begin = std::chrono::steady_clock::now();
  std::string bytes(1024, '\0');
  while (!closed && std::chrono::steady_clock::now() - begin < milliseconds(1500)) {
    static_cast<void>(::recv(socket.descriptor(), bytes.data(), bytes.size(), 0));
    std::this_thread::sleep_for(milliseconds(20));
  }
  EXPECT_FALSE(closed.load());
  EXPECT_TRUE(soon([&] { return closed.load(); }, 10'000)) << "and then it takes nothing";
}

// A machine that vanishes: its kernel no longer takes part, so no FIN, no RST, no ACK.
void vanish(TestSocket& socket) {
  sock_filter drop_all = BPF_STMT(BPF_RET | BPF_K, 0);
  const sock_fprog program{1, &drop_all};
  ASSERT_EQ(
      ::setsockopt(socket.descriptor(), SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)),
      0);
}

TEST_F(HttpServerTest, FT_06_AVanishedClientIsNoticed) {
  options_.lost_time_max = milliseconds(2000);
  options_.stall_time_max = milliseconds(2000);
  hold_requests("/hold");
  start();
  for (const bool writing : {true, false}) {
    TestSocket socket(server_->port());
    socket.send("GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
    const std::shared_ptr<Exchange> exchange = take_held();
    ASSERT_NE(exchange, nullptr);
    std::atomic<bool> closed{false};
    on_net(exchange, [&] {
      exchange->on_closed([&] { closed = true; });
      exchange->start_stream(200, {});
    });
    socket.read_until("\r\n\r\n");
    vanish(socket);
    if (writing) on_net(exchange, [&] { exchange->write("data: into the void\n\n"); });
    EXPECT_TRUE(soon([&] { return closed.load(); }, 10'000)) << "writing " << writing;
  }
  EXPECT_TRUE(soon([&] { return server_->connection_count() == 0; }));
}

TEST_F(HttpServerTest, FT_47_NoMemoryForOneRequestIsThatOnesMatter) {
  hold_requests("/hold");
  routes_["/huge"] = [](HttpRequest, std::shared_ptr<Exchange>) { throw std::bad_alloc(); };
  start();
  TestSocket other(server_->port());
  other.send("GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
  const std::shared_ptr<Exchange> held = take_held();
  ASSERT_NE(held, nullptr);
  EXPECT_EQ(error_status(ask("GET /huge HTTP/1.1\r\nHost: a\r\n\r\n")), 503);

  // Amid an answer: its client is cut off, its holder told.
  TestSocket second(server_->port());
  second.send("GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
  const std::shared_ptr<Exchange> late = take_held();
  ASSERT_NE(late, nullptr);
  std::atomic<int> closed{0};
  late->post([&] {
    late->on_closed([&] { closed.fetch_add(1); });
    throw std::bad_alloc();
  });
  EXPECT_EQ(error_status(second.read_all()), 503);
  EXPECT_TRUE(soon([&] { return closed == 1; }));
  TestSocket third(server_->port());
  third.send("GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
  const std::shared_ptr<Exchange> streaming = take_held();
  ASSERT_NE(streaming, nullptr);
  streaming->post([&] {
    streaming->on_closed([&] { closed.fetch_add(1); });
    streaming->start_stream(200, {});
    throw std::bad_alloc();
  });
  third.read_all();
  EXPECT_TRUE(third.closed_by_peer());
  EXPECT_TRUE(soon([&] { return closed == 2; }));

  on_net(held, [&] { held->send({.body = "as if nothing had been"}); });
  EXPECT_TRUE(other.read_response().ends_with("as if nothing had been"));
}

TEST_F(HttpServerTest, WritesOfOneTurnLeaveTogether) {
  hold_requests("/hold");
  start();
  TestSocket socket(server_->port());
  socket.send("GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
  const std::shared_ptr<Exchange> exchange = take_held();
  ASSERT_NE(exchange, nullptr);
  std::atomic<int> drained{0};
  on_net(exchange, [&] {
    exchange->on_drained([&] { drained.fetch_add(1); });
    exchange->start_stream(200, {});
    for (int i = 0; i < 1000; ++i) exchange->write("data: token\n\n");
  });
  EXPECT_TRUE(soon([&] { return drained.load() > 0; }));
  on_net(exchange, [&] { exchange->finish(); });
  socket.read_response();
  EXPECT_EQ(drained.load(), 1);
}

TEST_F(HttpServerTest, GracefulStopLetsExchangesEnd) {
  hold_requests("/hold");
  start();
  TestSocket idle(server_->port());
  idle.send(kGet);
  idle.read_response();
  TestSocket busy(server_->port());
  busy.send("GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
  const std::shared_ptr<Exchange> exchange = take_held();
  ASSERT_NE(exchange, nullptr);
  const int port = server_->port();
  std::thread stopping([&] { server_->stop(milliseconds(5000)); });
  EXPECT_TRUE(idle.wait_closed());
  EXPECT_TRUE(soon([&] { return !TestSocket(port).connected(); }));
  exchange->post([exchange] { exchange->send({.body = "in time"}); });
  const std::string response = busy.read_all();
  stopping.join();
  EXPECT_TRUE(response.ends_with("in time"));
  EXPECT_NE(response.find("Connection: close\r\n"), std::string::npos);
}

TEST_F(HttpServerTest, StopClosesWhatOutlivesTheGrace) {
  hold_requests("/hold");
  start();
  TestSocket busy(server_->port());
  busy.send("GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
  std::shared_ptr<Exchange> exchange = take_held();
  ASSERT_NE(exchange, nullptr);
  std::atomic<bool> closed{false};
  on_net(exchange, [&] { exchange->on_closed([&] { closed = true; }); });
  const auto begin = steady_clock::now();
  server_->stop(milliseconds(100));
  EXPECT_GE(steady_clock::now() - begin, milliseconds(100));
  EXPECT_LT(steady_clock::now() - begin, milliseconds(1000));
  EXPECT_TRUE(closed.load());
  EXPECT_TRUE(busy.wait_closed());
  server_.reset();
  // The exchange outlives its server: nothing may happen.
  bool ran = false;
  exchange->post([&] { ran = true; });
  exchange->post_after(milliseconds(1), [&] { ran = true; });
  EXPECT_TRUE(exchange->closed());
  exchange->send({.body = "too late"});
  exchange.reset();
  EXPECT_FALSE(ran);
}

TEST_F(HttpServerTest, PostAfterEndsWithTheExchange) {
  std::atomic<int> ran{0};
  routes_["/timer"] = [&](HttpRequest, std::shared_ptr<Exchange> exchange) {
    exchange->post_after(milliseconds(5), [&, exchange] {
      ran.fetch_add(1);
      exchange->send({.body = "done"});
    });
    exchange->post_after(milliseconds(50), [&, exchange] { ran.fetch_add(100); });
  };
  start();
  EXPECT_TRUE(ask("GET /timer HTTP/1.1\r\nHost: a\r\n\r\n").ends_with("done"));
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_EQ(ran.load(), 1);
}

TEST_F(HttpServerTest, TwoHundredConnectionsStreamAtOnce) {
  routes_["/stream"] = [](HttpRequest, std::shared_ptr<Exchange> exchange) {
    exchange->start_stream(200, {});
    // Each event in a turn of its own, as tokens come.
    struct Step {
      static void run(const std::shared_ptr<Exchange>& exchange, int left) {
        if (left == 0) return exchange->finish();
        exchange->write(fmt::format("data: {}\n\n", left));
        exchange->post([exchange, left] { run(exchange, left - 1); });
      }
    };
    Step::run(exchange, 50);
  };
  start();
  std::vector<std::unique_ptr<TestSocket>> sockets;
  for (int i = 0; i < 200; ++i) {
    sockets.push_back(std::make_unique<TestSocket>(server_->port()));
    ASSERT_TRUE(sockets.back()->connected());
  }
  for (const auto& socket : sockets) socket->send("GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
  for (const auto& socket : sockets) {
    const std::string response = socket->read_response();
    size_t at = 0;
    for (int i = 50; i > 0; --i) {
      at = response.find(fmt::format("data: {}\n\n", i), at);
      ASSERT_NE(at, std::string::npos) << i;
    }
  }
  EXPECT_EQ(server_->connection_count(), 200);
}

TEST_F(HttpServerTest, PostsFromManyThreadsWhileClientsComeAndGo) {
  hold_requests("/hold");
  start();
  for (int round = 0; round < 20; ++round) {
    TestSocket socket(server_->port());
    socket.send("GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
    std::shared_ptr<Exchange> exchange = take_held();
    ASSERT_NE(exchange, nullptr);
    on_net(exchange, [&] { exchange->start_stream(200, {}); });
    std::vector<std::thread> posters;
    for (int t = 0; t < 3; ++t) {
      posters.emplace_back([exchange] {
        for (int i = 0; i < 50; ++i) exchange->post([exchange] { exchange->write("x"); });
      });
    }
    if (round % 2 == 0) socket.close();
    for (std::thread& poster : posters) poster.join();
    exchange.reset();
  }
  EXPECT_TRUE(soon([&] { return server_->connection_count() == 0; }));
}

TEST_F(HttpServerTest, IdleServerUsesNoCpu) {
  start();
  TestSocket idle(server_->port());
  idle.send(kGet);
  idle.read_response();
  const auto cpu_ms = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000 +
           (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1000;
  };
  const auto before = cpu_ms();
  std::this_thread::sleep_for(milliseconds(1000));
  EXPECT_LE(cpu_ms() - before, 10);  // 1 % of one core
}

TEST_F(HttpServerTest, D4_RequestsForOtherHostNamesAreForbidden) {
  options_.hosts = AllowedHosts::parse({"box"}).value().at(options_.address);
  start();
  const auto asked = [&](const std::string& host) {
    return ask("POST /x HTTP/1.1\r\nHost: " + host + "\r\nContent-Length: 2\r\n\r\nhi");
  };
  for (const std::string host : {"localhost", "127.0.0.1:1", "[::1]", "box:80"}) {
    EXPECT_TRUE(asked(host).starts_with("HTTP/1.1 200 ")) << host;
  }
  EXPECT_TRUE(
      ask("GET /x HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").starts_with("HTTP/1.1 200 "));
  for (const std::string host : {"attacker.example", "box.attacker.example"}) {
    const std::string refused = asked(host);
    EXPECT_EQ(error_status(refused), 403) << host;
    EXPECT_NE(refused.find("--allowed-host"), std::string::npos);
  }
  EXPECT_EQ(error_status(asked("a b")), 400);
  EXPECT_EQ(error_status(ask("GET http://attacker.example/x HTTP/1.1\r\n"
                             "Host: attacker.example\r\n\r\n")),
            403);
}

TEST_F(HttpServerTest, NetThreadsHaveAName) {
  std::string name;
  routes_["/name"] = [&](HttpRequest, std::shared_ptr<Exchange> exchange) {
    char text[16] = {};
    pthread_getname_np(pthread_self(), text, sizeof(text));
    exchange->send({.body = text});
  };
  start();
  EXPECT_TRUE(ask("GET /name HTTP/1.1\r\nHost: a\r\n\r\n").ends_with("pelton-net"));
}

TEST_F(HttpServerTest, AddressesAndPorts) {
  start();
  const auto try_start = [&](const std::string& address, int port) {
    HttpServer::Options options;
    options.address = address;
    options.port = port;
    HttpServer server(
        options, [](HttpRequest, std::shared_ptr<Exchange>) {}, log_);
    return server.start();
  };
  const Result<void> taken = try_start("127.0.0.1", server_->port());
  ASSERT_FALSE(taken.ok());
  EXPECT_EQ(taken.error().code, ErrorCode::kAddressInUse);
  EXPECT_NE(taken.error().message.find(fmt::format("127.0.0.1:{}", server_->port())),
            std::string::npos);
  EXPECT_TRUE(try_start("0.0.0.0", 0).ok());
  EXPECT_TRUE(try_start("localhost", 0).ok());
  for (const char* address : {"", "nowhere", "256.0.0.1", "1.2.3.4.5", "203.0.113.7"}) {
    const Result<void> bad = try_start(address, 0);
    ASSERT_FALSE(bad.ok()) << address;
    EXPECT_EQ(bad.error().code, ErrorCode::kInvalidArgument) << address;
  }
  EXPECT_EQ(try_start("127.0.0.1", 70000).error().code, ErrorCode::kInvalidArgument);
  const Result<void> six = try_start("::1", 0);
  if (!six.ok()) {
    EXPECT_NE(six.error().message.find("[::1]:0"), std::string::npos);
  }
}

}  // namespace
}  // namespace pelton::net
