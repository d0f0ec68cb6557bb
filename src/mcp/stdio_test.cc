// Sessions with a program: what it says line by line, ends, floods and silences, and what is left
// of it afterwards.
#include <chrono>
#include <csignal>
#include <fstream>
#include <future>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mcp/session.h"

namespace pelton::mcp {
namespace {

using ::testing::HasSubstr;

// A server in a few lines of Python: it answers as its argument says.
constexpr const char* kServer = R"(
import json, os, sys, time
how = sys.argv[1]
def say(message): sys.stdout.write(json.dumps(message) + "\n"); sys.stdout.flush()
for line in sys.stdin:
    asked = json.loads(line)
    if "method" not in asked or "id" not in asked: continue
    if asked["method"] == "initialize":
        say({"jsonrpc": "2.0", "id": asked["id"], "result": {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {}}})
        continue
    if how == "dies": sys.exit(3)
    if how == "silent": continue
    if how == "floods":
        while True: sys.stdout.write("x" * 65536)
    if how == "no json": print("hello", flush=True); continue
    if how == "breaks once" or how == "asks once":
        if how == "breaks once": sys.stdout.write('{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"\\ud800"}]}}\n' % asked["id"])
        else: sys.stdout.write('{"jsonrpc":"2.0","id":"p","method":"ping"}\n' * 20)
        sys.stdout.flush()
        how = "late"; continue
    if how == "late": time.sleep(0.4)
    if how == "silent later": how = "silent"
    if how == "asks":
        say({"jsonrpc": "2.0", "id": "p", "method": "ping"})
        if json.loads(sys.stdin.readline()) != {"jsonrpc": "2.0", "id": "p", "result": {}}: sys.exit(4)
    code = asked["params"]["arguments"]["code"]
    text = os.environ.get(code[1:], "unset") if code.startswith("$") else code + " " + str(os.getpid())
    say({"jsonrpc": "2.0", "id": asked["id"], "result": {"content": [{"type": "text", "text": text}]}})
while how == "stays": time.sleep(1)
)";

class Stdio : public testing::Test {
 protected:
  void SetUp() override { std::signal(SIGPIPE, SIG_IGN); }
  std::shared_ptr<Session> session(const std::string& how,
                                   std::chrono::milliseconds time_max = std::chrono::seconds(10)) {
    return Session::make(client_, processes_,
                         {.command = {"python3", "-c", kServer, how},
                          .client_version = "1",
                          .time_max = time_max,
                          .answer_bytes_max = 64 << 10});
  }
  static Result<ToolResult> call(Session& session, const std::string& code) {
    Json arguments;
    arguments.set("code", Json(code));
    const auto got = std::make_shared<std::promise<Result<ToolResult>>>();
    session.call_tool("python", std::move(arguments),
                      [got](Result<ToolResult> result) { got->set_value(std::move(result)); });
    return soon(*got);
  }
  static Result<ToolResult> soon(std::promise<Result<ToolResult>>& got) {
    std::future<Result<ToolResult>> result = got.get_future();
    if (result.wait_for(std::chrono::seconds(15)) == std::future_status::ready) return result.get();
    return Error{ErrorCode::kInternal, "the call has not ended", ""};
  }
  bool all_end() const {
    for (int i = 0; i < 5000 && processes_.count() > 0; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return processes_.count() == 0;
  }

  Processes processes_;
  net::HttpClient client_{{}};
};

TEST_F(Stdio, OneProgramForASession) {
  const auto one = session("well");
  const auto first = call(*one, "a");
  ASSERT_TRUE(first.ok()) << first.error().message;
  const auto second = call(*one, "b");
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(first->text.substr(1), second->text.substr(1)) << "the same process";
  const auto other = session("well");
  EXPECT_NE(call(*other, "a")->text, first->text);
  EXPECT_EQ(processes_.count(), 2);
  one->close();
  other->close();
  EXPECT_TRUE(all_end());
  EXPECT_EQ(call(*one, "c").error().code, ErrorCode::kCancelled);
}

TEST_F(Stdio, NoSecretsOfOurEnvironment) {
  ::setenv("PELTON_API_KEY", "secret", 1);
  const auto one = session("well");
  EXPECT_EQ(call(*one, "$PELTON_API_KEY")->text, "unset");
  EXPECT_NE(call(*one, "$PATH")->text, "unset");
}

TEST_F(Stdio, AnswersPings) {
  EXPECT_TRUE(call(*session("asks"), "a").ok());
}

TEST_F(Stdio, WhatIsNoAnswerIsAnError) {
  for (const auto& [how, words] : std::initializer_list<std::pair<const char*, const char*>>{
           {"dies", "exit code 3"},
           {"no json", "answer is none"},
           {"floods", "larger than 65536 bytes"}}) {
    const auto one = session(how);
    const auto result = call(*one, "x");
    ASSERT_FALSE(result.ok()) << how;
    EXPECT_THAT(result.error().message, HasSubstr(words));
    one->close();
  }
  EXPECT_TRUE(all_end());
}

TEST_F(Stdio, OneThatEndsIsBegunAnew) {
  const auto one = session("dies");
  EXPECT_EQ(call(*one, "x").error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(call(*one, "x").error().message, HasSubstr("exit code 3"));
}

// A program that prints lines faster than anybody reads them is one of many.
TEST_F(Stdio, OneThatPrintsWithoutEndKeepsNobodyElseWaiting) {
  const auto chatter = Session::make(
      client_, processes_,
      {.command = {"yes", "1"}, .client_version = "1", .time_max = std::chrono::seconds(2)});
  const auto got = std::make_shared<std::promise<Result<ToolResult>>>();
  chatter->call_tool("python", Json(Json::Object{}),
                     [got](Result<ToolResult> result) { got->set_value(std::move(result)); });
  EXPECT_TRUE(call(*session("well"), "a").ok());
  EXPECT_FALSE(got->get_future().get().ok());
  chatter->close();
}

TEST_F(Stdio, WhereChildrenAreNotWaitedFor) {
  std::signal(SIGCHLD, SIG_IGN);
  const auto one = session("dies");
  EXPECT_THAT(call(*one, "x").error().message, HasSubstr("has ended"));
  one->close();
  EXPECT_TRUE(all_end());
  std::signal(SIGCHLD, SIG_DFL);
}

TEST_F(Stdio, SilenceHasAnEnd) {
  const auto one = session("silent", std::chrono::milliseconds(800));
  EXPECT_EQ(call(*one, "x").error().code, ErrorCode::kDeadline);
}

// What has failed one call is not the next one's, whose program it does not end.
TEST_F(Stdio, ABrokenAnswerFailsItsCallAlone) {
  for (const auto& [how, words] : std::initializer_list<std::pair<const char*, const char*>>{
           {"breaks once", "answer is none"}, {"asks once", "without end"}}) {
    const auto one = session(how, std::chrono::milliseconds(2100));
    const auto broken = call(*one, "x");
    ASSERT_FALSE(broken.ok()) << how;
    EXPECT_THAT(broken.error().message, HasSubstr(words));
    std::this_thread::sleep_for(std::chrono::milliseconds(1350));
    const auto next = call(*one, "y");
    EXPECT_TRUE(next.ok()) << how << ": " << next.error().message;
  }
}

// The first one's end takes the program from the second.
TEST_F(Stdio, EachCallHasAnEndWithoutAProgramToo) {
  const auto one = session("silent later", std::chrono::milliseconds(2400));
  ASSERT_TRUE(call(*one, "a").ok());
  std::promise<Result<ToolResult>> first;
  std::promise<Result<ToolResult>> second;
  for (auto* const got : {&first, &second}) {
    one->call_tool("python", Json(Json::Object{}),
                   [got](Result<ToolResult> result) { got->set_value(std::move(result)); });
    std::this_thread::sleep_for(std::chrono::milliseconds(900));
  }
  EXPECT_EQ(soon(first).error().code, ErrorCode::kDeadline);
  EXPECT_EQ(soon(second).error().code, ErrorCode::kDeadline);
}

TEST_F(Stdio, ClosingEndsWhatIsUnderWayAndWhoStays) {
  const auto one = session("silent");
  const auto got = std::make_shared<std::promise<Result<ToolResult>>>();
  one->call_tool("python", Json(Json::Object{}),
                 [got](Result<ToolResult> result) { got->set_value(std::move(result)); });
  one->close();
  EXPECT_EQ(got->get_future().get().error().code, ErrorCode::kCancelled);
  const auto stays = session("stays");
  EXPECT_TRUE(call(*stays, "x").ok());
  stays->close();
  EXPECT_TRUE(all_end()) << "it is killed when its input's end does not end it";
}

TEST_F(Stdio, WhatIsNotThere) {
  const auto one =
      Session::make(client_, processes_, {.command = {"/nowhere/server"}, .client_version = "1"});
  const auto result = call(*one, "x");
  EXPECT_EQ(result.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(result.error().message, HasSubstr("/nowhere/server"));
}

}  // namespace
}  // namespace pelton::mcp
