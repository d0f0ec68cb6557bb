// What the ranks' side of MPI makes of parts, waits and losses, over a table of functions that
// stands in for MPI within one process. (The real one: tests/mpi_test.py.)
#include "parallel/mpi_transport.h"

#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "parallel/exchange_rounds.h"
#include "parallel/mpi_library.h"

namespace pelton::parallel {
namespace {

using testing::HasSubstr;

constexpr size_t kPartBytes = 8192;

struct Message {
  int32_t tag = 0;
  std::vector<std::byte> bytes = {};
  bool is_taken = false;
};

struct Request {
  std::shared_ptr<Message> message = {};  // of a receive: once it has one
  bool is_send = false;
  void* to = nullptr;
  int32_t from = 0;
};

struct World {
  int32_t rank = 0;
  std::map<int32_t, Request> requests = {};
  std::map<int32_t, std::deque<int32_t>> posted = {};  // receives without a message, by rank
};

// One at a time; ranks are numbered as they begin.
struct FakeMpi {
  std::mutex mutex;
  int32_t ranks = 0;
  int32_t numbered = 0;
  std::map<std::pair<int32_t, int32_t>, std::deque<std::shared_ptr<Message>>> under_way = {};
  std::vector<std::unique_ptr<World>> worlds = {};
  bool breaks = false;
  std::atomic<bool> hangs{false};
  std::atomic<int> ended{0};
  std::atomic<int> looked_after{0};
} fake;

World* world_of(void* world) {
  return static_cast<World*>(world);
}

void* begin(int32_t, MpiPlace* place) {
  while (fake.hangs) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const std::lock_guard lock(fake.mutex);
  *place = {.rank = fake.numbered, .ranks = fake.ranks};
  fake.worlds.push_back(std::make_unique<World>(World{.rank = fake.numbered++}));
  return fake.worlds.back().get();
}

// Whoever calls: messages from one rank to another go to its receives in their order.
void match(int32_t from, World& to) {
  auto& posted = to.posted[from];
  auto& messages = fake.under_way[{from, to.rank}];
  while (!posted.empty() && !messages.empty()) {
    Request& next = to.requests[posted.front()];
    next.message = messages.front();
    next.message->is_taken = true;
    std::memcpy(next.to, next.message->bytes.data(), next.message->bytes.size());
    posted.pop_front();
    messages.pop_front();
  }
}

bool receive(void* world, int32_t slot, void* to, int64_t, int32_t from) {
  const std::lock_guard lock(fake.mutex);
  world_of(world)->requests[slot] = {.to = to, .from = from};
  world_of(world)->posted[from].push_back(slot);
  match(from, *world_of(world));
  return !fake.breaks;
}

bool send(void* world, int32_t slot, const void* from, int64_t bytes, int32_t to, int32_t tag) {
  const std::lock_guard lock(fake.mutex);
  const auto* const first = static_cast<const std::byte*>(from);
  auto message = std::make_shared<Message>(Message{.tag = tag, .bytes = {first, first + bytes}});
  fake.under_way[{world_of(world)->rank, to}].push_back(message);
  world_of(world)->requests[slot] = {.message = message, .is_send = true};
  const auto there = static_cast<size_t>(to);
  if (there < fake.worlds.size()) match(world_of(world)->rank, *fake.worlds[there]);
  return !fake.breaks;
}

MpiState test(void* world, int32_t slot, MpiArrival* arrival) {
  const std::lock_guard lock(fake.mutex);
  if (fake.breaks) return MpiState::kFailed;
  World& own = *world_of(world);
  Request& request = own.requests[slot];
  if (request.is_send) return request.message->is_taken ? MpiState::kDone : MpiState::kPending;
  if (request.message == nullptr) return MpiState::kPending;
  *arrival = {.tag = request.message->tag, .bytes = std::ssize(request.message->bytes)};
  return MpiState::kDone;
}

void look_after(void*) {
  ++fake.looked_after;
}

void end(void*) {
  ++fake.ended;
}

const char* failure() {
  return "the network broke";
}

constexpr MpiTable kTable{.version = kMpiAbiVersion,
                          .table_bytes = sizeof(MpiTable),
                          .begin = begin,
                          .receive = receive,
                          .send = send,
                          .test = test,
                          .look_after = look_after,
                          .end = end,
                          .failure = failure};

class MpiTransports : public testing::Test {
 protected:
  // Of so many ranks, all connected.
  void make(int ranks, int64_t patience_ns = 60'000'000'000) {
    transports_.clear();
    reset(ranks);
    for (int rank = 0; rank < ranks; ++rank) {
      transports_.push_back(of(ranks, rank, patience_ns));
      const Result<void> connected = transports_.back()->connect();
      ASSERT_TRUE(connected.ok()) << connected.error().message;
    }
  }

  static void reset(int ranks) {
    fake.ranks = ranks;
    fake.numbered = 0;
    fake.under_way.clear();
    fake.worlds.clear();
    fake.breaks = false;
    fake.ended = fake.looked_after = 0;
  }

  static std::unique_ptr<MpiTransport> of(int ranks, int rank,
                                          int64_t patience_ns = 60'000'000'000) {
    return std::make_unique<MpiTransport>(kTable,
                                          MpiTransport::Options{.ranks = ranks,
                                                                .rank = rank,
                                                                .part_bytes = kPartBytes,
                                                                .spin_ns = 20'000,
                                                                .patience_ns = patience_ns});
  }

  std::vector<std::unique_ptr<MpiTransport>> transports_;
};

TEST_F(MpiTransports, DeliverWhatEachRankHas) {
  for (const int count : {1, 2, 4}) {
    make(count);
    std::atomic<int> wrong = 0;
    std::vector<std::thread> ranks;
    for (const auto& transport : transports_) {
      ranks.emplace_back([&] {
        Exchange exchange(*transport);
        take_part(exchange, 7, 400, wrong);
        take_part_by_rows(exchange, 8, 100, wrong);
      });
    }
    for (std::thread& rank : ranks) rank.join();
    EXPECT_EQ(wrong, 0) << count;
    transports_.clear();
    EXPECT_EQ(fake.ended, count);
  }
}

TEST_F(MpiTransports, WhatBreaksOffNamesTheRankAndWhy) {
  make(2);
  transports_[1]->publish(2);
  transports_[0]->publish(4);
  EXPECT_EQ(transports_[0]->part_of(1, 4), nullptr);
  EXPECT_EQ(transports_[0]->loss(), "rank 1 sent a part of 2 bytes, not 4");
  EXPECT_EQ(transports_[0]->part_of(1, 2), nullptr);  // and it does not wait again
  make(2);
  ASSERT_TRUE(send(fake.worlds[1].get(), 0, "ab", 2, 0, 7));
  transports_[0]->publish(4);
  EXPECT_EQ(transports_[0]->part_of(1, 2), nullptr);
  EXPECT_EQ(transports_[0]->loss(), "rank 1: a part of round 7, 1 is this one");
  make(2);
  fake.breaks = true;
  transports_[0]->publish(4);
  EXPECT_EQ(transports_[0]->part_of(1, 4), nullptr);
  EXPECT_EQ(transports_[0]->loss(), "rank 1: the network broke");
  make(2, 30'000'000);
  transports_[0]->publish(4);
  EXPECT_EQ(transports_[0]->part_of(1, 4), nullptr);
  EXPECT_EQ(transports_[0]->loss(), "rank 1 has not taken part in an exchange in time");
  // A group that has lost a rank has no orderly end.
  fake.ended = 0;
  transports_.erase(transports_.begin());
  EXPECT_EQ(fake.ended, 0);
}

TEST_F(MpiTransports, AnAbortLetsEverybodyGo) {
  make(2);
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    transports_[0]->abort();
  });
  transports_[0]->publish(4);
  EXPECT_EQ(transports_[0]->part_of(1, 4), nullptr);
  other.join();
  EXPECT_EQ(transports_[0]->loss(), "");  // whoever aborts knows why
}

TEST_F(MpiTransports, AreLookedAfterBetweenRounds) {
  make(2);
  transports_[0]->look_after();
  EXPECT_EQ(fake.looked_after, 1);
  transports_[0]->abort();
  transports_[0]->look_after();
  EXPECT_EQ(fake.looked_after, 1);
}

TEST_F(MpiTransports, ABeginThatHangsIsGivenUp) {
  reset(2);
  fake.hangs = true;
  const auto transport = of(2, 0);
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    transport->abort();
  });
  EXPECT_EQ(transport->connect().error().code, ErrorCode::kUnavailable);
  other.join();
  // Its thread goes on, and ends with the test.
  fake.hangs = false;
  const auto has_begun = [] {
    const std::lock_guard lock(fake.mutex);
    return fake.numbered == 1;
  };
  while (!has_begun()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

TEST_F(MpiTransports, ARankThatMpiKnowsByAnotherNumberIsRefused) {
  reset(1);
  const Result<void> connected = of(2, 1)->connect();
  EXPECT_EQ(connected.error().code, ErrorCode::kBadConfig);
  EXPECT_THAT(connected.error().message, HasSubstr("rank 1 of 2 is rank 0 of 1 to MPI"));
}

TEST(MpiLibrary, WhatIsNotThereIsSaid) {
  const auto opened = open_mpi("/nonexistent/libpelton_mpi.so");
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().code, ErrorCode::kNotFound);
  // Which of the two is missing depends on the machine.
  EXPECT_THAT(opened.error().message,
              testing::AnyOf(HasSubstr("apt-get install openmpi-bin"), HasSubstr("no plugin")));
}

}  // namespace
}  // namespace pelton::parallel
