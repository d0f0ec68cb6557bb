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

#include "kv_transfer/exchange_fixture.h"

namespace pelton::kv_transfer {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

class BlockExchangeTest : public ExchangeTest {};

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
  ExchangeMemory other_memory;
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
