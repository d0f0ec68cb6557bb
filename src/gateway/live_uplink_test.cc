#include "gateway/live_uplink.h"

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/clock.h"
#include "base/log.h"
#include "cluster/envelope.h"
#include "cluster/frame.h"

namespace pelton::gateway {
namespace {

using testing::ElementsAre;
using testing::SizeIs;

constexpr std::chrono::seconds kLong{30};

// A connection whose thread is the test's.
class Connection final : public net::Exchange {
 public:
  void send(net::HttpResponse) override {}
  void start_stream(int, net::HttpHeaders) override {}
  void write(std::string_view) override {}
  void finish() override {}
  size_t queued_bytes() const override { return 0; }
  void on_drained(std::function<void()>) override {}
  void on_closed(std::function<void()>) override {}
  bool closed() const override { return false; }
  void post(std::function<void()> work) override {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
    changed_.notify_all();
  }
  void post_after(std::chrono::milliseconds, std::function<void()> work) override {
    post(std::move(work));
  }
  // Does what is posted until `done`; false: that takes too long.
  bool run_until(const std::function<bool()>& done) {
    const auto end = std::chrono::steady_clock::now() + kLong;
    while (!done()) {
      std::vector<std::function<void()>> work;
      {
        std::unique_lock lock(mutex_);
        changed_.wait_for(lock, std::chrono::milliseconds(5), [&] { return !work_.empty(); });
        work.swap(work_);
      }
      for (const auto& one : work) one();
      if (std::chrono::steady_clock::now() > end) return false;
    }
    return true;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::function<void()>> work_;  // guarded by mutex_
};

struct Request {
  cluster::SaidEnvelope envelope;
  std::vector<std::string> messages;
};

Request parsed(const std::string& body) {
  cluster::FrameReader reader;
  reader.push(body);
  Request request;
  for (auto frame = reader.next(); frame.ok() && *frame; frame = reader.next()) {
    if ((*frame)->type == cluster::FrameType::kSaid) {
      request.envelope = cluster::decode_said_envelope((*frame)->payload).value();
    } else {
      request.messages.emplace_back((*frame)->payload);
    }
  }
  return request;
}

// A worker that answers when the test says so.
class LiveUplinkTest : public testing::Test {
 protected:
  LiveUplinkTest()
      : server_(
            {.port = 0},
            [this](const net::HttpRequest& request,
                   const std::shared_ptr<net::Exchange>& exchange) {
              const std::lock_guard lock(mutex_);
              requests_.push_back(parsed(request.body));
              exchanges_.push_back(exchange);
            },
            log_) {
    EXPECT_TRUE(server_.start().ok());
    uplink_->set_place(
        {.host = "127.0.0.1", .port = server_.port(), .incarnation = "start", .dispatch = 7});
  }

  bool waits_for(size_t requests) {
    return connection_->run_until([&] {
      const std::lock_guard lock(mutex_);
      return requests_.size() == requests;
    });
  }
  void answer(int status) {
    std::shared_ptr<net::Exchange> exchange;
    {
      const std::lock_guard lock(mutex_);
      exchange = exchanges_.back();
    }
    exchange->post([exchange, status] { exchange->send({.status = status}); });
  }
  Request last() {
    const std::lock_guard lock(mutex_);
    return requests_.back();
  }

  base::SystemClock clock_;
  base::Log log_{clock_, {.level = base::LogLevel::kNone}};
  std::mutex mutex_;
  std::vector<Request> requests_;                          // guarded by mutex_, as the next
  std::vector<std::shared_ptr<net::Exchange>> exchanges_;  // of these
  net::HttpServer server_;
  net::HttpClient client_{{}};
  const std::shared_ptr<Connection> connection_ = std::make_shared<Connection>();
  int broken_ = 0;
  const std::shared_ptr<LiveUplink> uplink_ = std::make_shared<LiveUplink>(LiveUplink::Options{
      .client = client_, .gateway = "g", .connection = connection_, .on_broken = [this] {
        ++broken_;
      }});
};

TEST_F(LiveUplinkTest, WhatComesMeanwhileGoesTogether) {
  EXPECT_TRUE(uplink_->say("a"));
  ASSERT_TRUE(waits_for(1));
  EXPECT_EQ(last().envelope.incarnation, "start");
  EXPECT_EQ(last().envelope.gateway, "g");
  EXPECT_EQ(last().envelope.dispatch, 7);
  EXPECT_THAT(last().messages, ElementsAre("a"));
  for (const char* message : {"b", "c", "d"}) EXPECT_TRUE(uplink_->say(message));
  uplink_->drain();
  answer(202);
  ASSERT_TRUE(waits_for(2));
  EXPECT_EQ(last().envelope.first, 1);
  EXPECT_TRUE(last().envelope.drains);
  EXPECT_THAT(last().messages, ElementsAre("b", "c", "d"));
  answer(202);
  EXPECT_TRUE(uplink_->say("e"));
  ASSERT_TRUE(waits_for(3));
  EXPECT_EQ(last().envelope.first, 4);
  EXPECT_FALSE(last().envelope.drains);
}

TEST_F(LiveUplinkTest, WhatWaitsIsBounded) {
  EXPECT_TRUE(uplink_->say("on its way"));
  ASSERT_TRUE(waits_for(1));
  const std::string large(LiveUplink::kWaitingBytesMax, 'x');
  EXPECT_TRUE(uplink_->say(large));
  EXPECT_FALSE(uplink_->say("x"));
  answer(202);
  ASSERT_TRUE(waits_for(2)) << "a message of any size goes";
  EXPECT_THAT(last().messages, ElementsAre(SizeIs(large.size())));
  for (size_t i = 0; i < LiveUplink::kWaitingMessagesMax; ++i) ASSERT_TRUE(uplink_->say("x"));
  EXPECT_FALSE(uplink_->say("x"));
}

class SessionIsOver : public LiveUplinkTest, public testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Statuses, SessionIsOver, testing::Values(404, 410));

TEST_P(SessionIsOver, AndIsNotSpokenTo) {
  EXPECT_TRUE(uplink_->say("a"));
  ASSERT_TRUE(waits_for(1));
  EXPECT_TRUE(uplink_->say("b"));
  answer(GetParam());
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
  ASSERT_TRUE(connection_->run_until([&] { return std::chrono::steady_clock::now() > end; }));
  {
    const std::lock_guard lock(mutex_);
    EXPECT_THAT(requests_, SizeIs(1));
  }
  EXPECT_EQ(broken_, 0) << "it has said how it ended itself";
}

TEST_F(LiveUplinkTest, AWorkerThatRefusesOrIsGoneHearsNothingMore) {
  EXPECT_TRUE(uplink_->say("a"));
  ASSERT_TRUE(waits_for(1));
  answer(409);
  ASSERT_TRUE(connection_->run_until([&] { return broken_ == 1; }));
  EXPECT_TRUE(uplink_->is_broken());

  const auto other = std::make_shared<LiveUplink>(LiveUplink::Options{
      .client = client_, .gateway = "g", .connection = connection_, .on_broken = [this] {
        ++broken_;
      }});
  const int port = server_.port();
  server_.stop(std::chrono::milliseconds(0));
  other->set_place({.host = "127.0.0.1", .port = port, .incarnation = "start", .dispatch = 8});
  EXPECT_TRUE(other->say("a"));
  ASSERT_TRUE(connection_->run_until([&] { return broken_ == 2; }));
}

}  // namespace
}  // namespace pelton::gateway
