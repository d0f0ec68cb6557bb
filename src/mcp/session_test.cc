#include "mcp/session.h"

#include <chrono>
#include <future>
#include <thread>
#include <utility>

#include <gtest/gtest.h>

#include "mcp/test_tool_server.h"

namespace pelton::mcp {
namespace {

class SessionTest : public testing::Test {
 protected:
  std::shared_ptr<Session> session(std::chrono::milliseconds time_max = std::chrono::seconds(5)) {
    return Session::make(client_, processes_,
                         {.url = server_.url(),
                          .client_version = "1",
                          .time_max = time_max,
                          .answer_bytes_max = 64 << 10});
  }
  static Result<ToolResult> call(Session& session, std::string name, Json arguments) {
    const auto got = std::make_shared<std::promise<Result<ToolResult>>>();
    session.call_tool(std::move(name), std::move(arguments),
                      [got](Result<ToolResult> result) { got->set_value(std::move(result)); });
    return got->get_future().get();
  }
  static Json code(std::string text) {
    Json arguments;
    arguments.set("code", Json(std::move(text)));
    return arguments;
  }

  TestToolServer server_;
  Processes processes_;
  net::HttpClient client_{{}};
};

TEST_F(SessionTest, BeginsOnceAndCalls) {
  const auto one = session();
  for (const std::string text : {"a", "b"}) {
    const auto result = call(*one, "python", code(text));
    ASSERT_TRUE(result.ok()) << result.error().message;
    EXPECT_EQ(result->text, "python {\"code\":\"" + text + "\"}");
    EXPECT_FALSE(result->is_error);
  }
  EXPECT_EQ(server_.count("initialize"), 1);
  EXPECT_EQ(server_.count("notifications/initialized"), 1);
  EXPECT_EQ(server_.too_early(), 0);
  EXPECT_EQ(server_.without_session(), 0) << "what follows the beginning names the session";
  one->close();
  EXPECT_TRUE(server_.soon([&] { return server_.ended() == 1; }));
  EXPECT_EQ(call(*one, "python", code("c")).error().code, ErrorCode::kCancelled);
}

TEST_F(SessionTest, ListsAllPages) {
  const auto got = std::make_shared<std::promise<Result<std::vector<Tool>>>>();
  session()->list_tools(
      [got](Result<std::vector<Tool>> tools) { got->set_value(std::move(tools)); });
  const auto tools = got->get_future().get();
  ASSERT_TRUE(tools.ok()) << tools.error().message;
  ASSERT_EQ(tools->size(), 4U);
  EXPECT_EQ(tools->front().name, "search");
  EXPECT_EQ(tools->back().name, "python");
  EXPECT_EQ(server_.count("tools/list"), 2);
}

// An answer may come as events, with what the server asks in between.
TEST_F(SessionTest, ReadsStreamsAndAnswersPings) {
  server_.answer_as(TestToolServer::As::kEvents);
  const auto one = session();
  const auto result = call(*one, "python", code("1"));
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(result->text, "python {\"code\":\"1\"}");
  EXPECT_TRUE(server_.soon([&] { return server_.pongs() == 1; }));
  EXPECT_TRUE(server_.soon([&] { return server_.refused() == 1; }));  // it offers nothing
}

TEST_F(SessionTest, WhatIsNoAnswerIsAnError) {
  using As = TestToolServer::As;
  for (const auto& [as, words] : std::initializer_list<std::pair<As, std::string>>{
           {As::kNoJson, "answer is none"},
           {As::kNothing, "ended without one"},
           {As::kOtherId, "ended without one"},
           {As::kStatus, "answered 500"},
           {As::kRefusal, "refuses: no such thing"},
           {As::kManyQuestions, "asks its client without end"},
           {As::kTooLarge, ""},
           {As::kSilence, ""},
           {As::kOtherRevision, "revision '1999-01-01'"}}) {
    server_.answer_as(as);
    const auto result = call(*session(std::chrono::milliseconds(300)), "python", code("x"));
    ASSERT_FALSE(result.ok()) << static_cast<int>(as);
    EXPECT_NE(result.error().message.find(words), std::string::npos) << result.error().message;
  }
}

TEST_F(SessionTest, OneThatCouldNotBeginBeginsWithItsNextUse) {
  server_.answer_as(TestToolServer::As::kOtherRevision);
  const auto one = session();
  EXPECT_FALSE(call(*one, "python", code("x")).ok());
  server_.answer_as(TestToolServer::As::kJson);
  EXPECT_TRUE(call(*one, "python", code("x")).ok());
}

TEST_F(SessionTest, NobodyThereIsUnavailable) {
  const auto one =
      Session::make(client_, processes_, {.url = "http://127.0.0.1:1/mcp", .client_version = "1"});
  EXPECT_EQ(call(*one, "python", code("x")).error().code, ErrorCode::kUnavailable);
}

TEST_F(SessionTest, ClosingEndsWhatIsUnderWay) {
  const auto one = session();
  ASSERT_TRUE(call(*one, "python", code("x")).ok());
  server_.answer_as(TestToolServer::As::kSilence);
  const auto got = std::make_shared<std::promise<Result<ToolResult>>>();
  one->call_tool("python", code("y"),
                 [got](Result<ToolResult> result) { got->set_value(std::move(result)); });
  one->close();
  EXPECT_EQ(got->get_future().get().error().code, ErrorCode::kCancelled);
}

}  // namespace
}  // namespace pelton::mcp
