#include "net/websocket.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/clock.h"
#include "base/utf8.h"
#include "net/http_server.h"
#include "net/test_socket.h"
#include "net/test_websocket.h"

namespace pelton::net {
namespace {

using Event = WebSocketReader::Event;
using Opcode = WebSocketOpcode;

constexpr std::string_view kKey = "dGhlIHNhbXBsZSBub25jZQ==";  // RFC 6455, 1.3

HttpRequest handshake() {
  HttpRequest request{.method = "GET", .path = "/"};
  request.headers.add("Upgrade", "WebSocket");
  request.headers.add("Connection", "keep-alive, Upgrade");
  request.headers.add("Sec-WebSocket-Version", "13");
  request.headers.add("Sec-WebSocket-Key", std::string(kKey));
  return request;
}

// The last event, and its code if it ends the connection.
struct Read {
  Event event;
  int code = 0;
};
Read read(std::string_view bytes, size_t message_bytes_max = 1000) {
  WebSocketReader reader({.message_bytes_max = message_bytes_max});
  reader.append(bytes);
  Event last = Event::kNone;
  for (Event event = reader.advance(); event != Event::kNone; event = reader.advance())
    last = event;
  const bool over = last == Event::kBad || last == Event::kClose;
  return {last, over ? reader.close().code : 0};
}

void expect_bad(std::string_view bytes, int code) {
  const Read got = read(bytes);
  EXPECT_EQ(got.event, Event::kBad);
  EXPECT_EQ(got.code, code);
}

TEST(WebSocket, AcceptsAsTheRfcSays) {
  EXPECT_FALSE(check_websocket_request(handshake()).has_value());
  EXPECT_EQ(websocket_accept(kKey), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
}

TEST(WebSocket, WS_01_BadHandshakesAreRefused) {
  const auto status = [](std::string_view name, std::string value) {
    HttpRequest request{.method = "GET", .path = "/"};
    const HttpRequest good = handshake();
    for (const auto& [key, had] : good.headers.fields()) {
      if (key != name) request.headers.add(key, had);
    }
    if (!value.empty()) request.headers.add(std::string(name), std::move(value));
    const auto reject = check_websocket_request(request);
    return reject ? reject->status : 0;
  };
  EXPECT_EQ(status("Sec-WebSocket-Key", ""), 400);
  EXPECT_EQ(status("Sec-WebSocket-Key", "short"), 400);
  EXPECT_EQ(status("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZ?=="), 400);
  EXPECT_EQ(status("Upgrade", ""), 400);
  EXPECT_EQ(status("Connection", "close"), 400);
  EXPECT_EQ(status("Sec-WebSocket-Version", "8"), 426);
}

TEST(WebSocket, ReadsMessagesPingsAndGoodbyes) {
  EXPECT_EQ(read(client_frame(Opcode::kText, "hello")).event, Event::kText);
  EXPECT_EQ(read(client_frame(Opcode::kPing, "p")).event, Event::kPing);
  const Read bye = read(client_frame(Opcode::kClose, std::string("\x03\xE8", 2) + "bye"));
  EXPECT_EQ(bye.event, Event::kClose);
  EXPECT_EQ(bye.code, 1000);
  // A ping may stand between the pieces of a message.
  WebSocketReader reader({});
  reader.append(client_frame(Opcode::kText, "a", {.last = false}) +
                client_frame(Opcode::kPing, "p") +
                client_frame(Opcode::kContinuation, std::string(70'000, 'b')));
  EXPECT_EQ(reader.advance(), Event::kPing);
  EXPECT_EQ(reader.advance(), Event::kText);
  EXPECT_EQ(reader.payload(), "a" + std::string(70'000, 'b'));
}

TEST(WebSocket, WS_02_UnmaskedFramesAreRefused) {
  expect_bad(std::string("\x81\x01x", 3), kCloseProtocolError);
}

TEST(WebSocket, WS_03_ReservedBitsAndOpcodesAreRefused) {
  for (const int bit : {0x10, 0x20, 0x40}) {
    std::string frame = client_frame(Opcode::kText, "x");
    frame[0] = static_cast<char>(frame[0] | bit);
    expect_bad(frame, kCloseProtocolError);
  }
  for (const int opcode : {3, 4, 5, 6, 7, 11, 12, 13, 14, 15}) {
    expect_bad(client_frame(static_cast<Opcode>(opcode), "x"), kCloseProtocolError);
  }
}

TEST(WebSocket, WS_04_ControlFramesAreShortAndWhole) {
  expect_bad(client_frame(Opcode::kPing, "x", {.last = false}), kCloseProtocolError);
  expect_bad(client_frame(Opcode::kPing, std::string(126, 'x')), kCloseProtocolError);
}

TEST(WebSocket, WS_05_LengthsAreMinimalAndNotBelieved) {
  const std::string mask(4, '\0');
  expect_bad(std::string("\x81\xFE\x00\x01", 4) + mask + "x", kCloseProtocolError);
  expect_bad(std::string("\x81\xFF\x00\x00\x00\x00\x00\x00\x00\x01", 10) + mask + "x",
             kCloseProtocolError);
  for (const char top : {'\x00', '\x7F', '\x80', '\xFF'}) {
    expect_bad(std::string("\x81\xFF", 2) + top + std::string(7, '\xFF') + mask, kCloseTooBig);
  }
}

TEST(WebSocket, WS_06_TextIsUtf8AcrossFrames) {
  const std::string euro = "\xE2\x82\xAC";
  EXPECT_EQ(read(client_frame(Opcode::kText, euro.substr(0, 1), {.last = false}) +
                 client_frame(Opcode::kContinuation, euro.substr(1)))
                .event,
            Event::kText);
  expect_bad(client_frame(Opcode::kText, euro.substr(0, 1), {.last = false}) +
                 client_frame(Opcode::kContinuation, "x"),
             kCloseBadPayload);
}

TEST(WebSocket, WS_07_TooLargeAMessageIsRefusedByItsHead) {
  const std::string large = client_frame(Opcode::kText, std::string(1001, 'x'));
  expect_bad(large.substr(0, 8), kCloseTooBig);
  expect_bad(client_frame(Opcode::kText, std::string(900, 'x'), {.last = false}) +
                 client_frame(Opcode::kContinuation, std::string(101, 'x')).substr(0, 6),
             kCloseTooBig);
}

TEST(WebSocket, WS_08_PiecesAreInOrderAndNotTooMany) {
  expect_bad(client_frame(Opcode::kContinuation, "x"), kCloseProtocolError);
  expect_bad(client_frame(Opcode::kText, "x", {.last = false}) + client_frame(Opcode::kText, "x"),
             kCloseProtocolError);
  std::string empties = client_frame(Opcode::kText, "", {.last = false});
  const std::string empty = client_frame(Opcode::kContinuation, "", {.last = false});
  for (int i = 0; i < 5000; ++i) empties += empty;
  expect_bad(empties, kClosePolicy);
}

TEST(WebSocket, WS_09_BadGoodbyesAreRefused) {
  for (const int code : {0, 999, 1004, 1005, 1006, 1015, 2999, 5000, 65535}) {
    std::string payload;
    payload += static_cast<char>(code >> 8);
    payload += static_cast<char>(code & 0xFF);
    expect_bad(client_frame(Opcode::kClose, payload), kCloseProtocolError);
  }
  expect_bad(client_frame(Opcode::kClose, "x"), kCloseProtocolError);
  expect_bad(client_frame(Opcode::kClose, "\x03\xE8\xFF"), kCloseBadPayload);
}

TEST(WebSocket, PiecesOfAnySizeReadTheSame) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int round = 0; round < 300; ++round) {
    std::string bytes;
    std::vector<std::string> sent;
    for (uint64_t i = random() % 6; i > 0; --i) {
      const std::string text(random() % 400, static_cast<char>('a' + random() % 26));
      const size_t cut = random() % (text.size() + 1);
      bytes += client_frame(Opcode::kText, text.substr(0, cut), {.last = false});
      if (random() % 2 == 0) bytes += client_frame(Opcode::kPing, "");
      bytes += client_frame(Opcode::kContinuation, text.substr(cut));
      sent.push_back(text);
    }
    WebSocketReader reader({});
    std::vector<std::string> got;
    for (size_t at = 0; at < bytes.size();) {
      const size_t count = std::min<size_t>(1 + random() % 50, bytes.size() - at);
      reader.append(std::string_view(bytes).substr(at, count));
      at += count;
      for (Event event = reader.advance(); event != Event::kNone; event = reader.advance()) {
        if (event == Event::kText) got.push_back(reader.payload());
      }
    }
    ASSERT_EQ(got, sent);
  }
}

// A server that says everything back; "bye" ends it, "much" answers ten megabytes.
class EchoServer {
 public:
  explicit EchoServer(HttpServer::Options options) {
    options.port = 0;
    server_ = std::make_unique<HttpServer>(
        options,
        [this](HttpRequest request, std::shared_ptr<Exchange> exchange) {
          if (const auto reject = check_websocket_request(request)) {
            return exchange->send(error_response(*reject));
          }
          exchange->on_closed([this, exchange] { ++closed; });
          const std::weak_ptr<Exchange> weak = exchange;
          exchange->accept_websocket(
              {},
              {.message_bytes_max = 1 << 20,
               .on_message =
                   [weak](std::string message) {
                     const auto to = weak.lock();
                     if (message == "ping me") return to->ping();
                     if (message == "much") return to->write(std::string(10 << 20, 'm'));
                     to->write("you said " + message);
                     if (message == "bye") to->finish();
                   },
               .on_drain = [weak] { weak.lock()->finish_websocket(kCloseGoingAway, "drain"); }});
        },
        log_);
    EXPECT_TRUE(server_->start().ok());
  }
  ~EchoServer() { server_->stop(std::chrono::milliseconds(2000)); }

  HttpServer& server() { return *server_; }
  std::atomic<int> closed{0};

 private:
  const base::SystemClock clock_{};
  base::Log log_{clock_, {.level = base::LogLevel::kNone}};
  std::unique_ptr<HttpServer> server_;
};

TEST(WebSocketServer, AnswersMessagesAndPings) {
  EchoServer echo({});
  TestWebSocket client(echo.server().port(), "/");
  ASSERT_TRUE(client.open());
  client.text("one");
  EXPECT_EQ(client.read().payload, "you said one");
  client.send(Opcode::kPing, "still there?");
  const TestWebSocket::Frame pong = client.read();
  EXPECT_EQ(pong.opcode, Opcode::kPong);
  EXPECT_EQ(pong.payload, "still there?");
  client.text("bye");
  EXPECT_EQ(client.read().payload, "you said bye");
  EXPECT_EQ(client.read().close_code(), 1000);
  EXPECT_EQ(echo.closed, 0) << "we ended it, not the client";
}

TEST(WebSocketServer, AClientThatSaysGoodbyeOrGoesIsNoticed) {
  EchoServer echo({});
  {
    TestWebSocket client(echo.server().port(), "/");
    ASSERT_TRUE(client.open());
    client.send(Opcode::kClose, "\x03\xE9");
    EXPECT_EQ(client.read().close_code(), 1001);
    EXPECT_EQ(echo.closed, 1);
    TestWebSocket gone(echo.server().port(), "/");
    ASSERT_TRUE(gone.open());
  }
  for (int i = 0; i < 500 && echo.closed < 2; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(echo.closed, 2);
}

TEST(WebSocketServer, BadFramesEndItWithTheirCode) {
  EchoServer echo({});
  TestWebSocket client(echo.server().port(), "/");
  ASSERT_TRUE(client.open());
  client.raw(std::string("\x81\x01x", 3));
  EXPECT_EQ(client.read().close_code(), 1002);
  EXPECT_EQ(echo.closed, 1);
}

TEST(WebSocketServer, WS_12_APingFloodGetsFewPongs) {
  EchoServer echo({});
  TestWebSocket client(echo.server().port(), "/");
  ASSERT_TRUE(client.open());
  std::string flood;
  for (int i = 0; i < 10'000; ++i) flood += client_frame(Opcode::kPing, "");
  client.raw(flood);
  client.text("after");
  int pongs = 0;
  for (;;) {
    const TestWebSocket::Frame frame = client.read();
    if (frame.opcode != Opcode::kPong) {
      EXPECT_EQ(frame.payload, "you said after");
      break;
    }
    ++pongs;
  }
  EXPECT_GE(pongs, 1);
  EXPECT_LT(pongs, 10'000);
}

TEST(WebSocketServer, WS_13_AReaderThatTakesNothingIsCutOff) {
  EchoServer echo({.stall_time_max = std::chrono::milliseconds(200)});
  TestWebSocket client(echo.server().port(), "/");
  ASSERT_TRUE(client.open());
  client.text("much");
  for (int i = 0; i < 500 && echo.closed < 1; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(echo.closed, 1);
}

TEST(WebSocketServer, APingMayBeAskedFor) {
  EchoServer echo({});
  TestWebSocket client(echo.server().port(), "/");
  ASSERT_TRUE(client.open());
  for (int i = 0; i < 2; ++i) {
    client.text("ping me");
    EXPECT_EQ(client.read().opcode, Opcode::kPing);
    client.send(Opcode::kPong, "");
  }
  client.text("one");
  EXPECT_EQ(client.read().payload, "you said one");
}

TEST(WebSocketServer, SilenceIsPingedThenClosed) {
  EchoServer echo({.websocket_ping_time = std::chrono::milliseconds(50)});
  TestWebSocket client(echo.server().port(), "/");
  ASSERT_TRUE(client.open());
  EXPECT_EQ(client.read().opcode, Opcode::kPing);
  client.send(Opcode::kPong, "");
  EXPECT_EQ(client.read().opcode, Opcode::kPing);
  EXPECT_TRUE(client.wait_closed());
}

// A29: who answers pings and never says anything does not stay for good.
TEST(WebSocketServer, A29_OneWithoutMessagesIsClosed) {
  EchoServer echo({.websocket_ping_time = std::chrono::milliseconds(20),
                   .websocket_idle_time_max = std::chrono::milliseconds(200)});
  TestWebSocket client(echo.server().port(), "/");
  ASSERT_TRUE(client.open());
  auto frame = client.read();
  int pings = 0;
  for (; frame.opcode == Opcode::kPing; frame = client.read()) {
    ++pings;
    client.send(Opcode::kPong, "");
  }
  EXPECT_GT(pings, 1);
  EXPECT_EQ(frame.close_code(), 1001);
}

TEST(WebSocketServer, AStoppingServerSaysSo) {
  EchoServer echo({});
  TestWebSocket client(echo.server().port(), "/");
  ASSERT_TRUE(client.open());
  client.text("here");
  EXPECT_EQ(client.read().payload, "you said here");
  std::thread stopping([&] { echo.server().stop(std::chrono::milliseconds(2000)); });
  EXPECT_EQ(client.read().close_code(), 1001);
  stopping.join();
}

}  // namespace
}  // namespace pelton::net
