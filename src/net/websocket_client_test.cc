#include "net/websocket_client.h"

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "net/http_server.h"
#include "net/json_response.h"
#include "net/test_certificates.h"
#include "net/tls_identity.h"

namespace pelton::net {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using Clock = WebSocketClient::Clock;

Clock::time_point in(int ms) {
  return Clock::now() + milliseconds(ms);
}

// Says everything back; "ping" pings first, "much" is a megabyte, "bye" ends it. /refused is no
// WebSocket.
class Echo {
 public:
  explicit Echo(HttpServer::Options options = {}) {
    options.port = 0;
    server_ = std::make_unique<HttpServer>(
        options,
        [](HttpRequest request, std::shared_ptr<Exchange> exchange) {
          if (request.path == "/refused") {
            return exchange->send(
                {.status = 429, .headers = {}, .body = R"({"error":{"message":"try later"}})"});
          }
          if (const auto reject = check_websocket_request(request)) {
            return exchange->send(error_response(*reject));
          }
          exchange->on_closed([exchange] {});  // which keeps it until then
          const std::weak_ptr<Exchange> weak = exchange;
          const std::string key(request.headers.get("Authorization"));
          exchange->accept_websocket(
              {}, {.message_bytes_max = 1 << 20, .on_message = [weak, key](std::string text) {
                     const auto to = weak.lock();
                     if (text == "ping") to->ping();
                     if (text == "key") return to->write(std::string(key));
                     if (text == "much") return to->write(std::string(1 << 20, 'm'));
                     to->write("you said " + text);
                     if (text == "bye") to->finish_websocket(1013, "enough");
                   }});
        },
        log_);
    EXPECT_TRUE(server_->start().ok());
  }
  ~Echo() { server_->stop(milliseconds(2000)); }

  HttpCall call(const std::string& target = "/") const {
    HttpCall call{.port = server_->port(), .target = target};
    call.head_time_max = call.connect_time_max = milliseconds(20'000);
    return call;
  }

 private:
  const base::SystemClock clock_{};
  base::Log log_{clock_, {.level = base::LogLevel::kNone}};
  std::unique_ptr<HttpServer> server_;
};

std::string heard(WebSocketClient& client) {
  auto text = client.receive(in(20'000));
  if (!text.ok()) return "error: " + text.error().message;
  return text->value_or("nothing");
}

TEST(WebSocketClient, SaysAndHears) {
  Echo echo;
  HttpCall call = echo.call();
  call.headers.add("Authorization", "Bearer k");
  auto client = WebSocketClient::open(call, {});
  ASSERT_TRUE(client.ok()) << client.error().message;
  ASSERT_TRUE((*client)->send("one").ok());
  ASSERT_TRUE((*client)->send("ping").ok());
  EXPECT_EQ(heard(**client), "you said one");
  EXPECT_EQ(heard(**client), "you said ping");
  ASSERT_TRUE((*client)->send("key").ok());
  EXPECT_EQ(heard(**client), "Bearer k");
  ASSERT_TRUE((*client)->send("much").ok());
  EXPECT_EQ(heard(**client), std::string(1 << 20, 'm'));
  const std::string large(900'000, 'x');
  ASSERT_TRUE((*client)->send(large).ok());
  EXPECT_EQ(heard(**client), "you said " + large);
  const auto begun = Clock::now();
  EXPECT_FALSE((*client)->receive(in(50))->has_value());
  EXPECT_GE(Clock::now() - begun, milliseconds(50));
  ASSERT_TRUE((*client)->send("bye").ok());
  EXPECT_EQ(heard(**client), "you said bye");
  EXPECT_THAT(heard(**client), HasSubstr("has closed with 1013: enough"));
}

TEST(WebSocketClient, WhatIsNoWebSocketIsSaid) {
  Echo echo;
  const auto refused = WebSocketClient::open(echo.call("/refused"), {});
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(refused.error().message,
              HasSubstr("answers with 429 instead of a WebSocket: try later"));
  HttpCall nobody = echo.call();
  nobody.port = 1;
  EXPECT_THAT(WebSocketClient::open(nobody, {}).error().message,
              HasSubstr("cannot connect to 127.0.0.1:1"));
  HttpCall tls = echo.call();
  tls.tls = true;
  EXPECT_THAT(WebSocketClient::open(tls, {}).error().message, HasSubstr("no TLS with"));
}

// Whoever comes is let in, and no more.
class Listener {
 public:
  Listener() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(fd_, 4), 0);
    ::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
  }
  ~Listener() { ::close(fd_); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  int port() const { return port_; }
  int accept() const { return ::accept(fd_, nullptr, nullptr); }

 private:
  int fd_;
  int port_ = 0;
};

// By a server that answers the handshake with `answer`, whatever was asked.
std::string opened_by(const std::string& answer, const std::string& instead_of_accept = "") {
  const Listener listener;
  std::thread server([&] {
    const int peer = listener.accept();
    std::string head;
    char byte = 0;
    while (!head.ends_with("\r\n\r\n") && ::recv(peer, &byte, 1, 0) == 1) head += byte;
    const size_t at = head.find("Sec-WebSocket-Key: ") + 19;
    const std::string key = head.substr(at, 24);
    std::string said = answer;
    const size_t accept = said.find("ACCEPT");
    if (accept != std::string::npos) {
      said.replace(accept, 6,
                   instead_of_accept.empty() ? websocket_accept(key) : instead_of_accept);
    }
    EXPECT_GT(::send(peer, said.data(), said.size(), MSG_NOSIGNAL), 0);
    ::close(peer);
  });
  HttpCall call{.port = listener.port()};
  call.head_time_max = milliseconds(20'000);
  std::string outcome;
  if (auto client = WebSocketClient::open(call, {}); client.ok()) {
    outcome = heard(**client);
  } else {
    outcome = client.error().message;
  }
  server.join();
  return outcome;
}

TEST(WebSocketClient, OddServersAreNamed) {
  const std::string switched =
      "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: "
      "Upgrade\r\nsec-websocket-accept: ACCEPT \r\n\r\n";
  EXPECT_EQ(opened_by(switched + std::string("\x81\x02hi", 4)), "hi");
  EXPECT_THAT(opened_by(switched, "other"), HasSubstr("has not understood"));
  EXPECT_THAT(opened_by("HTTP/1.1 101 Switching Protocols\r\n\r\n"),
              HasSubstr("has not understood"));
  EXPECT_THAT(opened_by(switched + std::string("\x81\x82\0\0\0\0hi", 8)),
              HasSubstr("a server's frames must not be masked"));
  EXPECT_THAT(opened_by(switched), HasSubstr("has ended the connection"));
  EXPECT_THAT(opened_by("SSH-2.0-OpenSSH_9.2\r\n\r\n"), HasSubstr("does not answer in HTTP"));
  EXPECT_THAT(opened_by("HTTP/1.1 404 Not Found\r\nContent-Length: 7\r\n\r\nnowhere"),
              HasSubstr("with 404 instead of a WebSocket: nowhere"));
  EXPECT_THAT(opened_by(std::string(100'000, 'x')), HasSubstr("a head without end"));
}

TEST(WebSocketClient, WaitsNoLongerThanItMay) {
  const Listener listener;
  HttpCall call{.port = listener.port()};
  call.head_time_max = milliseconds(100);
  EXPECT_EQ(WebSocketClient::open(call, {}).error().code, ErrorCode::kDeadline);
  call.head_time_max = milliseconds(60'000);
  std::atomic<int> asked = 0;
  EXPECT_EQ(WebSocketClient::open(call, {.stops = [&] { return ++asked > 2; }}).error().code,
            ErrorCode::kCancelled);
}

TEST(WebSocketClient, SpeaksTls) {
  TestCertificates certificates;
  const TestCertificates::Pair pair = certificates.issue_server();
  HttpServer::Options options;
  options.tls =
      TlsIdentity::load({.certificate = pair.certificate, .key = pair.key, .client_ca = {}})
          .value();
  Echo echo(options);
  HttpCall call = echo.call();
  call.tls = true;
  call.trust = TlsTrust::load({.ca = certificates.ca_file(), .certificate = {}, .key = {}}).value();
  auto client = WebSocketClient::open(call, {});
  ASSERT_TRUE(client.ok()) << client.error().message;
  ASSERT_TRUE((*client)->send("much").ok());
  EXPECT_EQ(heard(**client).size(), size_t{1} << 20);
  ASSERT_TRUE((*client)->send("secret").ok());
  EXPECT_EQ(heard(**client), "you said secret");
}

}  // namespace
}  // namespace pelton::net
