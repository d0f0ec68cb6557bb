// Bells: work that other threads ask for again and again.
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/clock.h"
#include "base/log.h"
#include "net/http_server.h"
#include "net/test_socket.h"

namespace pelton::net {
namespace {

using std::chrono::milliseconds;

// A server that holds its requests' exchanges.
class Held {
 public:
  explicit Held(int threads) : server_({.port = 0, .threads = threads}, handler(), log_) {
    EXPECT_TRUE(server_.start().ok());
  }
  ~Held() {
    exchanges_.clear();
    server_.stop(milliseconds(0));
  }

  int port() const { return server_.port(); }
  std::shared_ptr<Exchange> take() {
    for (int i = 0; i < 5000; ++i) {
      {
        const std::lock_guard lock(mutex_);
        if (!exchanges_.empty()) {
          std::shared_ptr<Exchange> exchange = std::move(exchanges_.back());
          exchanges_.pop_back();
          return exchange;
        }
      }
      std::this_thread::sleep_for(milliseconds(1));
    }
    return nullptr;
  }

 private:
  HttpServer::Handler handler() {
    return [this](HttpRequest, std::shared_ptr<Exchange> exchange) {
      const std::lock_guard lock(mutex_);
      exchanges_.push_back(std::move(exchange));
    };
  }

  const base::SystemClock clock_;
  base::Log log_{clock_, {.level = base::LogLevel::kNone}};
  std::mutex mutex_;
  std::vector<std::shared_ptr<Exchange>> exchanges_;
  HttpServer server_;
};

constexpr std::string_view kRequest = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

// Four threads ring for every number that they add; the last ring is never lost.
TEST(Bell, EveryRingIsFollowedByTheWork) {
  for (int round = 0; round < 20; ++round) {
    Held held(2);
    TestSocket socket(held.port());
    socket.send(kRequest);
    const std::shared_ptr<Exchange> exchange = held.take();
    ASSERT_NE(exchange, nullptr);
    std::atomic<int> added{0};
    std::atomic<int> runs{0};
    std::shared_ptr<Bell> bell;
    std::atomic<bool> ready{false};
    exchange->post([&, &exchange = *exchange] {
      exchange.start_stream(200, {});
      bell = exchange.make_bell([&] {
        ++runs;
        const int all = added.load();
        exchange.write("seen " + std::to_string(all) + ";");
        if (all == 4000) exchange.finish();
      });
      ready = true;
    });
    while (!ready) std::this_thread::yield();
    std::vector<std::thread> ringers;
    for (int t = 0; t < 4; ++t) {
      ringers.emplace_back([&] {
        for (int i = 0; i < 1000; ++i) {
          ++added;
          bell->ring();
        }
      });
    }
    const std::string got = socket.read_until("seen 4000;");
    EXPECT_NE(got.find("seen 4000;"), std::string::npos) << got.substr(0, 300);
    for (std::thread& ringer : ringers) ringer.join();
    EXPECT_LE(runs, 4000);
  }
}

// Who is late rings for nothing: at a client that left, and at a server that has stopped.
TEST(Bell, MayBeRungWhenTheClientIsGone) {
  std::shared_ptr<Bell> bell;
  std::shared_ptr<Exchange> exchange;
  std::atomic<int> runs{0};
  {
    Held held(1);
    TestSocket socket(held.port());
    socket.send(kRequest);
    exchange = held.take();
    ASSERT_NE(exchange, nullptr);
    bell = exchange->make_bell([&runs] { ++runs; });
    bell->ring();
    while (runs < 1) std::this_thread::yield();
    socket.reset();
    bell->ring();
    while (runs < 2) std::this_thread::yield();
  }
  bell->ring();
  EXPECT_EQ(runs, 2);
}

}  // namespace
}  // namespace pelton::net
