// Notifiers: work that other threads ask for again and again.
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <sys/socket.h>

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

  const base::SystemClock clock_{};
  base::Log log_{clock_, {.level = base::LogLevel::kNone}};
  std::mutex mutex_;
  std::vector<std::shared_ptr<Exchange>> exchanges_;
  HttpServer server_;
};

class Work final : public NotifierTask {
 public:
  explicit Work(std::function<void()> run) : run_(std::move(run)) {}
  void run() override { run_(); }

 private:
  const std::function<void()> run_;
};

constexpr std::string_view kRequest = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

// Four threads notify for every number that they add; the last notification is never lost.
TEST(Notifier, EveryRingIsFollowedByTheWork) {
  for (int round = 0; round < 20; ++round) {
    Held held(2);
    TestSocket socket(held.port());
    socket.send(kRequest);
    const std::shared_ptr<Exchange> exchange = held.take();
    ASSERT_NE(exchange, nullptr);
    std::atomic<int> added{0};
    std::atomic<int> runs{0};
    std::atomic<bool> ready{false};
    bool over = false;  // on the net thread
    const auto work = std::make_shared<Work>([&, &exchange = *exchange] {
      ++runs;
      const int all = added.load();
      // Who added the last one may notify for it after it has been seen.
      if (std::exchange(over, all == 4000)) return;
      exchange.write("seen " + std::to_string(all) + ";");
      if (all == 4000) exchange.finish();
    });
    const std::shared_ptr<Notifier> notifier = exchange->make_notifier(work);
    exchange->post([&, &exchange = *exchange] {
      exchange.start_stream(200, {});
      ready = true;
    });
    while (!ready) std::this_thread::yield();
    std::vector<std::thread> ringers;
    for (int t = 0; t < 4; ++t) {
      ringers.emplace_back([&] {
        for (int i = 0; i < 1000; ++i) {
          ++added;
          notifier->notify();
        }
      });
    }
    const std::string got = socket.read_until("seen 4000;");
    EXPECT_NE(got.find("seen 4000;"), std::string::npos) << got.substr(0, 300);
    for (std::thread& ringer : ringers) ringer.join();
    EXPECT_LE(runs, 4000);
  }
}

// who is late notifies nobody: at a client that left, and at a server that has stopped.
TEST(Notifier, MayBeRungWhenTheClientIsGone) {
  std::shared_ptr<Notifier> notifier;
  std::shared_ptr<Exchange> exchange;
  std::atomic<int> runs{0};
  const auto work = std::make_shared<Work>([&runs] { ++runs; });
  {
    Held held(1);
    TestSocket socket(held.port());
    socket.send(kRequest);
    exchange = held.take();
    ASSERT_NE(exchange, nullptr);
    notifier = exchange->make_notifier(work);
    notifier->notify();
    while (runs < 1) std::this_thread::yield();
    socket.reset();
    notifier->notify();
    while (runs < 2) std::this_thread::yield();
  }
  notifier->notify();
  EXPECT_EQ(runs, 2);
}

// A notifier may outlive what it notifies.
TEST(Notifier, RingsForNobody) {
  Held held(1);
  TestSocket socket(held.port());
  socket.send(kRequest);
  const std::shared_ptr<Exchange> exchange = held.take();
  ASSERT_NE(exchange, nullptr);
  std::atomic<bool> notified{false};
  auto work = std::make_shared<Work>([&notified] { notified = true; });
  const std::shared_ptr<Notifier> notifier = exchange->make_notifier(work);
  std::atomic<bool> over{false};
  // Rung and gone within one turn of the loop.
  exchange->post([&] {
    notifier->notify();
    work.reset();
    exchange->post([&] { exchange->post([&] { over = true; }); });
  });
  while (!over) std::this_thread::yield();
  EXPECT_FALSE(notified);
}

// Work is run in groups before what it has said is written; the first is no group's.
TEST(Notifier, TheFirstIsWrittenBeforeOthersRun) {
  constexpr size_t kCount = 60;
  // What the net thread writes outlives it.
  std::string first_had;
  std::atomic<bool> looked{false};
  std::vector<bool> again(kCount);
  Held held(1);
  std::vector<std::unique_ptr<TestSocket>> sockets;
  std::vector<std::shared_ptr<Exchange>> exchanges;
  std::vector<std::shared_ptr<Work>> works;
  std::vector<std::shared_ptr<Notifier>> notifiers;
  for (size_t i = 0; i < kCount; ++i) {
    sockets.push_back(std::make_unique<TestSocket>(held.port()));
    sockets.back()->send(kRequest);
    exchanges.push_back(held.take());
    ASSERT_NE(exchanges.back(), nullptr);
    works.push_back(std::make_shared<Work>([&, i] {
      if (i == 1) {
        char peeked[4096];
        const ssize_t bytes =
            ::recv(sockets[0]->descriptor(), peeked, sizeof(peeked), MSG_PEEK | MSG_DONTWAIT);
        if (bytes > 0) first_had.assign(peeked, static_cast<size_t>(bytes));
        looked = true;
      }
      exchanges[i]->write("it is " + std::to_string(i) + ";");
      // Twice in one turn, perhaps in one group: it says more before the first has left.
      if (i % 7 == 3 && !again[i]) {
        again[i] = true;
        return notifiers[i]->notify();
      }
      exchanges[i]->finish();
    }));
    notifiers.push_back(exchanges.back()->make_notifier(works.back()));
  }
  exchanges.front()->post([&] {
    for (const std::shared_ptr<Exchange>& exchange : exchanges) exchange->start_stream(200, {});
    for (const std::shared_ptr<Notifier>& notifier : notifiers) notifier->notify();
  });
  while (!looked) std::this_thread::yield();
  for (size_t i = 0; i < kCount; ++i) {
    const std::string said = "it is " + std::to_string(i) + ";";
    const std::string got = sockets[i]->read_until("\r\n0\r\n\r\n");
    const size_t at = got.find(said);
    EXPECT_NE(at, std::string::npos) << got;
    EXPECT_EQ(got.find(said, at + 1) != std::string::npos, i % 7 == 3) << got;
  }
  EXPECT_NE(first_had.find("it is 0;"), std::string::npos) << first_had;
}

}  // namespace
}  // namespace pelton::net
