#include "cluster/vllm_subscriber.h"

#include <mutex>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <zmq.h>

#include "cluster/vllm_packing.h"

namespace pelton::cluster {
namespace {

using Place = EventSequence::Place;

TEST(EventSequence, KnowsGapsRepetitionsAndRestarts) {
  EventSequence sequence;
  EXPECT_EQ(sequence.place_of(0, ""), Place::kNext);
  EXPECT_EQ(sequence.place_of(3, ""), Place::kGap) << "it began before we listened";
  sequence.note(9, "");
  EXPECT_EQ(sequence.place_of(10, ""), Place::kNext);
  EXPECT_EQ(sequence.place_of(12, ""), Place::kGap);
  EXPECT_EQ(sequence.place_of(9, ""), Place::kRestart) << "it publishes in order";
  EXPECT_EQ(sequence.place_of(0, ""), Place::kRestart);
  EXPECT_EQ(sequence.place_of(10, "another start"), Place::kRestart);
  sequence.note(1000, "");
  EXPECT_EQ(sequence.place_of(5, ""), Place::kRestart);
  sequence.note(9, "this start");
  EXPECT_EQ(sequence.place_of(8, "this start"), Place::kOld);
  EXPECT_EQ(sequence.place_of(0, "this start"), Place::kRestart);
}

std::string number(int64_t value) {
  std::string bytes;
  for (int shift = 56; shift >= 0; shift -= 8) {
    bytes += static_cast<char>(static_cast<uint64_t>(value) >> shift & 255);
  }
  return bytes;
}

// A batch of one block, by which it is known again.
std::string batch(int64_t block) {
  return Packer()
      .array(2)
      .real(1)
      .array(1)
      .array(5)
      .text("BlockStored")
      .array(1)
      .number(block)
      .nil()
      .tokens({block})
      .number(1)
      .bytes();
}

// What a vLLM worker has: PUB, and ROUTER for what was missed.
class Publisher {
 public:
  Publisher() {
    pub_ = zmq_socket(context_, ZMQ_XPUB);
    router_ = zmq_socket(context_, ZMQ_ROUTER);
    port = bind(pub_);
    replay_port = bind(router_);
  }
  ~Publisher() {
    zmq_close(pub_);
    zmq_close(router_);
    zmq_ctx_term(context_);
  }

  void wait_for_subscriber() {
    char subscription[8];
    EXPECT_EQ(zmq_recv(pub_, subscription, sizeof subscription, 0), 1);
  }
  // Its process ends, and another one is there at the same port.
  void start_again() {
    zmq_close(pub_);
    pub_ = zmq_socket(context_, ZMQ_XPUB);
    const std::string address = fmt::format("tcp://127.0.0.1:{}", port);
    int bound = -1;
    for (int i = 0; i < 2000 && bound != 0; ++i) {
      bound = zmq_bind(pub_, address.c_str());
      if (bound != 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    EXPECT_EQ(bound, 0);
  }
  void say(int64_t at, const std::string& payload) {
    send(pub_, "kv-events", true);
    send(pub_, number(at), true);
    send(pub_, payload, false);
  }
  // One request for what was missed: said are these.
  int64_t answer(const std::vector<std::pair<int64_t, std::string>>& known) {
    const std::string client = receive();
    EXPECT_EQ(receive(), "");
    const std::string from = receive();
    for (const auto& [at, payload] : known) reply(client, at, payload);
    reply(client, -1, "");
    return static_cast<unsigned char>(from.back());
  }

  int port = 0;
  int replay_port = 0;

 private:
  static int bind(void* socket) {
    EXPECT_EQ(zmq_bind(socket, "tcp://127.0.0.1:*"), 0);
    char address[64] = {};
    size_t size = sizeof address;
    EXPECT_EQ(zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, address, &size), 0);
    const std::string text(address);
    return std::stoi(text.substr(text.rfind(':') + 1));
  }
  static void send(void* socket, const std::string& part, bool more) {
    zmq_send(socket, part.data(), part.size(), more ? ZMQ_SNDMORE : 0);
  }
  void reply(const std::string& client, int64_t at, const std::string& payload) {
    send(router_, client, true);
    send(router_, "", true);
    send(router_, number(at), true);
    send(router_, payload, false);
  }
  std::string receive() {
    std::string part(256, '\0');
    const int size = zmq_recv(router_, part.data(), part.size(), 0);
    part.resize(static_cast<size_t>(std::max(size, 0)));
    return part;
  }

  void* const context_ = zmq_ctx_new();
  void* pub_ = nullptr;
  void* router_ = nullptr;
};

class Subscriber : public testing::Test {
 protected:
  void start(bool replays) {
    subscriber_ = std::make_unique<VllmSubscriber>(
        VllmSubscriber::Options{.host = "127.0.0.1",
                                .port = publisher_.port,
                                .replay_port = replays ? publisher_.replay_port : 0,
                                .on_news = [this](const VllmSubscriber::Options::News& news) {
                                  std::lock_guard lock(mutex_);
                                  if (news.reset) heard_ += "anew ";
                                  for (const VllmEvent& event : news.events) {
                                    heard_ += std::to_string(event.hashes.front()) + " ";
                                  }
                                }});
    publisher_.wait_for_subscriber();
    publisher_.say(0, batch(100));
    wait_for("100 ");
    std::lock_guard lock(mutex_);
    heard_.clear();
  }
  std::string heard() {
    std::lock_guard lock(mutex_);
    return heard_;
  }
  std::string wait_for(const std::string& words) {
    for (int i = 0; i < 2000 && heard() != words; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return heard();
  }

  Publisher publisher_;
  std::mutex mutex_;
  std::string heard_;  // guarded by mutex_
  std::unique_ptr<VllmSubscriber> subscriber_;
};

TEST_F(Subscriber, HearsWhatItMissedAgain) {
  start(true);
  publisher_.say(1, batch(1));
  EXPECT_EQ(wait_for("1 "), "1 ");
  publisher_.say(4, batch(4));
  EXPECT_EQ(publisher_.answer({{2, batch(2)}, {3, batch(3)}, {4, batch(4)}}), 2);
  EXPECT_EQ(wait_for("1 2 3 4 "), "1 2 3 4 ");
  publisher_.say(5, batch(5));
  EXPECT_EQ(wait_for("1 2 3 4 5 "), "1 2 3 4 5 ");
  // Part of it is forgotten: what it let go meanwhile nobody knows.
  publisher_.say(9, batch(9));
  EXPECT_EQ(publisher_.answer({{8, batch(8)}, {9, batch(9)}}), 6);
  EXPECT_EQ(wait_for("1 2 3 4 5 anew 8 9 "), "1 2 3 4 5 anew 8 9 ");
}

TEST_F(Subscriber, BeginsAnewWhereNobodySaysItAgain) {
  start(false);
  publisher_.say(1, batch(1));
  publisher_.say(3, batch(3));
  publisher_.say(4, "no batch");
  publisher_.say(5, batch(5));
  publisher_.say(0, batch(7));  // another start
  const std::string words = "1 anew 3 anew 5 anew 7 ";
  EXPECT_EQ(wait_for(words), words);
}

// Numbers of its next start that look like a late batch, or like the next one: what was known is
// void nevertheless.
TEST_F(Subscriber, ForgetsWhatWasSaidBeforeTheConnectionBroke) {
  start(false);
  for (int64_t at = 1; at < 5; ++at) publisher_.say(at, batch(at));
  EXPECT_EQ(wait_for("1 2 3 4 "), "1 2 3 4 ");
  publisher_.start_again();
  EXPECT_EQ(wait_for("1 2 3 4 anew "), "1 2 3 4 anew ") << "nobody has said anything yet";
  publisher_.wait_for_subscriber();
  publisher_.say(5, batch(50));
  EXPECT_EQ(wait_for("1 2 3 4 anew anew 50 "), "1 2 3 4 anew anew 50 ");
  publisher_.say(3, batch(30));
  EXPECT_EQ(wait_for("1 2 3 4 anew anew 50 anew 30 "), "1 2 3 4 anew anew 50 anew 30 ");
}

}  // namespace
}  // namespace pelton::cluster
