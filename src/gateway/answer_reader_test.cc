#include "gateway/answer_reader.h"

#include <gtest/gtest.h>

#include "gateway/client_headers.h"
#include "gateway/interruption.h"
#include "gateway/said_tokens.h"

namespace pelton::gateway {
namespace {

using cluster::append_frame;
using cluster::Frame;
using cluster::FrameType;

std::string tokens(uint32_t first, std::initializer_list<TokenId> ids) {
  cluster::TokenList list{.first = first, .with_logprobs = false, .tokens = {}};
  for (const TokenId id : ids) list.tokens.push_back({.token = id});
  return encode(list);
}

std::string two_choices() {
  std::string wire;
  append_frame(wire, {.type = FrameType::kHead,
                      .flags = Frame::kMore,
                      .payload = R"({"status":200,"headers":[],"streamed":true})"});
  append_frame(wire,
               {.type = FrameType::kTokens, .flags = Frame::kMore, .payload = tokens(0, {1, 2})});
  append_frame(
      wire,
      {.type = FrameType::kTokens, .flags = Frame::kMore, .choice = 1, .payload = tokens(0, {3})});
  append_frame(wire, {.type = FrameType::kBytes, .payload = "both"});
  return wire;
}

TEST(AnswerReader, HandsOutWholeUpdatesOnly) {
  const std::string wire = two_choices();
  for (size_t cut = 0; cut < wire.size(); ++cut) {
    AnswerReader reader;
    reader.push(std::string_view(wire).substr(0, cut));
    EXPECT_FALSE((*reader.next()).has_value()) << cut;
    reader.push(std::string_view(wire).substr(cut));
    const auto update = *reader.next();
    ASSERT_TRUE(update.has_value());
    EXPECT_EQ(update->tokens.size(), 2u);
    EXPECT_EQ(update->bytes, "both");
    EXPECT_FALSE(update->last);
  }
}

// GW-07, GW-08: what no worker of ours would say.
TEST(AnswerReader, RefusesWhatIsNoAnswer) {
  const auto refused = [](const std::string& wire) {
    AnswerReader reader;
    reader.push(wire);
    for (;;) {
      const auto update = reader.next();
      if (!update.ok()) return true;
      if (!*update) return false;
    }
  };
  std::string after_the_end = two_choices();
  append_frame(after_the_end, {.type = FrameType::kBytes, .flags = Frame::kLast, .payload = "x"});
  EXPECT_FALSE(refused(after_the_end));
  append_frame(after_the_end, {.type = FrameType::kBytes, .payload = "y"});
  EXPECT_TRUE(refused(after_the_end));
  EXPECT_TRUE(refused(two_choices() + two_choices())) << "two heads";
  std::string headless;
  append_frame(headless, {.type = FrameType::kBytes, .payload = "x"});
  EXPECT_TRUE(refused(headless));
  std::string foreign;
  append_frame(foreign, {.type = FrameType::kRun, .payload = "{}"});
  EXPECT_TRUE(refused(foreign));
}

TEST(SaidTokens, TakesThemOnceAndInOrder) {
  SaidTokens said;
  EXPECT_TRUE(said.add(*cluster::decode_token_list(tokens(0, {5, 6}))).ok());
  EXPECT_FALSE(said.add(*cluster::decode_token_list(tokens(1, {6}))).ok());
  EXPECT_FALSE(said.add(*cluster::decode_token_list(tokens(3, {6}))).ok());
  EXPECT_TRUE(said.add({.first = 2,
                        .with_logprobs = true,
                        .tokens = {{.token = 7, .logprob = -1.0f, .top = {{8, -2.0f}}}}})
                  .ok());
  EXPECT_TRUE(said.finish(R"({"reason":"stop"})").ok());
  EXPECT_FALSE(said.add(*cluster::decode_token_list(tokens(3, {6}))).ok());
  EXPECT_FALSE(said.finish(R"({"reason":"stop"})").ok());
  std::string wire;
  said.append_frames(4, wire);
  AnswerReader reader;
  reader.push(wire);
  const auto update = *reader.next();
  ASSERT_TRUE(update.has_value());
  EXPECT_EQ(update->tokens.at(0).first, 4);
  const cluster::TokenList& list = update->tokens.at(0).second;
  ASSERT_EQ(list.tokens.size(), 3u);
  EXPECT_EQ(list.tokens[1].token, 6);
  EXPECT_EQ(list.tokens[2].top.at(0).first, 8);
}

// GW-09: what only parts of a fleet may say never comes from a client.
TEST(ClientHeaders, InternalOnesAreStripped) {
  net::HttpHeaders headers;
  for (const char* name :
       {"Authorization", "X-Api-Key", "X-Internal-Tenant", "x-kv-transfer", "X-Pelton-Resume",
        "X-Prefiller-Host-Port", "Transfer-Encoding", "Cookie"}) {
    headers.add(name, "x");
  }
  headers.add("Accept", "text/event-stream");
  headers.add("traceparent", std::string(1000, 'x'));
  const cluster::HeaderFields passed = forwarded_headers(headers);
  ASSERT_EQ(passed.size(), 1u);
  EXPECT_EQ(passed[0].first, "Accept");
}

TEST(Interruption, IsToldInTheClientsProtocol) {
  const api::ApiError error{.status = 502,
                            .message = "gone",
                            .type = "server_error",
                            .param = {},
                            .code = "stream_interrupted"};
  EXPECT_TRUE(interruption_event("/v1/chat/completions", error).starts_with("data: {\"error\":"));
  EXPECT_TRUE(interruption_event("/v1/messages", error).starts_with("event: error\ndata: {"));
  EXPECT_NE(interruption_event("/v1/responses", error).find("\"code\":\"stream_interrupted\""),
            std::string::npos);
}

}  // namespace
}  // namespace pelton::gateway
