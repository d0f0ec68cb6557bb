// A ticket is what a gateway made, for those who are named in it, for a while and once.
#include "kv_transfer/peer_ticket.h"

#include <gtest/gtest.h>

namespace pelton::kv_transfer {
namespace {

const std::string kKey(32, 'k');

PeerTicket ticket() {
  return {.source = "s",
          .target = "t",
          .grant = "g",
          .request_id = std::string("r\0.", 3),
          .expires_ms = 20'000,
          .nonce = "n"};
}

TEST(PeerTicket, WhatIsSealedIsOpened) {
  const std::vector<std::string> keys = {std::string(32, 'x'), kKey};
  const auto opened = PeerTicket::open(ticket().seal(kKey), keys);
  ASSERT_TRUE(opened.ok());
  EXPECT_EQ(*opened, ticket());
}

TEST(PeerTicket, WhateverIsChangedIsFound) {
  const std::string text = ticket().seal(kKey);
  const std::vector<std::string> keys = {kKey};
  for (size_t at = 0; at < text.size(); ++at) {
    std::string changed = text;
    changed[at] = changed[at] == '1' ? '2' : '1';
    EXPECT_FALSE(PeerTicket::open(changed, keys).ok()) << at;
    EXPECT_FALSE(PeerTicket::open(text.substr(0, at), keys).ok()) << at;
  }
  EXPECT_FALSE(PeerTicket::open(std::string(PeerTicket::kTextMax + 1, 'a'), keys).ok());
}

TEST(UsedTickets, EachIsGoodOnceAndForAWhile) {
  UsedTickets used;
  const auto use = [&](const PeerTicket& one, int64_t now_ms) {
    const UsedTickets::Shown shown{
        .source = "s", .target = "t", .now_ms = now_ms, .steady_ms = now_ms + UsedTickets::kKeptMs};
    return used.use(one, shown).ok();
  };
  EXPECT_TRUE(use(ticket(), 1'000));
  EXPECT_FALSE(use(ticket(), 1'001)) << "used before";
  EXPECT_FALSE(use(ticket(), 20'000)) << "expired";
  PeerTicket other = ticket();
  other.nonce = "m";
  EXPECT_FALSE(use(other, 20'000)) << "expired";
  EXPECT_FALSE(use(other, -100'000)) << "from too far ahead, or the clock has jumped";
  EXPECT_TRUE(use(other, 19'999));
  // Nonces are forgotten when their tickets are no good any more.
  PeerTicket later = ticket();
  later.expires_ms = 2 * UsedTickets::kKeptMs;
  EXPECT_TRUE(use(later, later.expires_ms - 20'000));
}

// FT: the wall clock jumps, by itself or an operator's hand. What is refused meanwhile is computed.
TEST(UsedTickets, AClockThatJumpsNeitherRevivesATicketNorEndsTheNextOnes) {
  UsedTickets used;
  int64_t steady_ms = 0;
  const auto use = [&](const char* nonce, int64_t expires_ms, int64_t now_ms) {
    PeerTicket one = ticket();
    one.nonce = nonce;
    one.expires_ms = expires_ms;
    steady_ms += 10;
    const UsedTickets::Shown shown{
        .source = "s", .target = "t", .now_ms = now_ms, .steady_ms = steady_ms};
    return used.use(one, shown).ok();
  };
  constexpr int64_t kHour = 3'600'000;
  EXPECT_TRUE(use("a", 30'000, 1'000));
  // Forward by an hour: its gateway's tickets are expired here.
  EXPECT_FALSE(use("b", 31'000, kHour));
  EXPECT_TRUE(use("c", kHour + 30'000, kHour)) << "once both have jumped";
  // And back: what was used is not good again, what comes is.
  EXPECT_FALSE(use("a", 30'000, 1'100));
  EXPECT_TRUE(use("d", 31'000, 1'200));
  // Back by an hour: tickets are from too far ahead.
  EXPECT_FALSE(use("e", 31'000, 1'200 - kHour));
  EXPECT_TRUE(use("f", 31'000, 1'300));
}

TEST(UsedTickets, NoMoreAreKeptThanThereMayBe) {
  UsedTickets used;
  PeerTicket one = ticket();
  for (size_t i = 0; i < UsedTickets::kMax; ++i) {
    one.nonce = std::to_string(i);
    ASSERT_TRUE(used.use(one, {.source = "s", .target = "t", .now_ms = 1'000}).ok());
  }
  one.nonce = "more";
  EXPECT_FALSE(used.use(one, {.source = "s", .target = "t", .now_ms = 1'000}).ok());
}

TEST(PeerTicket, AGrantIsOfTheseBlocksInThisOrder) {
  const std::vector<kv::BlockHash> names = {{1, 2}, {3, 4}};
  EXPECT_EQ(grant_of(names), grant_of(names));
  EXPECT_NE(grant_of(names), grant_of(std::vector<kv::BlockHash>{{3, 4}, {1, 2}}));
  EXPECT_NE(grant_of(names), grant_of(std::vector<kv::BlockHash>{{1, 2}}));
}

}  // namespace
}  // namespace pelton::kv_transfer
