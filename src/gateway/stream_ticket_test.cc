#include "gateway/stream_ticket.h"

#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "gateway/said_tokens.h"

namespace pelton::gateway {
namespace {

constexpr StreamTicket::Of kOf = {
    .tenant = "ann", .request_id = "req_1", .path = "/v1/completions", .body = "{}"};

cluster::TokenList tokens(int64_t first, std::vector<TokenId> ids, bool with_logprobs = false) {
  cluster::TokenList list{.first = static_cast<decltype(cluster::TokenList::first)>(first),
                          .with_logprobs = with_logprobs};
  for (const TokenId id : ids) list.tokens.push_back({.token = id});
  return list;
}

TEST(StreamTicket, is_one_for_its_own_stream_alone) {
  const StreamTicket ticket{.created_ms = 1'764'540'000'000, .seed = 0xFFFFFFFFFFFFFFFFu};
  const std::string text = ticket.seal("secret", kOf);
  const auto opened = StreamTicket::open(text, "secret", kOf);
  ASSERT_TRUE(opened.ok());
  EXPECT_EQ(opened->created_ms, ticket.created_ms);
  EXPECT_EQ(opened->seed, ticket.seed);

  EXPECT_FALSE(StreamTicket::open(text, "another", kOf).ok());
  for (int field = 0; field < 4; ++field) {
    StreamTicket::Of other = kOf;
    (field == 0   ? other.tenant
     : field == 1 ? other.request_id
     : field == 2 ? other.path
                  : other.body) = "other";
    EXPECT_FALSE(StreamTicket::open(text, "secret", other).ok()) << field;
  }
  // No byte of it may be another.
  for (size_t i = 0; i < text.size(); ++i) {
    std::string changed = text;
    changed[i] = changed[i] == '0' ? '1' : '0';
    EXPECT_FALSE(StreamTicket::open(changed, "secret", kOf).ok()) << changed;
  }
  for (const std::string_view bad : {"", "1", "1-", "1-2", "1-2-", "-1-2-3", "x-y-z"}) {
    EXPECT_FALSE(StreamTicket::open(bad, "secret", kOf).ok()) << bad;
  }
  EXPECT_FALSE(StreamTicket::open(text + "0", "secret", kOf).ok());
  EXPECT_FALSE(StreamTicket::open(text.substr(0, text.size() - 1), "secret", kOf).ok());
}

TEST(StreamTicket, places_are_read_as_they_are_written) {
  const StreamPlace place{.choices = {{.tokens = 17, .finished = true}, {.tokens = 9}},
                          .digest = 255};
  EXPECT_EQ(place.text(), "17f.9-00000000000000ff");
  const auto read = StreamPlace::parse(place.text());
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->choices, place.choices);
  EXPECT_EQ(read->digest, place.digest);
  EXPECT_EQ(StreamPlace{}.text(), "0-0000000000000000");

  std::string many = "1";
  for (size_t i = 0; i < StreamPlace::kChoicesMax; ++i) many += ".1";
  for (const std::string& bad :
       {std::string(), std::string("17"), std::string("17-"), std::string("17-ff"),
        std::string("-17-00000000000000ff"), std::string("17.-00000000000000ff"),
        std::string("f-00000000000000ff"), std::string("17ff-00000000000000ff"),
        std::string("17-00000000000000fg"), std::string("17-00000000000000ff "),
        std::string("17--0000000000000ff"), std::string("99999999999-00000000000000ff"),
        many + "-00000000000000ff"}) {
    EXPECT_FALSE(StreamPlace::parse(bad).ok()) << bad;
  }
}

TEST(SaidTokens, are_cut_to_what_a_client_has) {
  for (const bool with_logprobs : {false, true}) {
    SaidTokens some;
    ASSERT_TRUE(some.add(tokens(0, {5, 6}, with_logprobs)).ok());
    const uint64_t at_two = some.digest();
    EXPECT_NE(at_two, 0u);
    ASSERT_TRUE(some.add(tokens(2, {7}, with_logprobs)).ok());
    EXPECT_NE(some.digest(), at_two);
    ASSERT_TRUE(some.finish("end").ok());

    SaidTokens whole = some;
    whole.cut(3, true);
    EXPECT_TRUE(whole.finished());
    EXPECT_EQ(whole.digest(), some.digest());
    some.cut(2, false);
    EXPECT_EQ(some.count(), 2u);
    EXPECT_FALSE(some.finished());
    EXPECT_EQ(some.digest(), at_two);
    // The rest is said again, to the same end.
    ASSERT_TRUE(some.add(tokens(2, {7}, with_logprobs)).ok());
    EXPECT_EQ(some.digest(), whole.digest());
    some.cut(0, false);
    EXPECT_EQ(some.digest(), 0u);
  }
}

TEST(SaidTokens, digests_depend_on_each_token_and_its_place) {
  const auto digest = [](std::vector<TokenId> ids) {
    SaidTokens said;
    EXPECT_TRUE(said.add(tokens(0, std::move(ids))).ok());
    return said.digest();
  };
  EXPECT_NE(digest({1, 2}), digest({2, 1}));
  EXPECT_NE(digest({0}), digest({0, 0}));
  EXPECT_NE(digest({1, 2}), digest({1, 3}));
  EXPECT_EQ(digest({1, 2}), digest({1, 2}));
}

}  // namespace
}  // namespace pelton::gateway
