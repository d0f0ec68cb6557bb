#include "gateway/foreign_answer.h"

#include <gtest/gtest.h>

namespace pelton::gateway {
namespace {

ForeignAnswer stream(const std::string& path) {
  ForeignAnswer answer(path);
  net::HttpHeaders headers;
  headers.add("Content-Type", "text/event-stream; charset=utf-8");
  answer.begin(200, headers);
  return answer;
}

ForeignAnswer body(int status, const char* type = "application/json") {
  ForeignAnswer answer("/v1/chat/completions");
  net::HttpHeaders headers;
  headers.add("Content-Type", type);
  answer.begin(status, headers);
  return answer;
}

TEST(ForeignAnswer, HandsOnWholeEventsHoweverTheyAreCut) {
  const std::string wire =
      "data: {\"a\":1}\n\n: quiet\r\n\r\ndata: {\"a\":2}\r\n\r\ndata: [DONE]\n\nmore";
  for (size_t step = 1; step <= wire.size(); ++step) {
    ForeignAnswer answer = stream("/v1/chat/completions");
    std::string passed;
    for (size_t at = 0; at < wire.size(); at += step) {
      const auto events = answer.push(std::string_view(wire).substr(at, step));
      ASSERT_TRUE(events.ok());
      EXPECT_TRUE(events->empty() || events->ends_with('\n'));
      passed += *events;
    }
    EXPECT_EQ(passed, wire.substr(0, wire.size() - 4)) << "GW-08: nothing after the end";
    EXPECT_TRUE(answer.ended());
    EXPECT_TRUE(answer.finish().ok());
  }
}

TEST(ForeignAnswer, AStreamThatStopsHasNotEnded) {
  ForeignAnswer answer = stream("/v1/chat/completions");
  EXPECT_EQ(*answer.push("data: {}\n\ndata: [DO"), "data: {}\n\n");
  EXPECT_FALSE(answer.finish().ok());
}

TEST(ForeignAnswer, EachProtocolEndsInItsOwnWay) {
  ForeignAnswer messages = stream("/v1/messages");
  ASSERT_TRUE(messages.push("event: x\ndata: {\"type\":\"message_delta\"}\n\n").ok());
  EXPECT_FALSE(messages.ended());
  ASSERT_TRUE(messages.push("event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n").ok());
  EXPECT_TRUE(messages.ended());
  ForeignAnswer responses = stream("/v1/responses");
  ASSERT_TRUE(responses.push("data: {\"type\":\"response.completed\"}\n\n").ok());
  EXPECT_TRUE(responses.ended());
}

TEST(ForeignAnswer, AStreamOfPicturesMayJustEndBehindTheLast) {
  const std::string partial =
      "event: image_generation.partial_image\ndata: "
      "{\"type\":\"image_generation.partial_image\"}\n\n";
  const std::string last =
      "event: image_generation.completed\ndata: {\"type\":\"image_generation.completed\"}\n\n";
  const auto ends = [](const std::string& wire, const std::string& path) {
    ForeignAnswer answer = stream(path);
    EXPECT_TRUE(answer.push(wire).ok());
    return answer.finish().ok();
  };
  const std::string path = "/v1/images/generations";
  EXPECT_TRUE(ends(partial + last, path));
  EXPECT_TRUE(ends("data: {\"type\":\"image_edit.completed\"}\n\n", "/v1/images/edits"));
  EXPECT_TRUE(ends(last + "data: [DONE]\n\n", path));
  EXPECT_FALSE(ends(partial, path));
  EXPECT_FALSE(ends(last + partial, path)) << "another picture was to come";
  EXPECT_FALSE(ends(last + "data: {", path));
  EXPECT_FALSE(ends(last, "/v1/chat/completions"));
}

TEST(ForeignAnswer, WhatIsExpectedIsAskedOfIt) {
  net::HttpHeaders page;
  page.add("Content-Type", "text/html");
  ForeignAnswer answer("/v1/videos", {.body_bytes_max = 10, .json = true});
  answer.begin(200, page);
  ASSERT_TRUE(answer.push("<html>").ok());
  EXPECT_FALSE(answer.finish().ok());
  EXPECT_FALSE(answer.push("beyond").ok());
}

// GW-07.
TEST(ForeignAnswer, WhatIsNoAnswerIsNotPassedOn) {
  ForeignAnswer page = body(200, "text/html");
  ASSERT_TRUE(page.push("<html>busy</html>").ok());
  EXPECT_FALSE(page.finish().ok());
  ForeignAnswer half = body(200, "Application/JSON");
  ASSERT_TRUE(half.push("{\"a\":").ok());
  EXPECT_FALSE(half.finish().ok());
  EXPECT_FALSE(stream("/v1/chat/completions").push("data: [DONE]\n\n").ok());
  EXPECT_FALSE(stream("/v1/completions").push("data: {\"a\":\n\ndata: [DONE]\n\n").ok());
}

TEST(ForeignAnswer, AServersOwnFieldsStayWithIt) {
  net::HttpHeaders headers;
  for (const char* name : {"Set-Cookie", "X-RateLimit-Remaining", "x-request-id", "x-mine"}) {
    headers.add(name, "1");
  }
  ForeignAnswer answer("/v1/completions");
  answer.begin(200, headers);
  ASSERT_EQ(answer.head().headers.size(), 1u);
  EXPECT_EQ(answer.head().headers.front().first, "x-mine");
}

// GW-07.
TEST(ForeignAnswer, ABodyIsWholeOrNone) {
  ForeignAnswer whole = body(200);
  ASSERT_TRUE(whole.push("{\"a\":").ok());
  ASSERT_TRUE(whole.push("1}").ok());
  EXPECT_EQ(*whole.finish(), "{\"a\":1}");
  ForeignAnswer half = body(200);
  ASSERT_TRUE(half.push("{\"a\":").ok());
  EXPECT_FALSE(half.finish().ok());
  ForeignAnswer empty = body(200);
  EXPECT_FALSE(empty.finish().ok());
  ForeignAnswer refusal = body(400, "text/plain");
  ASSERT_TRUE(refusal.push("no").ok());
  EXPECT_EQ(*refusal.finish(), "no");
  EXPECT_FALSE(ForeignAnswer("/v1/completions").finish().ok());
}

}  // namespace
}  // namespace pelton::gateway
