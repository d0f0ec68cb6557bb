// Two workers' exchanges in one process, over loopback: what is fetched is what the source has
// under that name, or nothing, whoever asks, whatever is said and whenever one of them ends.
#include "kv_transfer/block_exchange.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <map>
#include <optional>
#include <thread>

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/random.h"
#include "kv_transfer/test_link.h"

namespace pelton::kv_transfer {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using Outcome = kv::PeerFetched::Outcome;

constexpr size_t kBlockBytes[] = {5000, 700};
constexpr int kBlocks = 12;
const std::vector<std::string> kKeys = {std::string(32, 'k')};

kv::BlockHash name_of(int i) {
  return {.low = base::random_bits(7, static_cast<uint64_t>(i)),
          .high = base::random_bits(8, static_cast<uint64_t>(i))};
}

std::string content(int group, int i) {
  std::string bytes(kBlockBytes[group], '\0');
  for (size_t at = 0; at < bytes.size(); ++at) {
    bytes[at] = static_cast<char>(base::random_bits(static_cast<uint64_t>(100 * group + i), at));
  }
  return bytes;
}

class Memory final : public BlockMemory {
 public:
  void read_block(int group, kv::Tier tier, kv::BlockId block,
                  std::span<char> into) const override {
    if (before_read) before_read();
    EXPECT_EQ(tier, kv::kDevice);
    std::ranges::copy(content(group, block), into.begin());
  }
  void write_block(int group, kv::BlockId block, std::span<const char> bytes) override {
    written[{group, block}] = std::string(bytes.begin(), bytes.end());
  }

  std::map<std::pair<int, kv::BlockId>, std::string> written;  // read once all is over
  std::function<void()> before_read;
};

PeerLayout layout() {
  return {{"block size", "16"}, {"KV type", "bf16"},     {"layers", "4"},
          {"KV groups", "2"},   {"KV heads", "2 of 64"}, {"rotary setting", "10000"},
          {"arithmetic", "a"},  {"configuration", "c"},  {"weights", "w"}};
}

BlockExchange::Options options_of(const PeerLayout& layout = kv_transfer::layout(),
                                  const std::vector<std::string>& keys = kKeys) {
  BlockExchange::Options options{.exchange = {.address = "127.0.0.1", .port = 0, .keys = keys},
                                 .groups = {},
                                 .layout = layout};
  options.groups.push_back({.name = "full", .block_bytes = kBlockBytes[0]});
  options.groups.push_back({.name = "window", .sliding_window = 20, .block_bytes = kBlockBytes[1]});
  options.pin_max = 300ms;
  return options;
}

int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

bool eventually(const std::function<bool()>& what) {
  const auto until = std::chrono::steady_clock::now() + 20s;
  while (!what()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(1ms);
  }
  return true;
}

class BlockExchangeTest : public testing::Test {
 protected:
  BlockExchangeTest() { open(options_of(), options_of()); }
  ~BlockExchangeTest() override { close(); }

  void open(const BlockExchange::Options& source, const BlockExchange::Options& target) {
    close();
    source_ = *BlockExchange::open(source, source_memory_);
    target_ = *BlockExchange::open(target, target_memory_);
    stopping_ = false;
    engine_ = std::thread([this] { answer_asks(); });
  }
  void close() {
    stopping_ = true;
    if (engine_.joinable()) engine_.join();
    source_.reset();
    target_.reset();
  }

  // The source's engine: it has the first `there_` blocks of the full group, and of the window's
  // those that a hit of all of them looks back into.
  void answer_asks() {
    while (!stopping_) {
      for (const kv::PeerAsk& ask : source_->take_asks()) {
        ++pinned_;
        source_->offer(ask.ahead ? part_of(ask, 0) : offer_of(ask));
        if (ask.ahead) asked_ahead_ = ask;
      }
      if (asked_ahead_ && there_ > ahead_next_) {
        source_->offer(part_of(*asked_ahead_, ahead_next_));
        if (ahead_next_ == kBlocks) asked_ahead_.reset();
      }
      pinned_ -= static_cast<int>(source_->take_over().size());
      std::this_thread::sleep_for(200us);
    }
  }

  kv::PeerOffer offer_of(const kv::PeerAsk& ask) const {
    kv::PeerOffer offer{.id = ask.id, .blocks = {}};
    const int count = std::min<int>(there_, static_cast<int>(ask.names.size()));
    offer.prefix_blocks = count;
    for (int i = 0; i < count; ++i) {
      for (int group = 0; group < 2; ++group) {
        if (ask.held[group][static_cast<size_t>(i)]) continue;
        if (group == 1 && i < count - 2) continue;
        offer.blocks.push_back({.group = group, .name = name_of(i), .block = i});
      }
    }
    return offer;
  }
  // Of a prompt that is being computed, what has come since.
  kv::PeerOffer part_of(const kv::PeerAsk& ask, int from) {
    kv::PeerOffer offer{.id = ask.id, .blocks = {}};
    const int count = there_;
    for (int i = from; i < count; ++i) {
      offer.blocks.push_back({.group = 0, .name = name_of(i), .block = i});
      if (i >= kBlocks - 2) offer.blocks.push_back({.group = 1, .name = name_of(i), .block = i});
    }
    offer.prefix_blocks = ahead_next_ = count;
    offer.goes_on = count < kBlocks;
    return offer;
  }

  PeerTicket ticket(int blocks = kBlocks) {
    std::vector<kv::BlockHash> names;
    for (int i = 0; i < blocks; ++i) names.push_back(name_of(i));
    return {.source = source_->place().id,
            .target = target_->place().id,
            .grant = grant_of(names),
            .request_id = "r",
            .expires_ms = now_ms() + 20'000,
            .nonce = std::to_string(++nonce_)};
  }
  kv::PeerFetch fetch(const std::string& ticket, int blocks = kBlocks) {
    kv::PeerFetch fetch{.id = ++id_,
                        .host = "127.0.0.1",
                        .port = source_->place().port,
                        .ticket = ticket,
                        .names = {},
                        .held = {},
                        .rooms = {},
                        .limit_ns = 2'000'000'000};
    for (int i = 0; i < blocks; ++i) fetch.names.push_back(name_of(i));
    for (int group = 0; group < 2; ++group) {
      fetch.held.push_back(std::vector<bool>(static_cast<size_t>(blocks), false));
      std::vector<kv::BlockId> rooms;
      for (int i = 0; i < (group == 0 ? blocks : 2); ++i) rooms.push_back(40 + i);
      fetch.rooms.push_back(rooms);
    }
    return fetch;
  }
  kv::PeerFetched outcome() {
    std::vector<kv::PeerFetched> all;
    EXPECT_TRUE(eventually([&] { return !(all = target_->take_fetched()).empty(); }));
    return all.empty() ? kv::PeerFetched{} : all.front();
  }
  kv::PeerFetched run(kv::PeerFetch fetch) {
    target_memory_.written.clear();
    target_->fetch(std::move(fetch));
    return outcome();
  }
  kv::PeerFetched run(const PeerTicket& ticket) { return run(fetch(ticket.seal(kKeys.front()))); }

  // Who greets as this fleet's do, takes one Want, and then says this.
  kv::PeerFetched fetch_from_source_that(
      const std::vector<std::function<std::string(uint32_t)>>& says) {
    return fetch_from([&](int socket) {
      const auto until = PeerChannel::Clock::now() + 5s;
      auto channel = *PeerChannel::accept(socket, kKeys, until);
      (void)channel->receive(until).ok();
      channel->set_record_max(1 << 20);
      (void)channel->send(encode(PeerWelcome{}), until).ok();
      const auto came = channel->receive(until);
      if (!came.ok() || !*came) return;
      const auto message = decode_peer_message(**came);
      const uint32_t transfer = std::get<PeerWant>(*message).transfer;
      for (const auto& one : says) (void)channel->send(one(transfer), until).ok();
      (void)channel->receive(until).ok();  // until the receiver leaves
    });
  }
  // From whoever does this with its connection, and closes it.
  kv::PeerFetched fetch_from(const std::function<void(int socket)>& serve) {
    const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in place{};
    place.sin_family = AF_INET;
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof place;
    EXPECT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&place), size), 0);
    EXPECT_EQ(::listen(listener, 1), 0);
    EXPECT_EQ(::getsockname(listener, reinterpret_cast<sockaddr*>(&place), &size), 0);
    std::thread source([&] { serve(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC)); });
    kv::PeerFetch wanted = fetch(ticket().seal(kKeys.front()));
    wanted.port = ntohs(place.sin_port);
    const kv::PeerFetched fetched = run(std::move(wanted));
    target_->cancel(id_);
    close_idle();
    source.join();
    ::close(listener);
    return fetched;
  }
  // Channels that are kept for later go.
  void close_idle() {
    target_.reset();
    target_ = *BlockExchange::open(options_of(), target_memory_);
  }

  // As a receiver does, up to the answer.
  void ask_and_stop(bool leaves) {
    const auto until = PeerChannel::Clock::now() + 5s;
    auto channel = *PeerChannel::connect({.host = "127.0.0.1", .port = source_->place().port},
                                         kKeys.front(), until);
    const PeerHello hello{.id = target_->place().id, .layout = layout()};
    ASSERT_TRUE(channel->send(encode(hello), until).ok());
    ASSERT_TRUE(channel->receive(until)->has_value());
    PeerWant want{.transfer = 1,
                  .limit_ms = 5'000,
                  .ticket = ticket().seal(kKeys.front()),
                  .names = {},
                  .held = {}};
    for (int i = 0; i < kBlocks; ++i) want.names.push_back(name_of(i));
    want.held.assign(2, std::vector<bool>(kBlocks, false));
    ASSERT_TRUE(channel->send(encode(want), until).ok());
    ASSERT_TRUE(channel->receive(until)->has_value());
    EXPECT_EQ(pinned_, 1);
    if (leaves) return;
    EXPECT_TRUE(nothing_is_pinned()) << "while it is still connected";
  }

  // Whatever came of it: what has landed is what the source has under that name.
  void expect_right(const kv::PeerFetched& fetched) {
    EXPECT_EQ(fetched.blocks.size(), target_memory_.written.size());
    for (const kv::PeerFetched::Block& one : fetched.blocks) {
      int i = 0;
      while (i < kBlocks && name_of(i) != one.name) ++i;
      ASSERT_LT(i, kBlocks);
      EXPECT_EQ(target_memory_.written.at({one.group, one.host}), content(one.group, i));
    }
  }
  bool nothing_is_pinned() {
    return eventually([&] { return pinned_ == 0; });
  }

  Memory source_memory_;
  Memory target_memory_;
  std::unique_ptr<BlockExchange> source_;
  std::unique_ptr<BlockExchange> target_;
  std::atomic<bool> stopping_{false};
  std::atomic<int> there_{kBlocks};
  std::atomic<int> pinned_{0};
  std::optional<kv::PeerAsk> asked_ahead_;  // the engine's, as the next
  int ahead_next_ = 0;
  std::thread engine_;
  int nonce_ = 0;
  int64_t id_ = 0;
};

TEST_F(BlockExchangeTest, WhatIsFetchedIsWhatTheSourceHas) {
  const kv::PeerFetched fetched = run(ticket());
  EXPECT_EQ(fetched.outcome, Outcome::kDone) << fetched.why;
  EXPECT_EQ(fetched.blocks.size(), size_t{kBlocks} + 2) << "of the window its last blocks only";
  EXPECT_EQ(fetched.bytes, int64_t{kBlocks} * 5000 + 2 * 700);
  expect_right(fetched);
  EXPECT_EQ(source_->served().bytes, fetched.bytes);
  EXPECT_TRUE(nothing_is_pinned());
}

TEST_F(BlockExchangeTest, WhatIsHereDoesNotCross) {
  kv::PeerFetch wanted = fetch(ticket().seal(kKeys.front()));
  for (size_t i = 0; i < kBlocks; ++i) wanted.held[0][i] = true;
  const kv::PeerFetched fetched = run(std::move(wanted));
  EXPECT_EQ(fetched.outcome, Outcome::kDone) << fetched.why;
  EXPECT_EQ(fetched.bytes, 2 * 700);
  expect_right(fetched);
}

TEST_F(BlockExchangeTest, APartIsFetchedWhereThereIsNoMore) {
  there_ = 5;
  const kv::PeerFetched fetched = run(ticket());
  EXPECT_EQ(fetched.bytes, 5 * 5000 + 2 * 700);
  expect_right(fetched);
  there_ = 0;
  EXPECT_EQ(run(ticket()).outcome, Outcome::kNothing);
  EXPECT_TRUE(nothing_is_pinned());
}

TEST_F(BlockExchangeTest, WhatIsBeingComputedComesAsItIs) {
  there_ = 3;
  kv::PeerFetch ahead = fetch(ticket().seal(kKeys.front()));
  ahead.ahead = true;
  target_->fetch(std::move(ahead));
  for (const int count : {3, 7, kBlocks}) {
    ASSERT_TRUE(target_->take_fetched().empty());
    there_ = count;
    EXPECT_TRUE(eventually([&] { return source_->served().blocks >= count; }));
  }
  const kv::PeerFetched fetched = outcome();
  EXPECT_EQ(fetched.outcome, Outcome::kDone) << fetched.why;
  EXPECT_EQ(fetched.bytes, int64_t{kBlocks} * 5000 + 2 * 700) << "as if asked for when it is there";
  expect_right(fetched);
  EXPECT_TRUE(nothing_is_pinned());
}

TEST_F(BlockExchangeTest, WaitingForWhatIsComputedIsNotCountedAsFetching) {
  there_ = 2;
  kv::PeerFetch ahead = fetch(ticket().seal(kKeys.front()));
  ahead.ahead = true;
  target_->fetch(std::move(ahead));
  EXPECT_TRUE(eventually([&] { return source_->served().blocks >= 2; }));
  std::this_thread::sleep_for(300ms);
  there_ = kBlocks;
  const kv::PeerFetched fetched = outcome();
  EXPECT_EQ(fetched.outcome, Outcome::kDone) << fetched.why;
  EXPECT_LT(fetched.ns, 250'000'000);
}

TEST_F(BlockExchangeTest, WhatIsBeingComputedMayBeRevokedOrNoLongerWanted) {
  const auto begin = [&] {
    there_ = 2;
    kv::PeerFetch ahead = fetch(ticket().seal(kKeys.front()));
    ahead.ahead = true;
    const int64_t sent = source_->served().blocks;
    target_->fetch(std::move(ahead));
    EXPECT_TRUE(eventually([&] { return source_->served().blocks >= sent + 2; }));
  };
  begin();
  source_->revoke_all();
  EXPECT_EQ(outcome().blocks.size(), 2u);
  EXPECT_TRUE(nothing_is_pinned());
  begin();
  target_->cancel(id_);
  EXPECT_EQ(outcome().outcome, Outcome::kCancelled);
  EXPECT_TRUE(nothing_is_pinned());
}

TEST_F(BlockExchangeTest, Kv01TicketsThatAreNotGoodAreRefused) {
  EXPECT_EQ(run(ticket()).outcome, Outcome::kDone);
  const auto expect_refused = [&](std::string_view why, const std::string& text) {
    const kv::PeerFetched fetched = run(fetch(text));
    EXPECT_EQ(fetched.outcome, Outcome::kRefused) << why;
    EXPECT_THAT(fetched.why, HasSubstr(std::string(why)));
    EXPECT_TRUE(target_memory_.written.empty()) << why;
  };
  const auto changed = [&](const std::function<void(PeerTicket&)>& change) {
    PeerTicket one = ticket();
    change(one);
    return one.seal(kKeys.front());
  };
  expect_refused("none", "");
  expect_refused("not one of this fleet's", ticket().seal(std::string(32, 'x')));
  expect_refused("expired", changed([](PeerTicket& one) { one.expires_ms = now_ms() - 1; }));
  expect_refused("too long", changed([](PeerTicket& one) { one.expires_ms += 3'600'000; }));
  expect_refused("another worker's blocks", changed([](PeerTicket& one) { one.source = "s"; }));
  expect_refused("is another worker's", changed([](PeerTicket& one) { one.target = "t"; }));
  const std::string once = ticket().seal(kKeys.front());
  EXPECT_EQ(run(fetch(once)).outcome, Outcome::kDone);
  expect_refused("used before", once);
  std::string flipped = ticket().seal(kKeys.front());
  flipped[flipped.size() / 2] = flipped[flipped.size() / 2] == 'a' ? 'b' : 'a';
  expect_refused("not one of this fleet's", flipped);
  EXPECT_EQ(source_->served().refused, 8);
  EXPECT_TRUE(nothing_is_pinned());
}

// Names are salted by tenant: a ticket for one's is none for the other's.
TEST_F(BlockExchangeTest, Kv21BlocksThatTheTicketDoesNotGrantAreRefused) {
  const kv::PeerFetched fetched = run(fetch(ticket(kBlocks - 1).seal(kKeys.front())));
  EXPECT_EQ(fetched.outcome, Outcome::kRefused);
  EXPECT_THAT(fetched.why, HasSubstr("does not grant"));
  EXPECT_TRUE(target_memory_.written.empty());
}

TEST_F(BlockExchangeTest, Kv04AnotherLayoutIsRefusedByTheNameOfWhatDiffers) {
  for (size_t i = 0; i < layout().size(); ++i) {
    PeerLayout other = layout();
    other[i].second += " not";
    open(options_of(), options_of(other));
    const kv::PeerFetched fetched = run(ticket());
    EXPECT_EQ(fetched.outcome, Outcome::kRefused);
    EXPECT_THAT(fetched.why, HasSubstr(other[i].first + ": " + other[i].second + " there"));
    EXPECT_TRUE(target_memory_.written.empty());
  }
}

// In the midst of an update some workers speak the next one: both sides can say so.
TEST_F(BlockExchangeTest, Kv02AnotherVersionIsRefusedByItsNumber) {
  const std::string next = "PLTNKV02" + std::string(16, 'n');
  const kv::PeerFetched fetched = fetch_from([&](int socket) {
    (void)!::send(socket, next.data(), next.size(), MSG_NOSIGNAL);
    char byte = 0;
    while (::recv(socket, &byte, 1, 0) > 0) {
    }
    ::close(socket);
  });
  EXPECT_EQ(fetched.outcome, Outcome::kRefused);
  EXPECT_THAT(fetched.why, HasSubstr("version 02 of the protocol there, 01 here"));

  const int client = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  place.sin_port = htons(static_cast<uint16_t>(source_->place().port));
  ASSERT_EQ(::connect(client, reinterpret_cast<sockaddr*>(&place), sizeof place), 0);
  ASSERT_EQ(::send(client, next.data(), next.size(), MSG_NOSIGNAL), std::ssize(next));
  std::string said;
  char byte = 0;
  ssize_t came = 0;
  while ((came = ::recv(client, &byte, 1, 0)) > 0) said.push_back(byte);
  ::close(client);
  EXPECT_EQ(came, 0) << "the connection was reset, and what was said may be lost";
  EXPECT_EQ(said.size(), next.size());
  EXPECT_EQ(said.substr(0, 8), "PLTNKV01");
  EXPECT_TRUE(eventually([&] { return source_->served().refused == 1; }));
}

TEST_F(BlockExchangeTest, Kv01WhoHasAnotherKeyIsNotHeard) {
  open(options_of(), options_of(layout(), {std::string(32, 'x')}));
  EXPECT_EQ(run(ticket()).outcome, Outcome::kFailed);
  EXPECT_TRUE(target_memory_.written.empty());
  // The key before the one that is used is believed.
  open(options_of(layout(), {std::string(32, 'n'), kKeys.front()}), options_of());
  EXPECT_EQ(run(ticket()).outcome, Outcome::kDone);
}

TEST_F(BlockExchangeTest, Kv19ABlockThatIsDamagedAtItsSourceIsNotBelieved) {
  BlockExchange::Options damaging = options_of();
  damaging.exchange.damage_one_in = 4;
  open(damaging, options_of());
  const kv::PeerFetched fetched = run(ticket());
  EXPECT_EQ(fetched.outcome, Outcome::kCorrupt);
  EXPECT_EQ(fetched.blocks.size(), 3u);
  expect_right(fetched);
  EXPECT_TRUE(nothing_is_pinned());
}

// Each bit of the stream may turn, and it may end at each tenth: what has landed is right.
TEST_F(BlockExchangeTest, Kv18Kv19WhateverHappensOnTheWayNothingWrongLands) {
  const size_t all = size_t{kBlocks} * 5000 + 2 * 700;
  const uint64_t seed = base::random_bits(static_cast<uint64_t>(::getpid()), 1);
  SCOPED_TRACE(seed);
  const uint64_t rounds = std::getenv("PELTON_FULL") != nullptr ? 10'000 : 200;
  uint64_t spoiled = 0;
  for (uint64_t round = 0; round < rounds; ++round) {
    const size_t where = base::random_bits(seed, round) % all;
    const bool cuts = round % 3 == 0;
    Proxy proxy(source_->place().port, [&](size_t at, std::string& piece) {
      if (where < at || where >= at + piece.size()) return true;
      if (cuts) return false;
      piece[where - at] = static_cast<char>(piece[where - at] ^ 1 << round % 8);
      return true;
    });
    kv::PeerFetch wanted = fetch(ticket().seal(kKeys.front()));
    wanted.port = proxy.port();
    wanted.limit_ns = 1'000'000'000;
    const kv::PeerFetched fetched = run(std::move(wanted));
    EXPECT_NE(fetched.outcome, Outcome::kDone);
    expect_right(fetched);
    spoiled += fetched.outcome != Outcome::kDone ? 1 : 0;
  }
  EXPECT_EQ(spoiled, rounds);
  EXPECT_TRUE(nothing_is_pinned());
}

// FT-31, KV-18. At each tenth of a transfer one side ends (its connection breaks) or is stopped
// (nothing passes any more): what has landed is right, the fetch ends in its time, pins go.
TEST_F(BlockExchangeTest, Ft31Kv18EitherSideEndsOrIsStoppedAtEachTenth) {
  const size_t all = size_t{kBlocks} * 5000 + 2 * 700;
  const int rounds = std::getenv("PELTON_FULL") != nullptr ? 1000 : 50;
  for (int round = 0; round < rounds; ++round) {
    SCOPED_TRACE(round);
    const size_t where = all / 10 * static_cast<size_t>(round % 10) + 17;
    const bool stops = round % 2 == 1;
    const bool leaves = round % 4 >= 2;  // the receiver: its source hears nothing
    std::atomic<bool> is_over{false};
    Proxy proxy(source_->place().port, [&](size_t at, std::string& piece) {
      if (at + piece.size() <= where) return true;
      if (!stops) return false;
      while (!is_over) std::this_thread::sleep_for(1ms);
      return false;
    });
    kv::PeerFetch wanted = fetch(ticket().seal(kKeys.front()));
    wanted.port = proxy.port();
    wanted.limit_ns = 60'000'000;
    target_memory_.written.clear();
    target_->fetch(std::move(wanted));
    if (leaves && stops) target_->cancel(id_);
    const auto begun = std::chrono::steady_clock::now();
    const kv::PeerFetched fetched = outcome();
    EXPECT_LT(std::chrono::steady_clock::now() - begun, 5s);
    EXPECT_NE(fetched.outcome, Outcome::kDone);
    expect_right(fetched);
    is_over = true;
  }
  EXPECT_TRUE(nothing_is_pinned());
  EXPECT_EQ(run(ticket()).outcome, Outcome::kDone);
}

// The receiver is not held up by it beyond its time, and the source holds nothing for it.
TEST_F(BlockExchangeTest, ALinkOfAMegabyteASecondIsGivenUpAmidTheTransfer) {
  bool is_slow = false;
  Proxy proxy(source_->place().port, [&](size_t at, std::string& piece) {
    is_slow = is_slow || at > 10'000;
    if (is_slow) std::this_thread::sleep_for(std::chrono::microseconds(piece.size()));
    return true;
  });
  kv::PeerFetch wanted = fetch(ticket().seal(kKeys.front()));
  wanted.port = proxy.port();
  wanted.limit_ns = 25'000'000;
  const auto begun = std::chrono::steady_clock::now();
  const kv::PeerFetched fetched = run(std::move(wanted));
  EXPECT_LT(std::chrono::steady_clock::now() - begun, 1s);
  EXPECT_EQ(fetched.outcome, Outcome::kFailed) << fetched.why;
  EXPECT_LT(fetched.blocks.size(), size_t{kBlocks});
  expect_right(fetched);
  EXPECT_TRUE(nothing_is_pinned());
}

// FT-34. Whoever cannot be reached is given up within the fetch's time.
TEST_F(BlockExchangeTest, Ft34APeerThatIsNotThereIsAMiss) {
  kv::PeerFetch nowhere = fetch(ticket().seal(kKeys.front()));
  nowhere.host = "192.0.2.1";  // no answer comes from there (RFC 5737)
  nowhere.limit_ns = 100'000'000;
  const auto begun = std::chrono::steady_clock::now();
  EXPECT_EQ(run(std::move(nowhere)).outcome, Outcome::kFailed);
  kv::PeerFetch closed = fetch(ticket().seal(kKeys.front()));
  closed.port = 1;
  EXPECT_EQ(run(std::move(closed)).outcome, Outcome::kFailed);
  EXPECT_LT(std::chrono::steady_clock::now() - begun, 3s);
}

// A receiver that asks and then leaves, or gives no credit: pins go.
TEST_F(BlockExchangeTest, Kv14Kv22AReceiverThatStopsHoldsNothing) {
  BlockExchange::Options narrow = options_of();
  narrow.uncredited_max = 12'000;
  open(narrow, options_of());
  for (const bool leaves : {true, false}) {
    SCOPED_TRACE(leaves);
    ask_and_stop(leaves);
    EXPECT_TRUE(nothing_is_pinned());
    EXPECT_LT(source_->served().blocks, 2 * kBlocks);
  }
}

TEST_F(BlockExchangeTest, ASourceThatSaysNothingIsGivenUp) {
  close();
  source_ = *BlockExchange::open(options_of(), source_memory_);  // nobody answers its asks
  target_ = *BlockExchange::open(options_of(), target_memory_);
  kv::PeerFetch wanted = fetch(ticket().seal(kKeys.front()));
  wanted.limit_ns = 100'000'000;
  const kv::PeerFetched fetched = run(std::move(wanted));
  EXPECT_NE(fetched.outcome, Outcome::kDone);
  EXPECT_TRUE(fetched.blocks.empty());
}

// A source of this fleet's that says what none says: the receiver believes what it asked for, once,
// of the right size and sum, after an answer. By what is sent in place of the blocks.
TEST_F(BlockExchangeTest, Kv06Kv23WhatASourceSaysIsChecked) {
  const auto block = [](int group, int name, int content_of) {
    return [=](uint32_t transfer) {
      std::string message(PeerData::kHeaderBytes + kBlockBytes[group], '\0');
      begin_data(message, transfer, group, name_of(name));
      message.replace(PeerData::kHeaderBytes, kBlockBytes[group], content(group, content_of));
      finish_data(message);
      return message;
    };
  };
  const auto other = [&](int name, int content_of) {  // its sum is of the block that it should be
    return [=](uint32_t transfer) {
      std::string message = block(0, name, name)(transfer);
      message.replace(PeerData::kHeaderBytes, kBlockBytes[0], content(0, content_of));
      return message;
    };
  };
  using Says = std::function<std::string(uint32_t transfer)>;
  const auto have = [](uint32_t transfer) {
    return encode(
        PeerHave{.transfer = transfer, .prefix_blocks = kBlocks, .blocks = kBlocks, .refused = {}});
  };
  const auto short_block = [](uint32_t transfer) {
    std::string message(PeerData::kHeaderBytes + 12, '\0');
    begin_data(message, transfer, 0, name_of(0));
    finish_data(message);
    return message;
  };
  const auto no_group = [&](uint32_t transfer) {
    std::string message(PeerData::kHeaderBytes + kBlockBytes[0], '\0');
    begin_data(message, transfer, 2, name_of(0));
    finish_data(message);
    return message;
  };
  const auto want = [](uint32_t transfer) { return encode(PeerCredit{transfer, 5}); };
  const std::vector<std::pair<std::string, std::vector<Says>>> cases = {
      {"twice", {have, block(0, 0, 0), block(0, 0, 0)}},
      {"not asked for", {have, block(0, kBlocks + 3, 1)}},
      {"of another size", {have, short_block}},
      {"of no group", {have, no_group}},
      {"before the answer", {block(0, 0, 0)}},
      {"another's content", {have, other(0, 1)}},
      {"no source's message", {have, want}}};
  for (const auto& [what, says] : cases) {
    SCOPED_TRACE(what);
    const kv::PeerFetched fetched = fetch_from_source_that(says);
    EXPECT_EQ(fetched.outcome, Outcome::kCorrupt) << fetched.why;
    expect_right(fetched);
    EXPECT_LE(fetched.blocks.size(), 1u);
  }
  // Of a transfer that is over: dropped, and what was asked for is taken.
  const auto late = [&](uint32_t transfer) { return block(0, 3, 3)(transfer + 7); };
  const auto done = [](uint32_t transfer) { return encode(PeerDone{.transfer = transfer}); };
  const kv::PeerFetched fetched = fetch_from_source_that({have, late, block(0, 0, 0), done});
  EXPECT_EQ(fetched.outcome, Outcome::kDone) << fetched.why;
  EXPECT_EQ(fetched.blocks.size(), 1u);
  expect_right(fetched);
}

// Numbers of transfers are each connection's own.
TEST_F(BlockExchangeTest, Kv15TheSameNumberOfATransferTwiceAtOnce) {
  Memory other_memory;
  auto other = *BlockExchange::open(options_of(), other_memory);
  PeerTicket for_other = ticket();
  for_other.target = other->place().id;
  target_->fetch(fetch(ticket().seal(kKeys.front())));  // the first of each
  other->fetch(fetch(for_other.seal(kKeys.front())));
  const kv::PeerFetched fetched = outcome();
  EXPECT_EQ(fetched.outcome, Outcome::kDone) << fetched.why;
  expect_right(fetched);
  std::vector<kv::PeerFetched> others;
  EXPECT_TRUE(eventually([&] { return !(others = other->take_fetched()).empty(); }));
  EXPECT_EQ(others.front().outcome, Outcome::kDone) << others.front().why;
  EXPECT_EQ(other_memory.written.size(), size_t{kBlocks} + 2);
  EXPECT_TRUE(nothing_is_pinned());
}

TEST_F(BlockExchangeTest, Kv20WhatComesAfterCancellationIsDropped) {
  source_memory_.before_read = [] { std::this_thread::sleep_for(5ms); };
  target_->fetch(fetch(ticket().seal(kKeys.front())));
  EXPECT_TRUE(eventually([&] { return pinned_ == 1; }));
  target_->cancel(id_);
  EXPECT_EQ(outcome().outcome, Outcome::kCancelled);
  // The same channel serves the next one, whose blocks are right.
  const kv::PeerFetched fetched = run(ticket());
  EXPECT_EQ(fetched.outcome, Outcome::kDone) << fetched.why;
  EXPECT_EQ(fetched.blocks.size(), size_t{kBlocks} + 2);
  expect_right(fetched);
  EXPECT_TRUE(nothing_is_pinned());
}

TEST_F(BlockExchangeTest, WhatIsRevokedIsNotReadAnyMore) {
  std::atomic<int> reads{0};
  source_memory_.before_read = [&] {
    ++reads;
    std::this_thread::sleep_for(5ms);
  };
  target_->fetch(fetch(ticket().seal(kKeys.front())));
  EXPECT_TRUE(eventually([&] { return reads > 1; }));
  source_->revoke_all();
  const int before = reads;
  const kv::PeerFetched fetched = outcome();
  EXPECT_EQ(reads, before);
  EXPECT_LT(fetched.blocks.size(), size_t{kBlocks});
  expect_right(fetched);
  EXPECT_TRUE(nothing_is_pinned());
}

TEST_F(BlockExchangeTest, ManyAtOnce) {
  constexpr int kMany = 20;
  for (int i = 0; i < kMany; ++i) {
    kv::PeerFetch one = fetch(ticket().seal(kKeys.front()));
    one.held[1].assign(kBlocks, true);
    one.held[0].assign(kBlocks, true);
    one.limit_ns = 10'000'000'000;
    target_->fetch(std::move(one));
  }
  int ended = 0;
  EXPECT_TRUE(eventually([&] {
    for (const kv::PeerFetched& fetched : target_->take_fetched()) {
      EXPECT_EQ(fetched.outcome, Outcome::kNothing) << fetched.why;
      ++ended;
    }
    return ended == kMany;
  }));
  EXPECT_TRUE(nothing_is_pinned());
}

// Connections that are kept for a next transfer keep nobody out.
TEST_F(BlockExchangeTest, WhoIsSilentMakesRoomForOthers) {
  BlockExchange::Options few = options_of();
  few.connections_max = 2;
  open(few, options_of());
  std::vector<std::unique_ptr<BlockExchange>> connected;
  for (int i = 0; i < 5; ++i) {
    const kv::PeerFetched fetched = run(ticket());
    EXPECT_EQ(fetched.outcome, Outcome::kDone) << i << ": " << fetched.why;
    connected.push_back(std::exchange(target_, *BlockExchange::open(options_of(), target_memory_)));
  }
  EXPECT_EQ(source_->served().refused, 0);
}

// A long prompt: its limit is for silence.
TEST_F(BlockExchangeTest, WhatIsComputedForLongerThanItsLimitComesAllTheSame) {
  there_ = 1;
  kv::PeerFetch ahead = fetch(ticket().seal(kKeys.front()));
  ahead.ahead = true;
  ahead.limit_ns = 400'000'000;
  target_->fetch(std::move(ahead));
  for (int count = 2; count <= kBlocks; ++count) {
    std::this_thread::sleep_for(80ms);
    there_ = count;
  }
  const kv::PeerFetched fetched = outcome();
  EXPECT_EQ(fetched.outcome, Outcome::kDone) << fetched.why;
  EXPECT_EQ(fetched.bytes, int64_t{kBlocks} * 5000 + 2 * 700);
  expect_right(fetched);
  EXPECT_TRUE(nothing_is_pinned());
}

// Bytes that are no protocol, and lengths that no message has (KV-02, KV-03).
TEST_F(BlockExchangeTest, Kv02Kv03WhoeverSaysSomethingElseIsCutOff) {
  const std::string greeting = "PLTNKV01" + std::string(16, 'n');
  for (const std::string& said :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(100, '\xff'),
        "PLTNKV02" + std::string(16, 'n'), greeting + "\xff\xff\xff\xff",
        greeting + std::string("\x01\x00\x00\x00", 4),
        greeting + std::string("\x40\x00\x00\x00", 4) + std::string(64, 'z')}) {
    const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in place{};
    place.sin_family = AF_INET;
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    place.sin_port = htons(static_cast<uint16_t>(source_->place().port));
    ASSERT_EQ(::connect(socket, reinterpret_cast<sockaddr*>(&place), sizeof place), 0);
    ASSERT_EQ(::send(socket, said.data(), said.size(), MSG_NOSIGNAL), std::ssize(said));
    char byte;
    ssize_t came = 0;
    while ((came = ::recv(socket, &byte, 1, 0)) > 0) {
    }
    EXPECT_LE(came, 0);
    ::close(socket);
  }
  EXPECT_EQ(run(ticket()).outcome, Outcome::kDone);
}

TEST_F(BlockExchangeTest, WhereNobodyCanListenThatIsSaid) {
  BlockExchange::Options options = options_of();
  options.exchange.port = source_->place().port;
  const auto opened = BlockExchange::open(options, source_memory_);
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().field, "kv-port");
  EXPECT_THAT(opened.error().message, HasSubstr("nothing can listen there"));
}

}  // namespace
}  // namespace pelton::kv_transfer
