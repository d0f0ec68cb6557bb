// Two ends of one channel in one process, over loopback.
#include "kv_transfer/peer_channel.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/random.h"

namespace pelton::kv_transfer {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

constexpr size_t kRecordMax = size_t{1} << 20;

std::string text_of(size_t size, uint64_t seed) {
  std::string text(size, '\0');
  for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>(base::random_bits(seed, i));
  return text;
}

class PeerChannelTest : public testing::Test {
 protected:
  PeerChannelTest() { open({std::string(32, 'k')}); }

  // `keys`: of the side that accepts; the other one has the key of 32 k.
  void open(const std::vector<std::string>& keys) {
    const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in place{};
    place.sin_family = AF_INET;
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof place;
    EXPECT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&place), size), 0);
    EXPECT_EQ(::listen(listener, 1), 0);
    EXPECT_EQ(::getsockname(listener, reinterpret_cast<sockaddr*>(&place), &size), 0);
    std::thread client([&] {
      client_ = *PeerChannel::connect({.host = "127.0.0.1", .port = ntohs(place.sin_port)},
                                      std::string(32, 'k'), until());
    });
    server_ =
        *PeerChannel::accept(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC), keys, until());
    client.join();
    ::close(listener);
    client_->set_record_max(kRecordMax);
    server_->set_record_max(kRecordMax);
  }
  static PeerChannel::Deadline until() { return PeerChannel::Clock::now() + 20s; }

  static std::string_view next(PeerChannel& channel) {
    const auto came = channel.receive(until());
    EXPECT_TRUE(came.ok() && *came) << (came.ok() ? "too late" : came.error().message);
    return came.ok() && *came ? **came : std::string_view();
  }

  std::unique_ptr<PeerChannel> client_;
  std::unique_ptr<PeerChannel> server_;
};

TEST_F(PeerChannelTest, WhatIsSaidComesWholeAndInOrder) {
  const size_t sizes[] = {0, 1, 40'000, 600'000, 3, 600'000, 70'000, 0};
  std::thread client([&] {
    for (const size_t size : sizes) EXPECT_TRUE(client_->send(text_of(size, size), until()).ok());
  });
  for (const size_t size : sizes) EXPECT_EQ(next(*server_), text_of(size, size)) << size;
  client.join();
  EXPECT_TRUE(server_->send("answer", until()).ok());
  EXPECT_EQ(next(*client_), "answer");
  EXPECT_FALSE(server_->is_readable());
}

// Memory that each block takes anew is first touched anew: of a transfer of 512 KiB blocks that was
// most of its time.
TEST_F(PeerChannelTest, BlocksOfOneSizeLieInOneBuffer) {
  constexpr size_t kBlock = size_t{512} << 10;
  const char* composed = nullptr;
  const char* received = nullptr;
  for (uint64_t i = 0; i < 4; ++i) {
    // As in a transfer, with something short before them.
    EXPECT_TRUE(client_->send("have", until()).ok());
    EXPECT_EQ(next(*server_), "have");
    const std::string block = text_of(kBlock, i);
    std::thread client([&] {
      const std::span<char> message = client_->compose(kBlock);
      EXPECT_EQ(std::exchange(composed, message.data()), i == 0 ? nullptr : message.data());
      std::ranges::copy(block, message.begin());
      EXPECT_TRUE(client_->send_composed(until()).ok());
    });
    const std::string_view came = next(*server_);
    client.join();
    EXPECT_EQ(came, block);
    EXPECT_EQ(std::exchange(received, came.data()), i == 0 ? nullptr : came.data());
  }
}

TEST_F(PeerChannelTest, BuffersMayGoAmidWhatHasCome) {
  EXPECT_TRUE(client_->send("one", until()).ok());
  EXPECT_TRUE(client_->send("two", until()).ok());
  EXPECT_EQ(next(*server_), "one");
  server_->release_buffers();
  client_->release_buffers();
  EXPECT_EQ(next(*server_), "two");
  server_->release_buffers();
  EXPECT_TRUE(client_->send("three", until()).ok());
  EXPECT_EQ(next(*server_), "three");
}

TEST_F(PeerChannelTest, TheKeyOfThePeerIsFoundAmongSeveral) {
  open({std::string(32, 'n'), std::string(32, 'k')});
  for (const std::string_view text : {"one", "two"}) {
    EXPECT_TRUE(client_->send(text, until()).ok());
    EXPECT_EQ(next(*server_), text);
    EXPECT_TRUE(server_->send(text, until()).ok());
    EXPECT_EQ(next(*client_), text);
  }
  open({std::string(32, 'n'), std::string(32, 'm')});
  EXPECT_TRUE(client_->send("one", until()).ok());
  const auto came = server_->receive(until());
  ASSERT_FALSE(came.ok());
  EXPECT_EQ(came.error().code, ErrorCode::kInvalidArgument);
}

// KV-03: what is announced is looked at before room is made for it.
TEST_F(PeerChannelTest, Kv03ALongerRecordThanExpectedIsRefused) {
  server_->set_record_max(1000);
  EXPECT_TRUE(client_->send(std::string(1000, 'x'), until()).ok());
  const auto came = server_->receive(until());
  ASSERT_FALSE(came.ok());
  EXPECT_THAT(came.error().message, HasSubstr("a record of 1032 bytes; 32 to 1000 are possible"));
}

}  // namespace
}  // namespace pelton::kv_transfer
