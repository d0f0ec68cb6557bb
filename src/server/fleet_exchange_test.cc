// A WebSocket's messages on their way to a gateway and from it.
#include "server/fleet_exchange.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/frame.h"

namespace pelton::server {
namespace {

using testing::ElementsAre;

// What has been written to it, and how it ended.
class Beneath final : public net::Exchange {
 public:
  void send(net::HttpResponse) override { finished = true; }
  void start_stream(int, net::HttpHeaders) override {}
  void write(std::string_view bytes) override { wire += bytes; }
  void finish() override { finished = true; }
  size_t queued_bytes() const override { return queued; }
  void on_drained(std::function<void()>) override {}
  void on_closed(std::function<void()>) override {}
  bool closed() const override { return finished; }
  void post(std::function<void()> work) override { work(); }
  void post_after(std::chrono::milliseconds, std::function<void()> work) override {
    later.push_back(std::move(work));
  }

  // The bytes of the answer so far.
  std::string said() const {
    cluster::FrameReader reader;
    reader.push(wire);
    std::string bytes;
    for (auto frame = reader.next(); frame.ok() && *frame; frame = reader.next()) {
      if ((*frame)->type == cluster::FrameType::kBytes) bytes += (*frame)->payload;
    }
    return bytes;
  }

  std::string wire;
  size_t queued = 0;
  bool finished = false;
  std::vector<std::function<void()>> later;
};

class FleetSocket : public testing::Test {
 protected:
  FleetSocket() {
    exchange_->accept_websocket(
        {}, {.message_bytes_max = 8,
             .on_message = [this](std::string message) { heard_.push_back(std::move(message)); },
             .on_drain = [this] { ++drains_; }});
  }

  const std::shared_ptr<Beneath> beneath_ = std::make_shared<Beneath>();
  const std::shared_ptr<FleetExchange> exchange_ =
      std::make_shared<FleetExchange>(beneath_, std::vector<size_t>());
  std::vector<std::string> heard_;
  int drains_ = 0;
};

TEST_F(FleetSocket, MessagesLeaveAsLinesAndAGoodbyeEndsThem) {
  exchange_->write(R"({"a":1})");
  exchange_->write(R"({"b":2})");
  EXPECT_EQ(beneath_->said(), "{\"a\":1}\n{\"b\":2}\n");
  exchange_->finish_websocket(1001, "the server is shutting down");
  EXPECT_EQ(beneath_->said(), "{\"a\":1}\n{\"b\":2}\n!1001 the server is shutting down\n");
  EXPECT_TRUE(beneath_->finished);
  exchange_->write("more");
  exchange_->finish_websocket(1000, "");
  EXPECT_THAT(beneath_->said(), testing::EndsWith("shutting down\n"));
}

TEST_F(FleetSocket, AnEndWithoutAReasonIsAGoodbyeToo) {
  exchange_->finish();
  EXPECT_EQ(beneath_->said(), "!1000 \n");
}

TEST_F(FleetSocket, WhatComesTwiceIsHeardOnce) {
  exchange_->hear({.first = 0, .messages = {"a", "b"}});
  exchange_->hear({.first = 0, .messages = {"a", "b"}});
  exchange_->hear({.first = 1, .messages = {"b", "c"}});
  EXPECT_THAT(heard_, ElementsAre("a", "b", "c"));
}

TEST_F(FleetSocket, WhatIsMissingEndsIt) {
  const auto refused = exchange_->hear({.first = 1, .messages = {"b"}});
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->status, 410);
  EXPECT_EQ(refused->code, "session_over");
  EXPECT_EQ(refused->message, "the session is over: messages were lost");
  EXPECT_TRUE(heard_.empty());
  EXPECT_EQ(beneath_->said(), "!1011 messages were lost\n");
}

TEST_F(FleetSocket, SoDoWhatIsTooLongAndWhoDoesNotRead) {
  EXPECT_EQ(exchange_->hear({.first = 0, .messages = {"a", "123456789", "c"}})->code,
            "session_over");
  EXPECT_THAT(heard_, ElementsAre("a"));
  EXPECT_EQ(beneath_->said(), "!1009 a message is too long\n");

  const auto unread = std::make_shared<Beneath>();
  const auto other = std::make_shared<FleetExchange>(unread, std::vector<size_t>());
  other->accept_websocket({}, {.on_message = [](const std::string&) {}, .on_drain = {}});
  unread->queued = size_t{5} << 20;
  other->hear({.first = 0, .messages = {"a"}});
  EXPECT_EQ(unread->said(), "!1008 answers are not being read\n");
}

TEST_F(FleetSocket, WhoSpeaksToOneThatIsOverHearsSo) {
  EXPECT_FALSE(exchange_->hear({.first = 0, .messages = {"a"}}).has_value());
  exchange_->finish_websocket(1000, "");
  EXPECT_EQ(exchange_->hear({.first = 1, .messages = {"b"}})->code, "session_over");
  EXPECT_THAT(heard_, ElementsAre("a"));
  const auto none =
      std::make_shared<FleetExchange>(std::make_shared<Beneath>(), std::vector<size_t>());
  EXPECT_EQ(none->hear({.first = 0, .messages = {"a"}})->code, "session_not_found");
}

TEST_F(FleetSocket, ItIsAskedToEndOnce) {
  exchange_->hear({.first = 0, .messages = {"a"}, .drains = true});
  EXPECT_THAT(heard_, ElementsAre("a"));
  EXPECT_EQ(drains_, 1);
  exchange_->drain();
  EXPECT_EQ(drains_, 1);
}

TEST_F(FleetSocket, AWorkerThatLeavesAsksByItself) {
  bool leaves = false;
  exchange_->begin_beats([&] { return leaves; });
  ASSERT_EQ(beneath_->later.size(), 1u);
  beneath_->later[0]();
  EXPECT_EQ(drains_, 0);
  leaves = true;
  ASSERT_EQ(beneath_->later.size(), 2u);
  beneath_->later[1]();
  EXPECT_EQ(drains_, 1);
}

}  // namespace
}  // namespace pelton::server
