// Many large requests at once: what is being read of all of them together has a bound, and whoever
// is small comes through beside them.
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/clock.h"
#include "base/log.h"
#include "net/http_server.h"
#include "net/test_socket.h"
#include "net/test_websocket.h"
#include "net/websocket.h"

namespace pelton::net {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr size_t kRoom = 1 << 20;
constexpr size_t kLarge = 200 << 10;  // of which 64 KiB are its own

class LargeRequests : public testing::Test {
 protected:
  void SetUp() override {
    server_.emplace(
        HttpServer::Options{.port = 0, .threads = 2, .bodies_bytes_max = kRoom},
        [](HttpRequest request, std::shared_ptr<Exchange> exchange) {
          if (!request.headers.has("Upgrade")) {
            return exchange->send(
                {.status = 200, .headers = {}, .body = std::to_string(request.body.size())});
          }
          const std::weak_ptr<Exchange> weak = exchange;
          exchange->on_closed([exchange] {});
          exchange->accept_websocket({}, {.on_message =
                                              [weak](std::string message) {
                                                weak.lock()->write(std::to_string(message.size()));
                                              },
                                          .on_drain = [weak] { weak.lock()->finish(); }});
        },
        log_);
    ASSERT_TRUE(server_->start().ok());
  }

  static std::string head(std::string_view framing) {
    return "POST /x HTTP/1.1\r\nHost: a\r\n" + std::string(framing) + "\r\n\r\n";
  }
  std::unique_ptr<TestSocket> open() const { return std::make_unique<TestSocket>(server_->port()); }
  // All but the last byte of a large body, with time to be read.
  std::unique_ptr<TestSocket> almost_said() const {
    auto socket = open();
    socket->send(head("Content-Length: " + std::to_string(kLarge)));
    socket->send(std::string(kLarge - 1, 'x'));
    return socket;
  }
  std::string small_answer() const {
    const auto socket = open();
    socket->send(head("Content-Length: 60000") + std::string(60'000, 's'));
    return socket->read_response();
  }
  static bool ended(const std::string& answer, std::string_view body) {
    return answer.starts_with("HTTP/1.1 200") && answer.ends_with(body);
  }
  static bool soon(const std::function<bool()>& condition) {
    const auto end = steady_clock::now() + milliseconds(10'000);
    while (!condition()) {
      if (steady_clock::now() > end) return false;
      std::this_thread::sleep_for(milliseconds(2));
    }
    return true;
  }

  const base::SystemClock clock_{};
  base::Log log_{clock_, {.level = base::LogLevel::kNone}};
  std::optional<HttpServer> server_;
};

TEST_F(LargeRequests, BodiesShareTheirRoom) {
  std::vector<std::unique_ptr<TestSocket>> sockets;
  for (int i = 0; i < 16; ++i) sockets.push_back(almost_said());
  std::vector<TestSocket*> kept;
  int refused = 0;
  for (const auto& socket : sockets) {
    const std::string answer = socket->read_until("\r\n\r\n", 300);
    if (answer.empty()) {
      kept.push_back(socket.get());
      continue;
    }
    ++refused;
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 503")) << answer;
    EXPECT_NE(answer.find("Retry-After: 1\r\n"), std::string::npos) << answer;
  }
  EXPECT_GE(refused, 8);  // 16 times 136 KiB do not fit, however strings grow
  EXPECT_GE(kept.size(), 3u);
  EXPECT_TRUE(ended(small_answer(), "\r\n60000")) << "who is small needs nobody's room";

  // Who was let in is served, and what they had is free again for others.
  for (TestSocket* const socket : kept) {
    socket->send("x");
    EXPECT_TRUE(ended(socket->read_response(), std::to_string(kLarge)));
  }
  for (int i = 0; i < 20; ++i) {
    const auto again = almost_said();
    again->send("x");
    EXPECT_TRUE(ended(again->read_response(), std::to_string(kLarge)));
  }
}

// By whatever way a request ends that has not been read to its end.
TEST_F(LargeRequests, WhatIsLeftInTheMiddleIsFreeAgain) {
  const auto fits = [&] {
    return soon([&] {
      const auto large = open();
      large->send(head("Content-Length: 900000") + std::string(900'000, 'x'));
      return ended(large->read_response(), "900000");
    });
  };
  ASSERT_TRUE(fits());
  for (int i = 0; i < 4; ++i) {
    almost_said()->reset();
    almost_said()->half_close();
  }
  EXPECT_TRUE(fits());
  const auto chunked = open();
  chunked->send(head("Transfer-Encoding: chunked") + "30000\r\n" + std::string(0x30000, 'x') +
                "\r\nno size");
  EXPECT_TRUE(chunked->read_all().starts_with("HTTP/1.1 400"));
  EXPECT_TRUE(fits());
}

TEST_F(LargeRequests, MessagesOfWebSocketsShareItToo) {
  std::vector<std::unique_ptr<TestWebSocket>> sockets;
  const std::string frame = client_frame(WebSocketOpcode::kText, std::string(kLarge, 'x'));
  for (int i = 0; i < 16; ++i) {
    sockets.push_back(std::make_unique<TestWebSocket>(server_->port(), "/"));
    ASSERT_TRUE(sockets.back()->open());
    sockets.back()->raw(std::string_view(frame).substr(0, frame.size() - 1));
  }
  int refused = 0, answered = 0;
  for (const auto& socket : sockets) {
    // Of those that were let in, the last byte makes a message.
    const int code = socket->read(300).close_code();
    if (code == kCloseTryLater) {
      ++refused;
      continue;
    }
    socket->raw(frame.substr(frame.size() - 1));
    EXPECT_EQ(socket->read().payload, std::to_string(kLarge));
    ++answered;
  }
  EXPECT_GE(refused, 1);
  EXPECT_GE(answered, 3);
  TestWebSocket after(server_->port(), "/");
  ASSERT_TRUE(after.open());
  for (int i = 0; i < 10; ++i) {
    after.raw(frame);
    EXPECT_EQ(after.read().payload, std::to_string(kLarge));
  }
}

}  // namespace
}  // namespace pelton::net
