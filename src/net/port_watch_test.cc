#include "net/port_watch.h"

#include <cerrno>
#include <chrono>
#include <optional>
#include <string>
#include <thread>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/test_socket.h"

namespace pelton::net {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// The library whose sockets are looked after: accepts, and writes as much as it may.
class ForeignServer {
 public:
  ForeignServer() : listener_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(::listen(listener_, 8), 0);
    socklen_t bytes = sizeof(address);
    EXPECT_EQ(::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &bytes), 0);
    port_ = ntohs(address.sin_port);
  }
  ~ForeignServer() {
    close();
    ::close(listener_);
  }
  int port() const { return port_; }
  void accept() {
    socket_ = ::accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    EXPECT_GE(socket_, 0);
  }
  // So much that the kernel takes no more.
  void fill() const {
    const std::string block(1 << 16, 'z');
    while (::send(socket_, block.data(), block.size(), MSG_NOSIGNAL) > 0) {
    }
  }
  void say(std::string_view words) const {
    EXPECT_EQ(::send(socket_, words.data(), words.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(words.size()));
  }
  // Whether the connection has ended, as whoever polls it sees.
  bool ended(int limit_ms) const {
    pollfd state{socket_, 0, 0};
    return ::poll(&state, 1, limit_ms) > 0 && (state.revents & (POLLHUP | POLLERR)) != 0;
  }
  void close() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }

 private:
  int listener_;
  int socket_ = -1;
  int port_ = 0;
};

constexpr milliseconds kLimit{1600};

TEST(PortWatch, WhoTakesNothingIsReset) {
  ForeignServer server;
  const PortWatch watch({.port = server.port(), .stall_time_max = kLimit, .lost_time_max = kLimit});
  TestSocket client(server.port(), 4096);
  server.accept();
  server.fill();
  const auto begun = steady_clock::now();
  EXPECT_TRUE(server.ended(10'000));
  EXPECT_GE(steady_clock::now() - begun, kLimit * 3 / 4);
  server.close();
  EXPECT_TRUE(client.wait_closed()) << "and is told";
}

TEST(PortWatch, WhoReadsSlowlyIsLeftAlone) {
  ForeignServer server;
  const PortWatch watch({.port = server.port(), .stall_time_max = kLimit, .lost_time_max = kLimit});
  TestSocket client(server.port(), 4096);
  server.accept();
  server.fill();
  const auto begun = steady_clock::now();
  std::string bytes(512, '\0');
  while (steady_clock::now() - begun < kLimit * 3) {
    ASSERT_GT(::recv(client.descriptor(), bytes.data(), bytes.size(), 0), 0);
    server.fill();  // there is always more
    std::this_thread::sleep_for(milliseconds(20));
  }
  EXPECT_FALSE(server.ended(0));
}

// Neither whoever has taken all and waits, nor any other port.
TEST(PortWatch, OthersAreLeftAlone) {
  ForeignServer server, other;
  const PortWatch watch({.port = server.port(), .stall_time_max = kLimit, .lost_time_max = kLimit});
  TestSocket idle(server.port());
  server.accept();
  server.say("hello");
  TestSocket deaf(other.port(), 4096);
  other.accept();
  other.fill();
  EXPECT_EQ(idle.read_until("hello"), "hello");
  std::this_thread::sleep_for(kLimit * 2);
  EXPECT_FALSE(server.ended(0));
  EXPECT_FALSE(other.ended(0));
}

// With words on their way, and without: then the kernel asks.
TEST(PortWatch, FT_06_AVanishedClientIsNoticed) {
  for (const bool writing : {true, false}) {
    ForeignServer server;
    const PortWatch watch(
        {.port = server.port(), .stall_time_max = kLimit, .lost_time_max = milliseconds(2000)});
    TestSocket client(server.port());
    server.accept();
    std::this_thread::sleep_for(kLimit / 4);  // it has been seen
    sock_filter drop_all = BPF_STMT(BPF_RET | BPF_K, 0);
    const sock_fprog program{1, &drop_all};
    ASSERT_EQ(
        ::setsockopt(client.descriptor(), SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)),
        0);
    if (writing) server.say("into the void");
    EXPECT_TRUE(server.ended(10'000)) << "writing " << writing;
  }
}

}  // namespace
}  // namespace pelton::net
