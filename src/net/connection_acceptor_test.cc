#include "net/connection_acceptor.h"

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "net/descriptor_share.h"
#include "net/test_socket.h"

namespace pelton::net {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using Claim = ConnectionAcceptor::Claim;

constexpr milliseconds kLimit{1600};

bool eventually(const std::function<bool()>& holds) {
  for (int i = 0; i < 5'000; ++i) {
    if (holds()) return true;
    std::this_thread::sleep_for(milliseconds(2));
  }
  return false;
}

// The port that a client's own socket has, as the acceptor knows it.
std::string name_of(const TestSocket& socket) {
  sockaddr_in address{};
  socklen_t bytes = sizeof(address);
  ::getsockname(socket.descriptor(), reinterpret_cast<sockaddr*>(&address), &bytes);
  return "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
}

// The library that serves the connections: takes them, writes as much as it may, closes those that
// have ended when it looks at them.
class ForeignServer {
 public:
  explicit ForeignServer(const ConnectionAcceptor::Options& options)
      : log_(clock_, {.level = base::LogLevel::kNone}), acceptor_(options, log_) {
    EXPECT_TRUE(acceptor_.listen().ok());
    const auto started = acceptor_.start([this](int socket) {
      const std::lock_guard lock(mutex_);
      sockets_.push_back(socket);
    });
    EXPECT_TRUE(started.ok());
    tidy_ = std::thread([this] {
      while (!over_) {
        close_ended();
        std::this_thread::sleep_for(milliseconds(1));
      }
    });
  }
  ~ForeignServer() {
    over_ = true;
    tidy_.join();
    acceptor_.stop();
    for (const int socket : sockets_) ::close(socket);
  }
  ConnectionAcceptor& acceptor() { return acceptor_; }
  int port() const { return acceptor_.port(); }
  // The first one that is there.
  int socket() {
    EXPECT_TRUE(eventually([&] { return open() > 0; }));
    const std::lock_guard lock(mutex_);
    return sockets_.front();
  }
  size_t open() {
    const std::lock_guard lock(mutex_);
    return sockets_.size();
  }
  // So much that the kernel takes no more.
  void fill() {
    const std::string block(1 << 16, 'z');
    const int to = socket();
    while (::send(to, block.data(), block.size(), MSG_NOSIGNAL) > 0) {
    }
  }
  void say(std::string_view words) {
    EXPECT_EQ(::send(socket(), words.data(), words.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(words.size()));
  }

 private:
  void close_ended() {
    const std::lock_guard lock(mutex_);
    std::erase_if(sockets_, [](int socket) {
      pollfd state{socket, POLLRDHUP, 0};
      const bool ended =
          ::poll(&state, 1, 0) > 0 && (state.revents & (POLLHUP | POLLERR | POLLRDHUP)) != 0;
      if (ended) ::close(socket);
      return ended;
    });
  }

  const base::SystemClock clock_{};
  base::Log log_;
  ConnectionAcceptor acceptor_;
  std::mutex mutex_;
  std::vector<int> sockets_;
  std::atomic<bool> over_{false};
  std::thread tidy_;
};

TEST(ConnectionAcceptor, E2_NoMoreThanSoMany) {
  ForeignServer server({.connections_max = 3});
  std::vector<std::unique_ptr<TestSocket>> inside;
  for (int i = 0; i < 3; ++i) {
    inside.push_back(std::make_unique<TestSocket>(server.port()));
    ASSERT_TRUE(eventually([&] { return server.open() == inside.size(); }));
    server.acceptor().claim(name_of(*inside.back()), Claim::kCaller);
  }
  TestSocket fourth(server.port());
  EXPECT_TRUE(fourth.wait_closed());
  EXPECT_EQ(server.acceptor().counts()->refused.load(), 1);
  EXPECT_EQ(server.acceptor().connection_count(), 3);
  inside.front()->close();
  ASSERT_TRUE(eventually([&] { return server.open() == 2; }));
  TestSocket fifth(server.port());
  EXPECT_TRUE(eventually([&] { return server.open() == 3; })) << "the place is free again";
  EXPECT_EQ(server.acceptor().counts()->refused.load(), 1);
}

TEST(ConnectionAcceptor, E2_WhoAsksForNothingIsClosed) {
  ForeignServer server({.claim_time_max = milliseconds(400)});
  TestSocket silent(server.port());
  TestSocket caller(server.port());
  TestSocket anybody(server.port());
  ASSERT_TRUE(eventually([&] { return server.open() == 3; }));
  server.acceptor().claim(name_of(caller), Claim::kCaller);
  server.acceptor().claim(name_of(anybody), Claim::kAnybody);
  EXPECT_TRUE(silent.wait_closed());
  std::this_thread::sleep_for(milliseconds(800));
  EXPECT_EQ(server.open(), 2u);
  EXPECT_EQ(server.acceptor().counts()->unclaimed_closed.load(), 1);
}

// A29: a call that never comes whole (its head alone, or a byte now and then) holds no place for
// good, though its connection's first one did; while one is answered, the connection stays.
TEST(ConnectionAcceptor, A29_ACallersConnectionWithoutAWholeCallIsClosed) {
  ForeignServer server({.idle_time_max = milliseconds(200)});
  TestSocket idle(server.port());
  TestSocket busy(server.port());
  ASSERT_TRUE(eventually([&] { return server.open() == 2; }));
  const uint64_t first = server.acceptor().begin_call(name_of(idle));
  const uint64_t running = server.acceptor().begin_call(name_of(busy));
  EXPECT_NE(first, running);
  server.acceptor().end_call(name_of(idle), first);
  EXPECT_TRUE(idle.wait_closed());
  ASSERT_TRUE(eventually([&] { return server.open() == 1; }));
  server.acceptor().end_call(name_of(busy), first);  // another's, that had this port before
  EXPECT_FALSE(busy.wait_closed(600));
  server.acceptor().end_call(name_of(busy), running);
  EXPECT_TRUE(busy.wait_closed());
}

// Whoever came without asking for anything does not keep others out, however many they are.
TEST(ConnectionAcceptor, E2_TheLeastClaimMakesRoom) {
  ForeignServer server({.connections_max = 3, .patience = milliseconds(50)});
  TestSocket anybody(server.port());
  TestSocket caller(server.port());
  ASSERT_TRUE(eventually([&] { return server.open() == 2; }));
  server.acceptor().claim(name_of(caller), Claim::kCaller);
  server.acceptor().claim(name_of(anybody), Claim::kAnybody);
  TestSocket silent(server.port());
  ASSERT_TRUE(eventually([&] { return server.open() == 3; }));
  std::this_thread::sleep_for(milliseconds(100));

  TestSocket next(server.port());
  EXPECT_TRUE(silent.wait_closed());
  ASSERT_TRUE(eventually([&] { return server.open() == 3; }));
  server.acceptor().claim(name_of(next), Claim::kCaller);
  TestSocket another(server.port());
  EXPECT_TRUE(anybody.wait_closed());
  ASSERT_TRUE(eventually([&] { return server.open() == 3; }));
  server.acceptor().claim(name_of(another), Claim::kCaller);
  TestSocket one_too_many(server.port());
  EXPECT_TRUE(one_too_many.wait_closed());
  EXPECT_EQ(server.open(), 3u);
}

TEST(ConnectionAcceptor, E2_AcceptsNoMoreWhenToldSo) {
  ForeignServer server({});
  TestSocket inside(server.port());
  ASSERT_TRUE(eventually([&] { return server.open() == 1; }));
  const int port = server.port();
  server.acceptor().stop_accepting();
  EXPECT_TRUE(eventually([&] { return !TestSocket(port).connected(); }));
  EXPECT_EQ(server.open(), 1u);
}

TEST(ConnectionAcceptor, APortInUse) {
  ForeignServer server({});
  const base::SystemClock clock;
  base::Log log(clock, {.level = base::LogLevel::kNone});
  ConnectionAcceptor second({.port = server.port()}, log);
  EXPECT_EQ(second.listen().error().code, ErrorCode::kAddressInUse);
  ConnectionAcceptor nowhere({.address = "example.org"}, log);
  EXPECT_EQ(nowhere.listen().error().code, ErrorCode::kInvalidArgument);
}

TEST(ConnectionAcceptor, WhoTakesNothingIsReset) {
  ForeignServer server({.stall_time_max = kLimit, .lost_time_max = kLimit});
  TestSocket client(server.port(), 4096);
  server.fill();
  const auto begun = steady_clock::now();
  EXPECT_TRUE(eventually([&] { return server.open() == 0; }));
  EXPECT_GE(steady_clock::now() - begun, kLimit * 3 / 4);
  EXPECT_TRUE(client.wait_closed()) << "and is told";
}

TEST(ConnectionAcceptor, WhoReadsSlowlyIsLeftAlone) {
  ForeignServer server({.stall_time_max = kLimit, .lost_time_max = kLimit});
  TestSocket client(server.port(), 4096);
  server.fill();
  const auto begun = steady_clock::now();
  std::string bytes(512, '\0');
  while (steady_clock::now() - begun < kLimit * 3) {
    ASSERT_GT(::recv(client.descriptor(), bytes.data(), bytes.size(), 0), 0);
    server.fill();  // there is always more
    std::this_thread::sleep_for(milliseconds(20));
  }
  EXPECT_EQ(server.open(), 1u);
}

TEST(ConnectionAcceptor, WhoHasTakenAllIsLeftAlone) {
  ForeignServer server({.stall_time_max = kLimit, .lost_time_max = kLimit});
  TestSocket idle(server.port());
  server.say("hello");
  EXPECT_EQ(idle.read_until("hello"), "hello");
  std::this_thread::sleep_for(kLimit * 2);
  EXPECT_EQ(server.open(), 1u);
}

// With words on their way, and without: then the kernel asks.
TEST(ConnectionAcceptor, FT_06_AVanishedClientIsNoticed) {
  for (const bool writing : {true, false}) {
    ForeignServer server({.stall_time_max = kLimit, .lost_time_max = milliseconds(2000)});
    TestSocket client(server.port());
    ASSERT_TRUE(eventually([&] { return server.open() == 1; }));
    std::this_thread::sleep_for(kLimit / 4);  // it has been seen
    sock_filter drop_all = BPF_STMT(BPF_RET | BPF_K, 0);
    const sock_fprog program{1, &drop_all};
    ASSERT_EQ(
        ::setsockopt(client.descriptor(), SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)),
        0);
    if (writing) server.say("into the void");
    EXPECT_TRUE(eventually([&] { return server.open() == 0; })) << "writing " << writing;
  }
}

TEST(DescriptorShare, E2_LeavesWhatIsSparedAndPromised) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit limit{std::min<rlim_t>(1000, before.rlim_max), before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  const int all = fitting_connections({.wanted = 1'000'000});
  EXPECT_LT(all, 1000);
  EXPECT_EQ(fitting_connections({.wanted = 10, .spared = 320}), 10);
  EXPECT_EQ(fitting_connections({.wanted = 10'000, .spared = 320}), all - 320);
  EXPECT_EQ(fitting_connections({.wanted = 10'000, .promised = 200, .spared = 320}), all - 520);
  // Of few, half.
  EXPECT_EQ(fitting_connections({.wanted = 10'000, .promised = all - 20, .spared = 320}), 10);
  EXPECT_EQ(fitting_connections({.wanted = 10'000, .promised = 2'000, .spared = 320}), 1);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
}

}  // namespace
}  // namespace pelton::net
