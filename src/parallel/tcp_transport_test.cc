// Who gets into a group over TCP and who does not, and what a rank says of one that it has lost.
#include "parallel/tcp_transport.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "parallel/tcp_frames.h"

namespace pelton::parallel {
namespace {

using testing::HasSubstr;

constexpr size_t kPartBytes = size_t{4} << 20;  // more than sockets hold

struct Places {
  explicit Places(int ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      const auto listener = TcpTransport::listen();
      EXPECT_TRUE(listener.ok());
      sockets.push_back(listener->first);
      ports.push_back(listener->second);
    }
  }
  ~Places() {
    for (const int socket : sockets) ::close(socket);
  }

  std::unique_ptr<TcpTransport> make(int rank, const std::string& token = "t",
                                     int64_t start_ns = 20'000'000'000) const {
    return std::make_unique<TcpTransport>(
        TcpTransport::Options{.ranks = static_cast<int>(ports.size()),
                              .rank = rank,
                              .part_bytes = kPartBytes,
                              .token = token,
                              .ports = ports,
                              .spin_ns = 0,
                              .start_ns = start_ns});
  }

  std::vector<int> sockets;
  std::vector<int> ports;
};

// A stranger's connection.
int connected(int port) {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  EXPECT_EQ(::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  return socket;
}

// A group's member that a test drives byte by byte.
int joined(const Places& places, int ranks, int rank) {
  const int socket = connected(places.ports[0]);
  std::string nonce(kNonceBytes, '\0');
  EXPECT_EQ(::recv(socket, nonce.data(), nonce.size(), MSG_WAITALL),
            static_cast<ssize_t>(kNonceBytes));
  const std::string hello = write_hello({.ranks = static_cast<uint32_t>(ranks),
                                         .rank = static_cast<uint32_t>(rank),
                                         .part_bytes = kPartBytes,
                                         .nonce = std::string(kNonceBytes, 'n')},
                                        "t", nonce);
  EXPECT_EQ(::send(socket, hello.data(), hello.size(), 0), static_cast<ssize_t>(hello.size()));
  return socket;
}

TEST(TcpTransport, AnotherTokenIsRefusedOnBothSides) {
  const Places places(2);
  const auto leader = places.make(0, "t", 300'000'000);
  const auto other = places.make(1, "u", 2'000'000'000);
  std::thread follower([&] {
    EXPECT_THAT(other->connect(places.sockets[1]).error().message,
                HasSubstr("rank 0 not connected"));
  });
  const Result<void> got = leader->connect(places.sockets[0]);
  follower.join();
  EXPECT_EQ(got.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(got.error().message, HasSubstr("rank 1 not connected"));
  EXPECT_THAT(got.error().message, HasSubstr("a connection was refused: another token"));
}

TEST(TcpTransport, AMissingRankIsNamed) {
  const Places places(3);
  const auto leader = places.make(0, "t", 1'000'000'000);
  int second = -1;
  std::thread other([&] { second = joined(places, 3, 2); });
  const Result<void> got = leader->connect(places.sockets[0]);
  other.join();
  EXPECT_EQ(got.error().message, "rank 1 not connected within 1 s");
  ::close(second);
}

TEST(TcpTransport, StrangersAndLateRanksKeepNobodyOut) {
  const Places places(2);
  const auto leader = places.make(0);
  const auto other = places.make(1);
  const int stranger = connected(places.ports[0]);
  ASSERT_GT(::send(stranger, "GET / HTTP/1.1\r\n\r\n", 18, 0), 0);
  ::shutdown(stranger, SHUT_WR);
  std::thread follower([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    EXPECT_TRUE(other->connect(places.sockets[1]).ok());
  });
  EXPECT_TRUE(leader->connect(places.sockets[0]).ok());
  follower.join();
  ::close(stranger);
}

// Both send more than sockets hold before either reads.
TEST(TcpTransport, LargePartsCross) {
  const Places places(2);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      const auto transport = places.make(rank);
      ASSERT_TRUE(transport->connect(places.sockets[static_cast<size_t>(rank)]).ok());
      for (int round = 0; round < 5; ++round) {
        std::fill_n(transport->own_part(), kPartBytes, std::byte(10 * rank + round));
        transport->publish(kPartBytes);
        const std::byte* const part = transport->part_of(1 - rank, kPartBytes);
        ASSERT_NE(part, nullptr);
        EXPECT_EQ(part[0], std::byte(10 * (1 - rank) + round));
        EXPECT_EQ(part[kPartBytes - 1], std::byte(10 * (1 - rank) + round));
      }
      // The last part has left by now: nobody has to come back for it.
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

// What one rank says of another that sends these bytes and goes.
std::string loss_after(std::string_view bytes) {
  const Places places(2);
  const auto leader = places.make(0);
  int other = -1;
  std::thread follower([&] { other = joined(places, 2, 1); });
  EXPECT_TRUE(leader->connect(places.sockets[0]).ok());
  follower.join();
  ::send(other, bytes.data(), bytes.size(), 0);
  ::shutdown(other, SHUT_WR);
  leader->publish(4);
  EXPECT_EQ(leader->part_of(1, 4), nullptr);
  EXPECT_EQ(leader->part_of(1, 4), nullptr);  // and it does not wait again
  ::close(other);
  return leader->loss();
}

TEST(TcpTransport, WhatBreaksOffNamesTheRankAndWhy) {
  EXPECT_EQ(loss_after(""), "rank 1: it has closed its connection");
  EXPECT_EQ(loss_after({"\1\0\0\0\4\0\0\0ab", 10}), "rank 1: it has closed its connection");
  EXPECT_EQ(loss_after({"\2\0\0\0\4\0\0\0", 8}), "rank 1: a part of round 2, 1 is this one");
  EXPECT_EQ(loss_after({"\1\0\0\0\1\0\x40\0", 8}),
            "rank 1: a part of 4194305 bytes, 4194304 at most");
  EXPECT_EQ(loss_after({"\1\0\0\0\2\0\0\0ab", 10}), "rank 1 sent a part of 2 bytes, not 4");
}

TEST(TcpTransport, AnAbortEndsTheStart) {
  const Places places(2);
  const auto leader = places.make(0);
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    leader->abort();
  });
  EXPECT_FALSE(leader->connect(places.sockets[0]).ok());
  other.join();
}

TEST(TcpFrames, AHelloIsItsWritersOrNone) {
  const std::string nonce(kNonceBytes, 'a');
  const std::string hello =
      write_hello({.ranks = 3, .rank = 2, .part_bytes = 9, .nonce = std::string(kNonceBytes, 'b')},
                  "token", nonce);
  const Result<RankHello> read = read_hello(hello, "token", nonce);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->rank, 2u);
  EXPECT_EQ(read->part_bytes, 9u);
  for (size_t i = 0; i < hello.size(); ++i) {
    std::string changed = hello;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    EXPECT_FALSE(read_hello(changed, "token", nonce).ok()) << i;
  }
  EXPECT_FALSE(read_hello(hello, "token", std::string(kNonceBytes, 'c')).ok());  // sent again
  EXPECT_FALSE(read_hello(hello, "tokens", nonce).ok());
}

}  // namespace
}  // namespace pelton::parallel
