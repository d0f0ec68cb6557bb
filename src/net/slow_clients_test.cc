// Rows of hardening's 3C that report clients which are slow, silent or gone, in numbers. Their
// rules, one connection each, are in http_server_test.cc; full size with PELTON_FULL=1.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/machine.h"
#include "net/http_server.h"
#include "net/test_socket.h"

namespace pelton::net {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::string_view kGet = "GET /x HTTP/1.1\r\nHost: a\r\n\r\n";
constexpr std::string_view kHeld = "GET /held HTTP/1.1\r\nHost: a\r\n\r\n";

bool is_full() {
  const char* full = std::getenv("PELTON_FULL");
  return full != nullptr && std::string_view(full) == "1";
}

class SlowClients : public testing::Test {
 protected:
  static void SetUpTestSuite() { ASSERT_GT(base::raise_descriptor_limit(), 0); }
  static int descriptors() {
    return static_cast<int>(std::min<int64_t>(base::raise_descriptor_limit(), 1 << 20));
  }

  void start(int threads = 2) {
    options_.port = 0;
    options_.threads = threads;
    server_.emplace(
        options_,
        [this](const HttpRequest& request, std::shared_ptr<Exchange> exchange) {
          if (stream_bytes_ > 0) {
            exchange->start_stream(200, {});
            exchange->write(std::string(stream_bytes_, 'z'));
          } else if (!holds_ && request.path != "/held") {
            return exchange->send({.status = 200});
          }
          exchanges_.fetch_add(1);
          exchange->on_closed([this, exchange] { exchanges_.fetch_sub(1); });
        },
        log_);
    ASSERT_TRUE(server_->start().ok());
  }
  std::vector<std::unique_ptr<TestSocket>> open(int count) const {
    std::vector<std::unique_ptr<TestSocket>> sockets;
    for (int i = 0; i < count; ++i) {
      sockets.push_back(std::make_unique<TestSocket>(server_->port()));
      EXPECT_TRUE(sockets.back()->connected()) << i;
    }
    return sockets;
  }
  static bool soon(const std::function<bool()>& condition, int limit_ms = 10'000) {
    const auto end = steady_clock::now() + milliseconds(limit_ms);
    while (!condition()) {
      if (steady_clock::now() > end) return false;
      std::this_thread::sleep_for(milliseconds(1));
    }
    return true;
  }
  // How long a client that behaves waits for its answer, the middle of so many.
  double median_answer_ms(int count) const {
    std::vector<double> took;
    TestSocket socket(server_->port());
    for (int i = 0; i < count; ++i) {
      const auto begun = steady_clock::now();
      socket.send(kGet);
      EXPECT_TRUE(socket.read_response().starts_with("HTTP/1.1 200"));
      const std::chrono::duration<double, std::milli> one = steady_clock::now() - begun;
      took.push_back(one.count());
      std::this_thread::sleep_for(milliseconds(1));
    }
    std::nth_element(took.begin(), took.begin() + count / 2, took.end());
    return took[static_cast<size_t>(count / 2)];
  }

  const base::SystemClock clock_{};
  base::Log log_{clock_, {.level = base::LogLevel::kNone}};
  HttpServer::Options options_;
  bool holds_ = false;
  size_t stream_bytes_ = 0;  // to each, and the stream does not end
  std::atomic<int> exchanges_{0};
  std::optional<HttpServer> server_;
};

// A byte of header, now and then, on hundreds of connections: each is answered 408 at its time,
// counted from its first byte whatever comes meanwhile, and nobody else waits for them.
TEST_F(SlowClients, Ht03SlowHeadersOnHundredsOfConnections) {
  options_.header_time_max = milliseconds(800);
  start();
  const double before = median_answer_ms(50);
  const auto slow = open(is_full() ? 500 : 200);
  std::atomic<bool> stop{false};
  std::thread dripping([&] {
    for (size_t at = 0; !stop && at < kGet.size() - 4; ++at) {
      for (const auto& socket : slow) socket->send(kGet.substr(at, 1));
      std::this_thread::sleep_for(milliseconds(100));
    }
  });
  const double amid = median_answer_ms(200);
  for (const auto& socket : slow) {
    EXPECT_TRUE(socket->read_until("\r\n\r\n", 20'000).starts_with("HTTP/1.1 408"));
  }
  stop = true;
  dripping.join();
  EXPECT_TRUE(soon([&] { return server_->connection_count() <= 1; }));
  // The median, with room for a busy machine: it would be hundreds if one held up another.
  EXPECT_LT(amid, 5 * before + 20);
}

// A byte of body now and then does not put off the end either.
TEST_F(SlowClients, Ht04SlowBodiesEndAtTheBodyTime) {
  options_.body_time_max = milliseconds(600);
  start();
  const auto slow = open(100);
  for (const auto& socket : slow) {
    socket->send("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n");
  }
  const auto begun = steady_clock::now();
  for (int i = 0; i < 5; ++i) {
    for (const auto& socket : slow) socket->send("x");
    std::this_thread::sleep_for(milliseconds(50));
  }
  for (const auto& socket : slow) {
    EXPECT_TRUE(socket->read_until("\r\n\r\n", 20'000).starts_with("HTTP/1.1 408"));
  }
  EXPECT_GT(steady_clock::now() - begun, milliseconds(500));
  EXPECT_TRUE(soon([&] { return server_->connection_count() == 0; }));
}

// Who was told to go on and says nothing gets 408, and so do a hundred at once.
TEST_F(SlowClients, Ht13SilenceAfterContinue) {
  options_.body_time_max = milliseconds(300);
  start();
  const auto silent = open(100);
  for (const auto& socket : silent) {
    socket->send(
        "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n");
  }
  for (const auto& socket : silent) {
    const std::string got = socket->read_until("408", 20'000);
    EXPECT_TRUE(got.starts_with("HTTP/1.1 100 Continue\r\n\r\n")) << got;
    EXPECT_NE(got.find("HTTP/1.1 408"), std::string::npos) << got;
  }
  EXPECT_TRUE(soon([&] { return server_->connection_count() == 0; }));
}

// FT-04: who reads on, slowly, is not cut off, however often its window is shut meanwhile: that is
// what TCP_USER_TIMEOUT would end connections for.
TEST_F(SlowClients, FT_04_WindowsThatAreOftenShutAreNotCutOff) {
  options_.stall_time_max = milliseconds(3000);
  options_.lost_time_max = milliseconds(3000);
  stream_bytes_ = 4 << 20;
  start();
  struct Reader {
    std::unique_ptr<TestSocket> socket;
    size_t bytes;  // at a time
  };
  std::vector<Reader> readers;
  for (const auto& [window, bytes] :
       {std::pair{1024, 64}, {4096, 256}, {8192, 600}, {16'384, 1200}}) {
    for (int i = 0; i < 4; ++i) {
      readers.push_back(
          {std::make_unique<TestSocket>(server_->port(), window), static_cast<size_t>(bytes)});
      readers.back().socket->send(kGet);
    }
  }
  const int count = static_cast<int>(readers.size());
  ASSERT_TRUE(soon([&] { return exchanges_ == count; }));
  const auto begun = steady_clock::now();
  std::string bytes(2048, '\0');
  while (steady_clock::now() - begun < milliseconds(5000) && exchanges_ == count) {
    for (const Reader& reader : readers) {
      static_cast<void>(
          ::recv(reader.socket->descriptor(), bytes.data(), reader.bytes, MSG_DONTWAIT));
    }
    std::this_thread::sleep_for(milliseconds(50));
  }
  EXPECT_EQ(exchanges_, count);
  EXPECT_TRUE(soon([&] { return exchanges_ == 0; })) << "and who no longer reads is";
}

// The beginning of TLS, and other languages, on the plain port: refused at once, never routed.
TEST_F(SlowClients, Ht19OtherLanguagesOnThePlainPort) {
  holds_ = true;
  start();
  const std::string_view hello("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11);
  const std::string_view ssl2("\x80\x2e\x01\x03\x01\x00\x15\x00\x00\x00\x10", 11);
  for (const std::string_view bytes : {hello, ssl2, std::string_view("SSH-2.0-OpenSSH_9.2\r\n"),
                                       std::string_view("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
                                       std::string_view("\0\0\0\0\0\0\r\n", 8)}) {
    TestSocket socket(server_->port());
    socket.send(bytes);
    socket.half_close();
    EXPECT_TRUE(socket.wait_closed(5000));
  }
  EXPECT_EQ(exchanges_, 0);
  EXPECT_TRUE(soon([&] { return server_->connection_count() == 0; }));
}

// A client that goes on sending behind a refusal is heard for 256 KiB, not for as much as it can
// send while the connection lingers; the refusal is there for it to read all the same.
TEST_F(SlowClients, D9_WhatComesBehindARefusalIsReadOnlySoFar) {
  start();
  TestSocket socket(server_->port());
  socket.send("nonsense\r\n\r\n");
  constexpr size_t kMany = size_t{512} << 20;    // what two seconds of reading take and more
  constexpr size_t kBuffers = size_t{64} << 20;  // the kernel's, of both sides
  const std::string bytes(size_t{1} << 20, 'x');
  size_t taken = 0;
  const auto end = steady_clock::now() + milliseconds(1000);
  while (taken < kMany && steady_clock::now() < end) {
    const ssize_t sent =
        ::send(socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      taken += static_cast<size_t>(sent);
    } else {
      std::this_thread::sleep_for(milliseconds(1));
    }
  }
  EXPECT_LT(taken, kBuffers);
  EXPECT_TRUE(socket.read_until("\r\n\r\n").starts_with("HTTP/1.1 400"));
  EXPECT_TRUE(soon([&] { return server_->connection_count() == 0; }));
}

// A29: byte by byte a body has the grace; one that comes at the least rate has longer, up to the
// most.
TEST_F(SlowClients, A29_ABodyBelowTheLeastRateEnds) {
  options_.body_grace = milliseconds(300);
  options_.body_rate_min = 10'000;
  start();
  const std::string_view head = "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 20010\r\n\r\n";
  TestSocket slow(server_->port());
  TestSocket fair(server_->port());
  slow.send(head);
  fair.send(head);
  ASSERT_TRUE(soon([&] { return server_->connection_count() == 2; }));
  std::this_thread::sleep_for(milliseconds(50));  // so that the body comes apart from its head
  fair.send(std::string(20'000, 'x'));
  slow.send("x");
  EXPECT_TRUE(slow.read_all().starts_with("HTTP/1.1 408"));
  fair.send("0123456789");  // beyond the grace, and within its two seconds
  EXPECT_TRUE(fair.read_response().starts_with("HTTP/1.1 200"));
}

TEST_F(SlowClients, A29_TheMostIsTheMost) {
  options_.body_grace = milliseconds(100'000);
  options_.body_time_max = milliseconds(100);
  start();
  TestSocket slow(server_->port());
  slow.send("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab");
  EXPECT_TRUE(slow.read_all().starts_with("HTTP/1.1 408"));
}

// A29: who connects and says nothing has less time than who has been answered before.
TEST_F(SlowClients, A29_SilentConnectionsEndSooner) {
  options_.first_byte_time_max = milliseconds(80);
  options_.idle_time_max = milliseconds(100'000);
  start();
  TestSocket used(server_->port());
  used.send(kGet);
  EXPECT_TRUE(used.read_response().starts_with("HTTP/1.1 200"));
  TestSocket silent(server_->port());
  EXPECT_TRUE(silent.wait_closed());
  used.send(kGet);
  EXPECT_TRUE(used.read_response().starts_with("HTTP/1.1 200"));
}

// A29: whoever fills all places without asking for anything keeps nobody out, and neither does half
// a header; the one that has waited longest goes first, and who is being answered stays.
TEST_F(SlowClients, A29_WhoAsksForNothingMakesRoom) {
  options_.connections_max = 3;
  options_.patience = milliseconds(0);
  start(1);
  TestSocket answered(server_->port());
  answered.send(kHeld);
  ASSERT_TRUE(soon([&] { return exchanges_ == 1; }));
  TestSocket half(server_->port());
  TestSocket silent(server_->port());
  ASSERT_TRUE(soon([&] { return server_->connection_count() == 3; }));
  half.send("GET / HT");  // its last step is later than the silent one's
  std::this_thread::sleep_for(milliseconds(50));
  {
    TestSocket next(server_->port());
    next.send(kGet);
    EXPECT_TRUE(next.read_response().starts_with("HTTP/1.1 200"));
  }
  EXPECT_TRUE(silent.wait_closed());
  EXPECT_FALSE(half.wait_closed(50));
  TestSocket second(server_->port());
  second.send(kHeld);
  ASSERT_TRUE(soon([&] { return exchanges_ == 2; }));
  TestSocket third(server_->port());
  third.send(kHeld);
  ASSERT_TRUE(soon([&] { return exchanges_ == 3; }));
  EXPECT_TRUE(half.wait_closed());
  TestSocket one_too_many(server_->port());
  EXPECT_TRUE(one_too_many.read_all().starts_with("HTTP/1.1 503")) << "all are being answered";
  EXPECT_EQ(exchanges_, 3);
}

// A29: more than are refused at leisure hear of it, too.
TEST_F(SlowClients, A29_RefusalsBeyondThoseWaitedForAreHeard) {
  options_.connections_max = 1;
  start(1);
  TestSocket answered(server_->port());
  answered.send(kHeld);
  ASSERT_TRUE(soon([&] { return exchanges_ == 1; }));
  TestSocket waited_for(server_->port());
  ASSERT_TRUE(soon([&] { return server_->connection_count() == 2; }));
  EXPECT_EQ(server_->connection_refusals_max(), 1);
  for (int i = 0; i < 3; ++i) {
    TestSocket beyond(server_->port());
    const std::string refused = beyond.read_all();
    EXPECT_TRUE(refused.starts_with("HTTP/1.1 503")) << refused;
    EXPECT_NE(refused.find("too_many_connections"), std::string::npos) << refused;
  }
}

// Idle connections end at the idle time, in thousands; meanwhile others come in.
TEST_F(SlowClients, Ht20ThousandsOfIdleConnections) {
  const int count = is_full() ? std::min(9000, descriptors() / 2 - 100) : 500;
  options_.connections_max = count + 100;
  options_.first_byte_time_max = milliseconds(is_full() ? 10'000 : 3000);
  start();
  const auto idle = open(count);
  EXPECT_TRUE(soon([&] { return server_->connection_count() >= count; }))
      << server_->connection_count();
  EXPECT_LT(median_answer_ms(20), 500);
  EXPECT_TRUE(soon([&] { return server_->connection_count() == 0; }, 30'000))
      << server_->connection_count();
  for (const auto& socket : idle) EXPECT_TRUE(socket->wait_closed(1000));
  EXPECT_LT(median_answer_ms(20), 500);
}

// Who has said all and sends a FIN is answered, however many do.
TEST_F(SlowClients, Ht23HalfClosedClientsAreAnswered) {
  start();
  const auto sockets = open(200);
  for (const auto& socket : sockets) {
    socket->send(kGet);
    socket->half_close();
  }
  for (const auto& socket : sockets) {
    EXPECT_TRUE(socket->read_until("\r\n\r\n").starts_with("HTTP/1.1 200"));
  }
  EXPECT_TRUE(soon([&] { return server_->connection_count() == 0; }));
}

// A request and a reset right behind it: whatever the handler holds for it hears of it, once each.
TEST_F(SlowClients, Ht24RequestsThenResets) {
  holds_ = true;
  start();
  for (int i = 0; i < (is_full() ? 10'000 : 1000); ++i) {
    TestSocket socket(server_->port());
    socket.send(kGet);
    EXPECT_TRUE(i % 3 != 0 || soon([&] { return exchanges_ > 0; }));
    socket.reset();
  }
  EXPECT_TRUE(soon([&] { return server_->connection_count() == 0; }))
      << server_->connection_count();
  EXPECT_TRUE(soon([&] { return exchanges_ == 0; })) << exchanges_;
}

}  // namespace
}  // namespace pelton::net
