// gRPC's Session with a real client of its library: what each turn says is what Generate says.
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "server/catalogue_rows.h"
#include "server/grpc_fixture.h"

namespace pelton::server {
namespace {

// Debian's libgrpc is not built for ThreadSanitizer, which then does not see its locks.
#if !defined(__SANITIZE_THREAD__)

// Answers by the last user's words; "what did I say" only where the past turn is in the prompt.
constexpr std::string_view kScript = R"({"context": 4000, "rules": [
  {"when": "", "then": "<|channel|>analysis<|message|>Think.<|end|><|start|>assistant<|channel|>final<|message|>Hello.<|return|>"},
  {"when": "weather", "then": "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{\"city\":\"Bern\"}<|call|>"},
  {"when": "sunny", "then": "<|channel|>final<|message|>It is sunny.<|return|>"}
]})";
constexpr std::string_view kEndless = R"({"step_ms": 2, "context": 8000, "rules": [
  {"when": "", "then": ["<|channel|>final<|message|>", {"text": "on and on ", "times": 60}, "<|return|>"]},
  {"when": "short", "then": "<|channel|>final<|message|>Done.<|return|>"}]})";

v1::SessionRequest turn_of(v1::GenerateRequest request, bool continues = false) {
  v1::SessionRequest asked;
  *asked.mutable_generate() = std::move(request);
  asked.set_continues(continues);
  return asked;
}

v1::SessionRequest cancel_of(uint64_t turn) {
  v1::SessionRequest asked;
  asked.mutable_cancel()->set_turn(turn);
  return asked;
}

class SessionOver {
 public:
  explicit SessionOver(GrpcFixtureOf& grpc,
                       const std::map<std::string, std::string>& metadata = {}) {
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    for (const auto& [key, value] : metadata) context.AddMetadata(key, value);
    stream = grpc.stub->Session(&context);
  }

  // The next turn's end: all that is said of it.
  GrpcSaid read_turn(uint64_t number) {
    GrpcSaid said;
    v1::SessionChunk chunk;
    while (stream->Read(&chunk)) {
      EXPECT_EQ(chunk.turn(), number);
      if (chunk.has_error()) {
        said.status = grpc::Status(static_cast<grpc::StatusCode>(chunk.error().code()),
                                   chunk.error().message());
        const Json object = parsed(chunk.error().object());
        said.error_code = object.find("error")->string("code").value_or("");
        said.error_param = object.find("error")->string("param").value_or("");
        return said;
      }
      add(chunk.chunk(), said);
      if (!said.finish.empty()) return said;
    }
    ADD_FAILURE() << "the session ended in turn " << number;
    return said;
  }

  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReaderWriter<v1::SessionRequest, v1::SessionChunk>> stream;
};

TEST(GrpcSession, TurnsSayWhatGenerateSays) {
  GrpcFixtureOf grpc(kScript);
  const GrpcSaid alone = grpc.generate(grpc_chat("hi"));
  SessionOver session(grpc);
  session.stream->Write(turn_of(grpc_chat("hi")));
  session.stream->Write(turn_of(grpc_text("raw")));
  const GrpcSaid first = session.read_turn(1);
  EXPECT_EQ(first.text, alone.text);
  EXPECT_EQ(first.reasoning, alone.reasoning);
  EXPECT_EQ(first.tokens, alone.tokens);
  EXPECT_EQ(first.finish, "stop");
  EXPECT_EQ(session.read_turn(2).tokens, grpc.generate(grpc_text("raw")).tokens);
  session.stream->WritesDone();
  v1::SessionChunk none;
  EXPECT_FALSE(session.stream->Read(&none));
  EXPECT_TRUE(session.stream->Finish().ok());
  EXPECT_TRUE(becomes_clean(grpc.fixture.engine()));
}

TEST(GrpcSession, AToolLoopSaysOnlyWhatIsNew) {
  GrpcFixtureOf grpc(kScript);
  SessionOver session(grpc);
  v1::GenerateRequest request = grpc_chat("weather?");
  v1::Tool& tool = *request.mutable_chat()->add_tools();
  tool.set_name("get_weather");
  tool.set_parameters(R"({"type":"object","properties":{"city":{"type":"string"}}})");
  session.stream->Write(turn_of(request));
  v1::SessionChunk chunk;
  std::string id;
  while (session.stream->Read(&chunk)) {
    for (const v1::ToolCallDelta& call : chunk.chunk().tool_calls()) id += call.id();
    if (!chunk.chunk().finish_reason().empty()) break;
  }
  EXPECT_EQ(chunk.chunk().finish_reason(), "tool_calls");
  v1::GenerateRequest result;
  v1::Message& message = *result.mutable_chat()->add_messages();
  message.set_role("tool");
  message.set_tool_call_id(id);
  message.set_content("sunny");
  session.stream->Write(turn_of(result, true));
  EXPECT_EQ(session.read_turn(2).text, "It is sunny.");
  // The call's tokens were found, not written anew.
  EXPECT_EQ(grpc.fixture.server().services().turn_cache.counts().found, 1);
}

TEST(GrpcSession, ATurnCanBeCancelledAndTheSessionGoesOn) {
  GrpcFixtureOf grpc(kEndless);
  SessionOver session(grpc);
  session.stream->Write(turn_of(grpc_chat("long")));
  session.stream->Write(turn_of(grpc_chat("short")));
  v1::SessionChunk chunk;
  ASSERT_TRUE(session.stream->Read(&chunk));
  EXPECT_EQ(chunk.turn(), 1u);
  session.stream->Write(cancel_of(0));
  EXPECT_EQ(session.read_turn(1).finish, "cancelled");
  EXPECT_EQ(session.read_turn(2).text, "Done.");
  // One that waits, by its number; one that has ended: nothing; one that was never asked for.
  session.stream->Write(turn_of(grpc_chat("long")));
  session.stream->Write(turn_of(grpc_chat("long")));
  session.stream->Write(cancel_of(4));
  session.stream->Write(cancel_of(1));
  while (session.stream->Read(&chunk) && chunk.turn() == 3) {
  }
  EXPECT_EQ(chunk.turn(), 4u);
  EXPECT_EQ(chunk.chunk().finish_reason(), "cancelled");
  session.stream->Write(cancel_of(9));
  while (session.stream->Read(&chunk) && chunk.turn() == 3) {
  }
  EXPECT_EQ(chunk.turn(), 0u);
  EXPECT_EQ(chunk.error().code(), grpc::StatusCode::INVALID_ARGUMENT);
  session.context.TryCancel();
  EXPECT_EQ(session.stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(becomes_clean(grpc.fixture.engine()));
}

TEST(GrpcSession, BadTurnsAreAnsweredAndTheSessionGoesOn) {
  GrpcFixtureOf grpc(kScript);
  SessionOver session(grpc);
  session.stream->Write(turn_of(grpc_chat("hi"), true));
  EXPECT_EQ(session.read_turn(1).error_param, "continues");
  session.stream->Write(turn_of({}));
  EXPECT_EQ(session.read_turn(2).error_param, "prompt");
  v1::GenerateRequest hot = grpc_chat("hi");
  hot.mutable_sampling()->set_temperature(99);
  session.stream->Write(turn_of(hot));
  EXPECT_EQ(session.read_turn(3).error_param, "temperature");
  v1::GenerateRequest other = grpc_chat("hi");
  other.set_model("nobody");
  session.stream->Write(turn_of(other));
  const GrpcSaid missing = session.read_turn(4);
  EXPECT_EQ(missing.status.error_code(), grpc::StatusCode::NOT_FOUND);
  session.stream->Write(v1::SessionRequest());
  EXPECT_EQ(session.read_turn(0).error_param, "what");
  session.stream->Write(turn_of(grpc_chat("hi")));
  EXPECT_EQ(session.read_turn(5).text, "Hello.");
}

TEST(GrpcSession, OneIsMadeOneWaitsAThirdIsRefused) {
  GrpcFixtureOf grpc(kEndless);
  SessionOver session(grpc);
  for (int i = 0; i < 3; ++i) session.stream->Write(turn_of(grpc_chat("long")));
  v1::SessionChunk chunk;
  while (session.stream->Read(&chunk) && chunk.turn() == 1 && !chunk.has_error()) {
  }
  EXPECT_EQ(chunk.turn(), 3u);
  EXPECT_EQ(chunk.error().code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST(GrpcSession, WhoLeavesFreesThePlace) {
  GrpcFixtureOf grpc(kEndless);
  {
    SessionOver session(grpc);
    session.stream->Write(turn_of(grpc_chat("long")));
    v1::SessionChunk chunk;
    ASSERT_TRUE(session.stream->Read(&chunk));
    session.context.TryCancel();
    EXPECT_EQ(session.stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  EXPECT_TRUE(becomes_clean(grpc.fixture.engine()));
  const auto& book = grpc.fixture.server().services().statistics;
  for (int i = 0; i < 200 && book.counts().open() > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(book.counts().open(), 0);
}

TEST(GrpcSession, ADrainLetsTheRunningTurnEnd) {
  GrpcFixtureOf grpc(kEndless);
  SessionOver idle(grpc);
  SessionOver busy(grpc);
  idle.stream->Write(turn_of(grpc_chat("short")));
  EXPECT_EQ(idle.read_turn(1).text, "Done.");
  busy.stream->Write(turn_of(grpc_chat("long")));
  v1::SessionChunk chunk;
  ASSERT_TRUE(busy.stream->Read(&chunk));
  std::thread closing([&] { grpc.listener().close(std::chrono::seconds(30)); });
  EXPECT_FALSE(idle.stream->Read(&chunk));
  EXPECT_EQ(idle.stream->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(busy.read_turn(1).finish, "stop");
  EXPECT_FALSE(busy.stream->Read(&chunk));
  EXPECT_EQ(busy.stream->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  closing.join();
}

TEST(GrpcSession, WithoutTurnsItIsEnded) {
  GrpcFixtureOf grpc(kScript);
  GrpcListener listener(grpc.fixture.server().services(), grpc.fixture.log());
  ASSERT_TRUE(listener.open({.session_idle_time_max = std::chrono::milliseconds(400)}).ok());
  grpc.stub = v1::Inference::NewStub(grpc::CreateChannel(
      "127.0.0.1:" + std::to_string(listener.port()), grpc::InsecureChannelCredentials()));
  SessionOver session(grpc);
  session.stream->Write(turn_of(grpc_chat("hi")));
  EXPECT_EQ(session.read_turn(1).text, "Hello.");
  const auto begun = std::chrono::steady_clock::now();
  v1::SessionChunk none;
  EXPECT_FALSE(session.stream->Read(&none));
  EXPECT_EQ(session.stream->Finish().error_code(), grpc::StatusCode::ABORTED);
  EXPECT_GT(std::chrono::steady_clock::now() - begun, std::chrono::milliseconds(300));
}

TEST(GrpcSession, AKeyThatIsTakenAwayEndsNoSessionButItsTurns) {
  ServerFixture::Options options;
  options.server.keys.add("secret");
  GrpcFixtureOf grpc(kScript, std::move(options));
  SessionOver session(grpc, {{"x-api-key", "secret"}});
  session.stream->Write(turn_of(grpc_chat("hi")));
  EXPECT_EQ(session.read_turn(1).text, "Hello.");
  access::ApiKeys others;
  others.add("other");
  grpc.fixture.server().services().access_control.replace_keys(std::move(others));
  session.stream->Write(turn_of(grpc_chat("hi")));
  EXPECT_EQ(session.read_turn(2).status.error_code(), grpc::StatusCode::UNAUTHENTICATED);
}

// What a refused turn brought is not kept, and neither are long conversations.
TEST(GrpcSession, WhatIsKeptIsBounded) {
  GrpcFixtureOf grpc(kScript);
  SessionOver session(grpc);
  v1::GenerateRequest long_one = grpc_chat("hi");
  v1::Message& past = *long_one.mutable_chat()->add_messages();
  past.set_role("assistant");
  past.set_content("Hello.");
  past.set_reasoning(std::string(5 << 20, 'x'));
  v1::Message& last = *long_one.mutable_chat()->add_messages();
  last.set_role("user");
  last.set_content("hi");
  session.stream->Write(turn_of(long_one));
  EXPECT_EQ(session.read_turn(1).text, "Hello.");
  session.stream->Write(turn_of(grpc_chat("hi"), true));
  const GrpcSaid refused = session.read_turn(2);
  EXPECT_EQ(refused.error_param, "continues");
  session.stream->Write(turn_of(grpc_chat("hi")));
  EXPECT_EQ(session.read_turn(3).text, "Hello.");
  session.stream->Write(turn_of(grpc_chat("hi"), true));
  EXPECT_EQ(session.read_turn(4).text, "Hello.");
}

TEST(GrpcSession, AKeyIsAskedFor) {
  ServerFixture::Options options;
  options.server.keys.add("secret");
  GrpcFixtureOf grpc(kScript, std::move(options));
  SessionOver session(grpc);
  v1::SessionChunk none;
  EXPECT_FALSE(session.stream->Read(&none));
  EXPECT_EQ(session.stream->Finish().error_code(), grpc::StatusCode::UNAUTHENTICATED);
}

#endif

}  // namespace
}  // namespace pelton::server
