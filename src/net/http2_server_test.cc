// HTTP/2 at the server's port: answers, several at a time; what a hostile peer may not (H2-01 to
// H2-10 of docs/hardening.md); times and bounds; and HTTP/1.1 beside it.
#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/clock.h"
#include "net/http_server.h"
#include "net/test_http2.h"

namespace pelton::net {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using ::testing::HasSubstr;

class Http2Server : public testing::Test {
 protected:
  void SetUp() override {
    options_.port = 0;
    options_.http2 = true;
  }
  void start() {
    server_.emplace(
        options_,
        [this](HttpRequest request, std::shared_ptr<Exchange> exchange) {
          ++requests_;
          if (request.path == "/hold") {
            const std::lock_guard lock(mutex_);
            held_.push_back(std::move(exchange));
            return changed_.notify_all();
          }
          HttpResponse response;
          response.headers.add("X-Of", "line\nbreak ");
          response.body = request.method + " " + request.path + "?" + request.query + " " +
                          std::string(request.headers.get("Host")) + " " +
                          std::string(request.headers.get("Cookie")) + " " +
                          std::string(request.headers.get("X-More")) + " " + request.body;
          exchange->send(std::move(response));
        },
        log_);
    ASSERT_TRUE(server_->start().ok());
  }
  std::shared_ptr<Exchange> take_held() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, milliseconds(5000), [&] { return !held_.empty(); }))
      return nullptr;
    std::shared_ptr<Exchange> exchange = std::move(held_.front());
    held_.pop_front();
    return exchange;
  }
  static void on_net(const std::shared_ptr<Exchange>& exchange, const std::function<void()>& work) {
    std::atomic<bool> done{false};
    exchange->post([&] {
      work();
      done = true;
      done.notify_all();
    });
    done.wait(false);
  }
  static bool soon(const std::function<bool()>& condition, int limit_ms = 5000) {
    const auto end = steady_clock::now() + milliseconds(limit_ms);
    while (!condition() && steady_clock::now() < end) std::this_thread::sleep_for(milliseconds(1));
    return condition();
  }

  base::SystemClock clock_;
  base::Log log_{clock_, {.level = base::LogLevel::kNone}};
  HttpServer::Options options_;
  std::atomic<int> requests_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Exchange>> held_;
  std::optional<HttpServer> server_;
};

TEST_F(Http2Server, AnswersWithHeadersAndBody) {
  start();
  TestHttp2 client(server_->port());
  client.send(http2_post(
      1, "/a%20b?c=d",
      http2_field("cookie", "a=1") + http2_field("x-more", "m") + http2_field("cookie", "b=2")));
  client.send(http2_data(1, "he", false) + http2_data(1, "llo"));
  const TestHttp2::Answer& answer = client.answer(1);
  EXPECT_EQ(answer.body, "POST /a b?c=d a a=1; b=2 m hello");
  EXPECT_EQ(answer.headers.at(":status"), "200");
  EXPECT_EQ(answer.headers.at("x-of"), "line break");
  EXPECT_TRUE(answer.headers.contains("date"));
  EXPECT_FALSE(answer.headers.contains("connection"));
  client.send(http2_frame(NGHTTP2_HEADERS, 5, 3, http2_head("HEAD", "/x")));
  EXPECT_EQ(client.answer(3).body, "");
  EXPECT_EQ(client.of(3).headers.at(":status"), "200");
  EXPECT_EQ(server_->connection_count(), 1);
}

TEST_F(Http2Server, AnswersComeInAnyOrder) {
  start();
  TestHttp2 client(server_->port());
  client.send(http2_get(1, "/hold") + http2_get(3, "/hold") + http2_get(5, "/x"));
  EXPECT_THAT(client.answer(5).body, HasSubstr("GET /x"));
  const std::shared_ptr<Exchange> first = take_held();
  const std::shared_ptr<Exchange> second = take_held();
  on_net(second, [&] { second->send({.body = "second"}); });
  EXPECT_EQ(client.answer(3).body, "second");
  EXPECT_FALSE(client.of(1).has_ended);
  on_net(first, [&] { first->send({.body = "first"}); });
  EXPECT_EQ(client.answer(1).body, "first");
}

TEST_F(Http2Server, StreamsBeyondTheWindowAndSaysWhenItIsDrained) {
  start();
  TestHttp2 client(server_->port());
  client.send(http2_get(1, "/hold"));
  const std::shared_ptr<Exchange> exchange = take_held();
  const std::string part(40'000, 'x');
  std::atomic<int> drained{0};
  on_net(exchange, [&] {
    exchange->start_stream(200, {});
    exchange->on_drained([&] { ++drained; });
    exchange->write(part);
    exchange->write(part);
  });
  client.read_until([&] { return client.of(1).body.size() >= 65'535; });
  EXPECT_EQ(client.of(1).body.size(), 65'535u) << "a client's window at first";
  EXPECT_EQ(drained, 0);
  size_t queued = 0;
  on_net(exchange, [&] { queued = exchange->queued_bytes(); });
  EXPECT_EQ(queued, 80'000u - 65'535u);
  const std::string more = http2_number(1 << 20, 4);
  client.send(http2_frame(NGHTTP2_WINDOW_UPDATE, 0, 0, more) +
              http2_frame(NGHTTP2_WINDOW_UPDATE, 0, 1, more));
  client.read_until([&] { return client.of(1).body.size() == 80'000; });
  EXPECT_TRUE(soon([&] { return drained > 0; }));
  on_net(exchange, [&] { exchange->finish(); });
  EXPECT_TRUE(client.answer(1).has_ended);
  EXPECT_EQ(client.of(1).body, part + part);
}

TEST_F(Http2Server, AResetIsHeardOfAndOthersGoOn) {
  start();
  TestHttp2 client(server_->port());
  client.send(http2_get(1, "/hold") + http2_get(3, "/hold"));
  const std::shared_ptr<Exchange> first = take_held();
  const std::shared_ptr<Exchange> second = take_held();
  std::atomic<int> closed{0};
  on_net(first, [&] { first->on_closed([&] { ++closed; }); });
  client.send(http2_frame(NGHTTP2_RST_STREAM, 0, 1, http2_number(NGHTTP2_CANCEL, 4)));
  EXPECT_TRUE(soon([&] { return closed == 1; }));
  on_net(first, [&] {
    EXPECT_TRUE(first->closed());
    first->send({.body = "nobody reads this"});
  });
  on_net(second, [&] { second->send({.body = "second"}); });
  EXPECT_EQ(client.answer(3).body, "second");
  // All hear of a connection that is gone.
  client.send(http2_get(5, "/hold") + http2_get(7, "/hold"));
  const std::shared_ptr<Exchange> others[] = {take_held(), take_held()};
  for (const std::shared_ptr<Exchange>& other : others) {
    on_net(other, [&] { other->on_closed([&] { ++closed; }); });
  }
  client.socket().close();
  EXPECT_TRUE(soon([&] { return closed == 3; }));
}

TEST_F(Http2Server, WhatIsDroppedIsNoWholeAnswer) {
  start();
  TestHttp2 client(server_->port());
  client.send(http2_get(1, "/hold") + http2_get(3, "/hold"));
  take_held().reset();
  EXPECT_EQ(client.answer(1).headers.at(":status"), "500");
  std::shared_ptr<Exchange> exchange = take_held();
  on_net(exchange, [&] {
    exchange->start_stream(200, {});
    exchange->write("half");
  });
  client.read_until([&] { return client.of(3).body == "half"; });
  exchange.reset();
  EXPECT_EQ(client.answer(3).reset, NGHTTP2_INTERNAL_ERROR);
}

TEST_F(Http2Server, H2_01_RapidResetEndsTheConnection) {
  start();
  TestHttp2 client(server_->port());
  std::string flood;
  for (uint32_t stream = 1; stream < 20'000; stream += 2) {
    flood += http2_get(stream, "/hold") +
             http2_frame(NGHTTP2_RST_STREAM, 0, stream, http2_number(NGHTTP2_CANCEL, 4));
  }
  client.send(flood);
  EXPECT_EQ(client.wait_for_goaway(), NGHTTP2_ENHANCE_YOUR_CALM);
  EXPECT_TRUE(soon([&] { return server_->connection_count() == 0; }));
  EXPECT_LE(requests_, 400);
}

// What a client ends by itself earns nothing, whatever code it gives.
TEST_F(Http2Server, H2_01_ResetsWithoutAnErrorCountToo) {
  start();
  TestHttp2 client(server_->port());
  for (uint32_t stream = 1; stream < 4'000; stream += 2) {
    client.send(http2_get(stream, "/hold") +
                http2_frame(NGHTTP2_RST_STREAM, 0, stream, http2_number(NGHTTP2_NO_ERROR, 4)));
  }
  EXPECT_EQ(client.wait_for_goaway(), NGHTTP2_ENHANCE_YOUR_CALM);
}

TEST_F(Http2Server, AnsweredRequestsEarnResets) {
  start();
  TestHttp2 client(server_->port());
  for (uint32_t stream = 1; stream < 2'000; stream += 4) {
    client.send(http2_get(stream, "/x"));
    ASSERT_TRUE(client.answer(stream).has_ended) << stream;
    client.send(http2_get(stream + 2, "/hold") +
                http2_frame(NGHTTP2_RST_STREAM, 0, stream + 2, http2_number(NGHTTP2_CANCEL, 4)));
  }
  client.send(http2_get(2'001, "/x"));
  EXPECT_TRUE(client.answer(2'001).has_ended);
  EXPECT_EQ(client.goaway(), -1);
}

TEST_F(Http2Server, H2_02_AHeaderWithoutAnEnd) {
  start();
  TestHttp2 client(server_->port());
  client.send(http2_frame(NGHTTP2_HEADERS, 0, 1, http2_head("GET", "/x")));
  for (int i = 0; i < 1000; ++i) {
    client.send(http2_frame(NGHTTP2_CONTINUATION, 0, 1, http2_field("x-a", "b")));
  }
  EXPECT_TRUE(client.socket().wait_closed());
  EXPECT_EQ(requests_, 0);
}

TEST_F(Http2Server, H2_03_HeadersOfManyLinesAndBombs) {
  start();
  TestHttp2 client(server_->port());
  std::string lines;
  for (int i = 0; i < 300; ++i) lines += http2_field("x-a", "b");
  client.send(http2_get(1, "/x", lines));
  EXPECT_EQ(client.answer(1).headers.at(":status"), "431");
  // One field of 4 000 bytes in the table, and then a byte for each time that it is meant.
  std::string bomb = http2_head("GET", "/x");
  bomb += std::string("\x40\x03x-b\x7f", 6) + std::string("\xa1\x1e", 2) + std::string(4000, 'y');
  bomb += std::string(10'000, '\xbe');
  client.send(http2_frame(NGHTTP2_HEADERS, 5, 3, bomb));
  EXPECT_GE(client.answer(3).reset, 0);
  client.send(http2_get(5, "/x"));
  EXPECT_EQ(client.answer(5).headers.at(":status"), "200") << "the connection goes on";
  EXPECT_EQ(requests_, 1);
}

TEST_F(Http2Server, H2_04_FramesForWhichAStreamMustBeResetCountAsResets) {
  start();
  TestHttp2 client(server_->port());
  std::string flood;
  for (uint32_t stream = 1; stream < 4'000; stream += 2) {
    flood += http2_get(stream, "/hold") +
             http2_frame(NGHTTP2_WINDOW_UPDATE, 0, stream, http2_number(0, 4));
  }
  client.send(flood);
  const int code = client.wait_for_goaway();
  EXPECT_TRUE(code == NGHTTP2_ENHANCE_YOUR_CALM || code == NGHTTP2_PROTOCOL_ERROR) << code;
  EXPECT_LE(requests_, 400);
}

class Http2Floods : public Http2Server, public testing::WithParamInterface<std::string> {};

TEST_P(Http2Floods, H2_05_FramesThatBringNothing) {
  start();
  TestHttp2 client(server_->port());
  client.send(http2_post(1, "/x"));
  std::string flood;
  for (int i = 0; i < 400'000; ++i) flood += GetParam();
  client.send(flood);
  EXPECT_TRUE(client.socket().wait_closed());
  EXPECT_EQ(requests_, 0);
}
std::string name_of_flood(const testing::TestParamInfo<std::string>& info) {
  constexpr const char* kNames[] = {"Ping", "Settings", "Priority", "Data", "Unknown"};
  return kNames[info.index];
}
INSTANTIATE_TEST_SUITE_P(Frames, Http2Floods,
                         testing::Values(http2_frame(NGHTTP2_PING, 0, 0, "12345678"),
                                         http2_frame(NGHTTP2_SETTINGS, 0, 0),
                                         http2_frame(NGHTTP2_PRIORITY, 0, 3, std::string(5, 0)),
                                         http2_data(1, "", false), http2_frame(77, 0, 0, "what")),
                         name_of_flood);

TEST_F(Http2Server, H2_06_AWindowThatIsTooLarge) {
  start();
  TestHttp2 client(server_->port());
  client.send(http2_frame(NGHTTP2_WINDOW_UPDATE, 0, 0, http2_number(0x7FFFFFFF, 4)));
  EXPECT_EQ(client.wait_for_goaway(), NGHTTP2_FLOW_CONTROL_ERROR);
}

TEST_F(Http2Server, H2_07_DataOfNoStream) {
  start();
  TestHttp2 client(server_->port());
  client.send(http2_data(7, "lost"));
  const int code = client.wait_for_goaway();
  EXPECT_TRUE(code == NGHTTP2_PROTOCOL_ERROR || code == NGHTTP2_STREAM_CLOSED) << code;
}

TEST_F(Http2Server, H2_08_StreamsWhoseWindowStaysShut) {
  options_.stall_time_max = milliseconds(200);
  start();
  // INITIAL_WINDOW_SIZE 0.
  TestHttp2 client(server_->port(), http2_number(4, 2) + http2_number(0, 4));
  client.send(http2_get(1, "/hold") + http2_get(3, "/x"));
  const std::shared_ptr<Exchange> exchange = take_held();
  std::atomic<bool> closed{false};
  on_net(exchange, [&] {
    exchange->on_closed([&] { closed = true; });
    exchange->start_stream(200, {});
    exchange->write("nobody takes this");
  });
  EXPECT_TRUE(soon([&] { return closed.load(); }));
  EXPECT_GE(client.answer(1).reset, 0);
  EXPECT_GE(client.answer(3).reset, 0) << "one that is answered whole, too";
}

TEST_F(Http2Server, H2_09_HeadersThatAreNone) {
  start();
  const std::string wrong[] = {
      http2_field(":method", "GET") + http2_field(":scheme", "http"),
      http2_head("GET", "/x", http2_field("X-Upper", "a")),
      http2_head("GET", "/x", http2_field("connection", "close")),
      http2_head("GET", "/x", http2_field("transfer-encoding", "chunked")),
      http2_head("GET", "/x", http2_field(":path", "/y")),
      http2_head("GET", "x"),
      http2_head("GET", "/x", http2_field("host", "other")),
      http2_head("GET", "/../x"),
      http2_head("BREW", "/x"),
      http2_field(":method", "GET") + http2_field(":scheme", "http") + http2_field(":path", "/x"),
  };
  TestHttp2 client(server_->port());
  uint32_t stream = 1;
  for (const std::string& head : wrong) {
    client.send(http2_frame(NGHTTP2_HEADERS, 5, stream, head));
    const TestHttp2::Answer& answer = client.answer(stream);
    const auto status = answer.headers.find(":status");
    EXPECT_TRUE(answer.reset == NGHTTP2_PROTOCOL_ERROR ||
                (status != answer.headers.end() && status->second.front() == '4'))
        << stream;
    stream += 2;
  }
  EXPECT_EQ(requests_, 0);
}

TEST_F(Http2Server, H2_10_AnUpgradeIsNotTaken) {
  start();
  TestSocket socket(server_->port());
  socket.send(
      "POST /x HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
      "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\nContent-Length: 2\r\n\r\nhi");
  EXPECT_THAT(socket.read_response(), testing::StartsWith("HTTP/1.1 200"));
}

TEST_F(Http2Server, BodiesHaveBoundsAndTimes) {
  options_.body_bytes_max = 1000;
  options_.body_grace = milliseconds(200);
  options_.body_rate_min = 1;
  options_.body_time_max = milliseconds(300);
  start();
  TestHttp2 client(server_->port());
  client.send(http2_post(1, "/x") + http2_data(1, std::string(1001, 'x'), false));
  EXPECT_EQ(client.answer(1).headers.at(":status"), "413");
  client.send(http2_post(3, "/x") + http2_data(3, "slow", false));
  EXPECT_EQ(client.answer(3).headers.at(":status"), "408");
  client.read_until([&] { return client.of(3).reset >= 0; });
  EXPECT_EQ(client.of(3).reset, NGHTTP2_NO_ERROR) << "the rest need not be sent";
  client.send(http2_post(5, "/x") + http2_data(5, "quick"));
  EXPECT_THAT(client.answer(5).body, HasSubstr("quick"));
}

// What was on its way when a body was refused is nobody's fault.
TEST_F(Http2Server, ARefusedUploadLeavesTheConnection) {
  options_.body_bytes_max = 1000;
  start();
  TestHttp2 client(server_->port());
  client.send(http2_get(1, "/hold") + http2_post(3, "/x"));
  for (int i = 0; i < 16; ++i) client.send(http2_data(3, std::string(16'000, 'x'), false));
  EXPECT_EQ(client.answer(3).headers.at(":status"), "413");
  for (int i = 0; i < 4; ++i) client.send(http2_data(3, std::string(100, 'x'), false));
  client.send(http2_get(5, "/x"));
  EXPECT_EQ(client.answer(5).headers.at(":status"), "200");
  EXPECT_EQ(client.goaway(), -1);
  EXPECT_FALSE(client.of(1).has_ended);
}

TEST_F(Http2Server, ABodyThatIsAnnouncedAsTooLargeIsRefusedAtOnce) {
  options_.body_bytes_max = 1000;
  start();
  TestHttp2 client(server_->port());
  client.send(http2_post(1, "/x", http2_field("content-length", "1001")));
  EXPECT_EQ(client.answer(1).headers.at(":status"), "413");
  client.send(http2_post(3, "/x", http2_field("content-length", "99999999999999999999")));
  client.answer(3);
  EXPECT_TRUE(client.of(3).headers.contains(":status") || client.of(3).reset >= 0)
      << client.goaway();
}

TEST_F(Http2Server, WhoExpectsToGoOnMay) {
  start();
  TestHttp2 client(server_->port());
  client.send(http2_post(1, "/x", http2_field("expect", "100-continue")));
  EXPECT_TRUE(client.read_until([&] { return client.of(1).headers.contains(":status"); }));
  EXPECT_EQ(client.of(1).headers.at(":status"), "100");
  client.send(http2_data(1, "more"));
  EXPECT_THAT(client.answer(1).body, HasSubstr("more"));
}

// Answers that nobody reads are not piled up: further requests wait.
TEST_F(Http2Server, RequestsWaitWhileAnswersAreNotRead) {
  options_.body_bytes_max = 1 << 20;
  start();
  // INITIAL_WINDOW_SIZE 0: each answer echoes 200 KB.
  TestHttp2 client(server_->port(), http2_number(4, 2) + http2_number(0, 4));
  const auto post = [&](uint32_t stream) {
    client.send(http2_post(stream, "/x"));
    for (int i = 0; i < 12; ++i) client.send(http2_data(stream, std::string(16'000, 'x'), false));
    client.send(http2_data(stream, "end"));
  };
  for (uint32_t stream = 1; stream < 40; stream += 2) {
    post(stream);
    client.read_until([&] { return client.of(stream).headers.contains(":status"); }, 100);
  }
  EXPECT_TRUE(soon([&] { return requests_ == 6; })) << requests_;
  const std::string all = http2_number(1 << 30, 4);
  client.send(http2_frame(NGHTTP2_WINDOW_UPDATE, 0, 0, all));
  for (uint32_t stream = 1; stream < 40; stream += 2) {
    client.send(http2_frame(NGHTTP2_WINDOW_UPDATE, 0, stream, all));
  }
  for (uint32_t stream = 1; stream < 40; stream += 2) {
    EXPECT_TRUE(client.answer(stream).has_ended) << stream;
  }
}

TEST_F(Http2Server, BodiesThatWereTooSlowAreNoLongerHeld) {
  options_.bodies_bytes_max = 100'000;
  options_.body_grace = milliseconds(200);
  options_.body_rate_min = 1 << 20;
  start();
  TestHttp2 slow(server_->port());
  slow.send(http2_post(1, "/x"));
  for (int i = 0; i < 8; ++i) slow.send(http2_data(1, std::string(16'000, 'x'), false));
  EXPECT_EQ(slow.answer(1).headers.at(":status"), "408");
  TestHttp2 other(server_->port());
  EXPECT_TRUE(soon([&, stream = 1u]() mutable {
    other.send(http2_post(stream, "/x"));
    for (int i = 0; i < 8; ++i) other.send(http2_data(stream, std::string(16'000, 'x'), i == 7));
    const bool is_taken = other.answer(stream).headers.at(":status") == "200";
    stream += 2;
    return is_taken;
  }));
}

// Each read ends within a header, and each header is whole soon.
TEST_F(Http2Server, HeadersInPiecesAreNoLateOnes) {
  options_.header_time_max = milliseconds(300);
  start();
  TestHttp2 client(server_->port());
  std::string all;
  for (uint32_t stream = 1; stream < 60; stream += 2) {
    all += http2_frame(NGHTTP2_HEADERS, 1, stream, http2_head("GET", "/x"));
    all += http2_frame(NGHTTP2_CONTINUATION, 4, stream, http2_field("x-more", "y"));
  }
  const size_t piece = all.size() / 30;
  for (size_t at = 0; at < all.size(); at += piece) {
    client.send(all.substr(at, piece));
    std::this_thread::sleep_for(milliseconds(30));
  }
  EXPECT_TRUE(client.answer(59).has_ended);
}

// Of an answer of just the window's bytes the end needs no window, and yet cannot be said before.
TEST_F(Http2Server, AnEndBehindAShutWindowIsCutOff) {
  options_.stall_time_max = milliseconds(200);
  start();
  TestHttp2 client(server_->port(), http2_number(4, 2) + http2_number(4, 4));
  client.send(http2_get(1, "/hold"));
  const std::shared_ptr<Exchange> exchange = take_held();
  on_net(exchange, [&] {
    exchange->start_stream(200, {});
    exchange->write("four");
  });
  client.read_until([&] { return client.of(1).body == "four"; });
  on_net(exchange, [&] { exchange->finish(); });
  const TestHttp2::Answer& answer = client.answer(1);
  EXPECT_TRUE(answer.has_ended || answer.reset >= 0);
}

TEST_F(Http2Server, ABodyThatNobodyTakesIsNotWaitedFor) {
  options_.takes_body = [](const HttpRequest& request) { return request.headers.has("x-more"); };
  start();
  TestHttp2 client(server_->port());
  client.send(http2_post(1, "/x"));
  EXPECT_THAT(client.answer(1).body, HasSubstr("POST /x"));
  client.send(http2_data(1, std::string(1000, 'x'), false));
  client.send(http2_post(3, "/x", http2_field("x-more", "1")) + http2_data(3, "taken"));
  EXPECT_THAT(client.answer(3).body, HasSubstr("taken"));
}

TEST_F(Http2Server, LargeBodiesOfAllTogether) {
  options_.bodies_bytes_max = 100'000;
  start();
  TestHttp2 client(server_->port());
  client.send(http2_post(1, "/x") + http2_post(3, "/x"));
  for (int i = 0; i < 8; ++i) {
    client.send(http2_data(1, std::string(16'000, 'x'), false) +
                http2_data(3, std::string(16'000, 'x'), false));
  }
  client.read_until([&] { return client.of(1).has_ended || client.of(3).has_ended; });
  const uint32_t refused = client.of(1).has_ended ? 1 : 3;
  EXPECT_EQ(client.of(refused).headers.at(":status"), "503");
  EXPECT_EQ(client.of(refused).headers.at("retry-after"), "1");
}

TEST_F(Http2Server, AnUnfinishedHeaderAndSilenceEnd) {
  options_.header_time_max = milliseconds(100);
  options_.idle_time_max = milliseconds(300);
  options_.first_byte_time_max = milliseconds(300);
  start();
  TestHttp2 late(server_->port());
  // The settings are exchanged by then: nothing may come between the parts of a header.
  late.send(http2_get(1, "/x"));
  EXPECT_TRUE(late.answer(1).has_ended);
  late.send(http2_frame(NGHTTP2_HEADERS, 0, 3, http2_head("GET", "/x")));
  EXPECT_EQ(late.wait_for_goaway(), NGHTTP2_ENHANCE_YOUR_CALM);
  EXPECT_TRUE(late.socket().wait_closed(3000));
  TestHttp2 idle(server_->port());
  idle.send(http2_get(1, "/x"));
  EXPECT_TRUE(idle.answer(1).has_ended);
  EXPECT_EQ(idle.wait_for_goaway(), NGHTTP2_NO_ERROR);
  EXPECT_TRUE(idle.socket().wait_closed(3000));
  TestHttp2 silent(server_->port());
  EXPECT_EQ(silent.wait_for_goaway(), NGHTTP2_NO_ERROR);
}

TEST_F(Http2Server, AServerThatStopsAnswersWhatRuns) {
  start();
  TestHttp2 client(server_->port());
  client.send(http2_get(1, "/hold"));
  std::shared_ptr<Exchange> exchange = take_held();
  std::thread stopping([&] { server_->stop(milliseconds(5000)); });
  EXPECT_EQ(client.wait_for_goaway(), NGHTTP2_NO_ERROR);
  on_net(exchange, [&] { exchange->send({.body = "last"}); });
  EXPECT_EQ(client.answer(1).body, "last");
  EXPECT_TRUE(client.socket().wait_closed());
  client.socket().close();
  stopping.join();
}

TEST_F(Http2Server, ForeignHostsAreRefused) {
  options_.hosts = AllowedHosts().at("127.0.0.1");
  start();
  TestHttp2 client(server_->port());
  client.send(http2_get(1, "/x"));
  EXPECT_EQ(client.answer(1).headers.at(":status"), "403");
}

TEST_F(Http2Server, UnderApiErrorsAreTexts) {
  options_.body_bytes_max = 1000;
  options_.body_grace = milliseconds(50);
  options_.body_rate_min = 1000;
  start();
  TestHttp2 client(server_->port());
  const auto begins = [](std::string_view text) { return testing::StartsWith(std::string(text)); };
  client.send(http2_post(1, "/api/chat") + http2_data(1, std::string(1001, 'x'), false));
  EXPECT_EQ(client.answer(1).headers.at(":status"), "413");
  EXPECT_THAT(client.answer(1).body, begins(R"({"error":")"));
  client.send(http2_post(3, "/api/chat", http2_field("content-length", "1001")));
  EXPECT_THAT(client.answer(3).body, begins(R"({"error":")"));
  client.send(http2_post(5, "/api/chat") + http2_data(5, "slow", false));
  EXPECT_EQ(client.answer(5).headers.at(":status"), "408");
  EXPECT_THAT(client.answer(5).body, begins(R"({"error":")"));
  client.send(http2_post(7, "/v1/chat", http2_field("content-length", "1001")));
  EXPECT_THAT(client.answer(7).body, begins(R"({"error":{)"));
}

TEST_F(Http2Server, MoreStreamsThanThereMayBe) {
  start();
  TestHttp2 client(server_->port());
  std::string many;
  for (uint32_t stream = 1; stream < 400; stream += 2) many += http2_get(stream, "/hold");
  client.send(many);
  EXPECT_EQ(client.answer(399).reset, NGHTTP2_REFUSED_STREAM);
  EXPECT_TRUE(soon([&] { return requests_ == 128; })) << requests_;
}

TEST_F(Http2Server, ThePrefaceMayComeInPiecesAndHttp1StandsBeside) {
  start();
  TestSocket pieces(server_->port());
  const std::string all = std::string(Http2Session::kPreface) +
                          http2_frame(NGHTTP2_SETTINGS, 0, 0) + http2_get(1, "/x");
  for (const char c : all) pieces.send(std::string(1, c));
  EXPECT_THAT(pieces.read_until("GET /x"), HasSubstr("GET /x"));
  TestSocket plain(server_->port());
  for (const char c : std::string("PUT /x HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")) {
    plain.send(std::string(1, c));
  }
  EXPECT_THAT(plain.read_response(), testing::StartsWith("HTTP/1.1 200"));
  TestSocket neither(server_->port());
  neither.send("PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n");
  EXPECT_THAT(neither.read_all(), testing::StartsWith("HTTP/1.1 505"));
}

TEST_F(Http2Server, IsNotSpokenWhereItIsOff) {
  options_.http2 = false;
  start();
  TestSocket socket(server_->port());
  socket.send(std::string(Http2Session::kPreface) + http2_frame(NGHTTP2_SETTINGS, 0, 0));
  EXPECT_THAT(socket.read_all(), testing::StartsWith("HTTP/1.1 "));
}

}  // namespace
}  // namespace pelton::net
