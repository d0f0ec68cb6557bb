// Exchanges over shared memory and TCP against what they should deliver (exchange_rounds.h). Ranks
// are threads here, with a mapping each, as processes have. (Over MPI: tests/mpi_test.py.)
#include "parallel/exchange.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "parallel/exchange_rounds.h"
#include "parallel/shm_transport.h"
#include "parallel/tcp_transport.h"

namespace pelton::parallel {
namespace {

constexpr size_t kPartBytes = 8192;

class Ranks {
 public:
  explicit Ranks(int count, int64_t spin_ns = 20'000, int64_t patience_ns = 60'000'000'000,
                 TransportKind kind = TransportKind::kShm) {
    if (kind == TransportKind::kTcp) {
      connect(count, spin_ns, patience_ns);
    } else {
      map(count, spin_ns, patience_ns);
    }
  }

  void map(int count, int64_t spin_ns, int64_t patience_ns) {
    const Result<int> file = ShmTransport::make_file(count, kPartBytes);
    EXPECT_TRUE(file.ok());
    for (int rank = 0; rank < count; ++rank) {
      transports_.push_back(std::move(ShmTransport::map(*file, {.ranks = count,
                                                                .rank = rank,
                                                                .part_bytes = kPartBytes,
                                                                .spin_ns = spin_ns,
                                                                .patience_ns = patience_ns}))
                                .value());
    }
    ::close(*file);
  }

  // Frames leave in pieces of a few bytes to some thousands, each rank's of another size.
  void connect(int count, int64_t spin_ns, int64_t patience_ns) {
    std::vector<int> ports;
    std::vector<int> listeners;
    for (int rank = 0; rank < count; ++rank) {
      const auto listener = TcpTransport::listen();
      ASSERT_TRUE(listener.ok());
      listeners.push_back(listener->first);
      ports.push_back(listener->second);
    }
    std::vector<TcpTransport*> made;
    for (int rank = 0; rank < count; ++rank) {
      auto transport = std::make_unique<TcpTransport>(
          TcpTransport::Options{.ranks = count,
                                .rank = rank,
                                .part_bytes = kPartBytes,
                                .token = "t",
                                .ports = ports,
                                .spin_ns = spin_ns,
                                .patience_ns = patience_ns,
                                .bytes_at_once = size_t{97} << (3 * rank)});
      made.push_back(transport.get());
      transports_.push_back(std::move(transport));
    }
    run([&](int rank, Transport&) {
      const auto index = static_cast<size_t>(rank);
      EXPECT_TRUE(made[index]->connect(listeners[index]).ok());
    });
    for (const int listener : listeners) ::close(listener);
  }

  Transport& operator[](int rank) { return *transports_[static_cast<size_t>(rank)]; }
  int count() const { return static_cast<int>(transports_.size()); }

  template <typename Body>
  void run(const Body& body) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < count(); ++rank) {
      threads.emplace_back([&, rank] { body(rank, (*this)[rank]); });
    }
    for (std::thread& thread : threads) thread.join();
  }

 private:
  std::vector<std::unique_ptr<Transport>> transports_;
};

TEST(Exchange, DeliversWhatEachRankHasUnderRandomDelays) {
  const char* const given = std::getenv("PELTON_SEED");
  const uint64_t seed =
      given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  SCOPED_TRACE(::testing::Message() << "PELTON_SEED=" << seed);
  const int rounds = std::getenv("PELTON_FULL") != nullptr ? 250'000 : 2'500;
  for (const TransportKind kind : {TransportKind::kShm, TransportKind::kTcp}) {
    for (const int count : {1, 2, 3, 4}) {
      Ranks ranks(count, 20'000, 60'000'000'000, kind);
      std::atomic<int> wrong = 0;
      ranks.run([&](int, Transport& transport) {
        Exchange exchange(transport);
        take_part(exchange, seed, rounds, wrong);
      });
      ranks.run([&](int, Transport& transport) {
        Exchange exchange(transport);
        take_part_by_rows(exchange, seed, rounds / 5, wrong);
      });
      EXPECT_EQ(wrong, 0) << count << " ranks, transport " << static_cast<int>(kind);
    }
  }
}

TEST(Exchange, SleepersAreWoken) {
  Ranks ranks(2, 0);  // nobody spins
  std::atomic<int> wrong = 0;
  ranks.run([&](int, Transport& transport) {
    Exchange exchange(transport);
    take_part(exchange, 5, 500, wrong);
  });
  EXPECT_EQ(wrong, 0);
}

TEST(Exchange, AnAbortLetsEverybodyGo) {
  for (const auto& [spin_ns, kind] : {std::pair(int64_t{0}, TransportKind::kShm),
                                      std::pair(int64_t{10'000'000'000}, TransportKind::kShm),
                                      std::pair(int64_t{0}, TransportKind::kTcp),
                                      std::pair(int64_t{10'000'000'000}, TransportKind::kTcp)}) {
    Ranks ranks(2, spin_ns, 60'000'000'000, kind);
    float values[2] = {1, 2};
    const Share share = Share::make(2, 1, {1, 1});
    Exchange exchange(ranks[0]);
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      ranks[1].abort();
    });
    const Columns columns{
        .part = values, .part_stride = 8, .whole = values, .whole_stride = 8, .column_bytes = 4};
    exchange.all_gather(share, columns, 1);
    other.join();
    EXPECT_TRUE(exchange.failed());
    EXPECT_EQ(values[1], 2);
    exchange.all_gather(share, columns, 1);  // and nobody waits again
    EXPECT_TRUE(exchange.failed());
  }
}

TEST(Exchange, ARankThatNeverPublishesIsNotWaitedForForEver) {
  Ranks tcp(2, 0, 30'000'000, TransportKind::kTcp);
  Ranks ranks(2, 0, 30'000'000);
  EXPECT_EQ(tcp[0].loss(), "");
  tcp[0].publish(0);
  EXPECT_EQ(tcp[0].part_of(1, 0), nullptr);
  EXPECT_EQ(tcp[0].loss(), "rank 1 has not taken part in an exchange in time");
  float values[2] = {1, 2};
  Exchange exchange(ranks[0]);
  exchange.all_gather(
      Share::make(2, 1, {1, 1}),
      {.part = values, .part_stride = 8, .whole = values, .whole_stride = 8, .column_bytes = 4}, 1);
  EXPECT_TRUE(exchange.failed());
}

TEST(ShmTransport, AnotherFilesSizeIsRefused) {
  const Result<int> file = ShmTransport::make_file(2, kPartBytes);
  ASSERT_TRUE(file.ok());
  const auto mapped = ShmTransport::map(*file, {.ranks = 3, .rank = 0, .part_bytes = kPartBytes});
  EXPECT_FALSE(mapped.ok());
  // Nobody can cut it short under the others.
  EXPECT_NE(::ftruncate(*file, 0), 0);
  ::close(*file);
}

}  // namespace
}  // namespace pelton::parallel
