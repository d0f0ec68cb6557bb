// /v1/responses over a WebSocket, several turns to a connection.
#include "server/response_socket.h"

#include <chrono>
#include <string>
#include <string_view>
#include <thread>

#include <gtest/gtest.h>

#include "net/test_websocket.h"
#include "server/response_stream_text.h"
#include "server/server_fixture.h"

namespace pelton::server {
namespace {

constexpr std::string_view kScript = R"({"step_ms": 1, "rules": [
  {"when": "", "then": "<|channel|>analysis<|message|>Think.<|end|><|start|>assistant<|channel|>final<|message|>Hello world.<|return|>"},
  {"when": "weather", "then": "<|channel|>analysis<|message|>Call.<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{\"city\": \"Bern\"}<|call|>"},
  {"when": "sunny", "then": "<|channel|>final<|message|>It is sunny.<|return|>"},
  {"when": "endless", "then": ["<|channel|>final<|message|>", {"text": "on and on ", "times": 300}]}
]})";

std::string create(std::string_view members) {
  return R"({"type":"response.create",)" + std::string(members) + "}";
}

Json next(net::TestWebSocket& socket) {
  const net::TestWebSocket::Frame frame = socket.read();
  EXPECT_EQ(frame.opcode, net::WebSocketOpcode::kText) << frame.close_code();
  return frame.opcode == net::WebSocketOpcode::kText ? parsed(frame.payload) : Json();
}

// All events of one response; its object.
struct Turn {
  ResponseText text;
  Json response;
};
Turn read_turn(net::TestWebSocket& socket) {
  ResponseStreamReader reader;
  Json last;
  while (!reader.over() && !testing::Test::HasFailure()) {
    last = next(socket);
    if (last.is_null()) break;
    reader.event(last);
  }
  const Json* response = last.find("response");
  return {reader.text, response == nullptr ? Json() : *response};
}

TEST(ResponseSocket, SaysWhatHttpSays) {
  ServerFixture fixture(kScript, {});
  net::TestWebSocket socket(fixture.http().port(), "/v1/responses");
  ASSERT_TRUE(socket.open()) << socket.head();
  for (const char* input : {R"("input":"hi")", R"("input":"weather?","temperature":0.5)",
                            R"("input":"endless","max_output_tokens":40)"}) {
    socket.text(create(input));
    const Turn turn = read_turn(socket);
    const net::HttpResponse whole = fixture.post("/v1/responses", "{" + std::string(input) + "}");
    EXPECT_EQ(turn.text, text_of_response(parsed(whole.body)));
  }
}

TEST(ResponseSocket, GoesOnFromWhatIsNotStored) {
  ServerFixture::Options options;
  options.server.sampled_turn_tokens_max = 0;
  ServerFixture fixture(kScript, std::move(options));
  net::TestWebSocket socket(fixture.http().port(), "/v1/responses");
  const std::string tools = R"("tools":[{"type":"function","name":"get_weather"}],)";
  socket.text(create(tools + R"("input":"weather?","store":false)"));
  const Turn first = read_turn(socket);
  ASSERT_EQ(first.text.items.back().type, "function_call");
  const std::string call_id = *first.response.find("output")->as_array().back().string("call_id");
  const std::string follow = tools + R"("store":false,"previous_response_id":")" +
                             *first.response.string("id") +
                             R"(","input":[{"type":"function_call_output","call_id":")" + call_id +
                             R"(","output":"sunny"}])";
  socket.text(create(follow));
  const Turn second = read_turn(socket);
  EXPECT_EQ(second.text.items.at(0).text, "It is sunny.");
  const int block = fixture.engine().capacity().block_tokens;
  const int64_t known = *first.response.find("usage")->integer("total_tokens");
  EXPECT_GE(second.response.find("usage")->find("input_tokens_details")->integer("cached_tokens"),
            (known - 1) / block * block);
  // Another connection does not know it.
  net::TestWebSocket other(fixture.http().port(), "/v1/responses");
  other.text(create(follow));
  EXPECT_EQ(next(other).find("error")->string("code"), "previous_response_not_found");
}

TEST(ResponseSocket, ErrorsAreEventsAndEndNothing) {
  ServerFixture fixture(kScript, {});
  net::TestWebSocket socket(fixture.http().port(), "/v1/responses");
  struct Case {
    std::string message;
    int status;
    std::string_view param;
  };
  const Case cases[] = {
      {"{", 400, ""},
      {"[]", 400, "type"},
      {R"({"type":"response.sing"})", 400, "type"},
      {R"({"type":"response.cancel"})", 400, "type"},
      {create(R"("input":[])"), 400, "input"},
      {create(R"("input":"x","temperature":3)"), 400, "temperature"},
      {create(R"("input":"x","background":true)"), 400, "background"},
      {create(R"("input":"x","model":"other")"), 404, "model"},
      {create(R"("input":[{"role":"user","content":[{"type":"input_image","image_url":"x"}]}])"),
       400, "input[0].content[0].type"},
  };
  for (const Case& one : cases) {
    socket.text(one.message);
    const Json event = next(socket);
    EXPECT_EQ(event.string("type"), "error") << one.message;
    EXPECT_EQ(event.integer("status"), one.status) << one.message;
    ASSERT_NE(event.find("error"), nullptr);
    EXPECT_EQ(event.find("error")->string("param").value_or(""), one.param) << one.message;
    EXPECT_TRUE(event.find("error")->string("message").has_value());
  }
  socket.text(create(R"("input":"hi")"));
  EXPECT_EQ(read_turn(socket).text.status, "completed");
}

TEST(ResponseSocket, CancelEndsTheRunningOne) {
  ServerFixture fixture(kScript, {});
  net::TestWebSocket socket(fixture.http().port(), "/v1/responses");
  socket.text(create(R"("input":"endless")"));
  ResponseStreamReader reader;
  for (int i = 0; i < 6; ++i) reader.event(next(socket));
  socket.text(R"({"type":"response.cancel"})");
  while (!reader.over() && !HasFailure()) reader.event(next(socket));
  EXPECT_EQ(reader.text.status, "cancelled");
  EXPECT_LT(reader.text.output_tokens, 3000);
  EXPECT_EQ(parsed(fixture.get("/v1/responses/" + reader.id()).body).string("status"), "cancelled");
  socket.text(create(R"("input":"hi")"));
  EXPECT_EQ(read_turn(socket).text.status, "completed");
}

// Nobody took back the one that waits: it has its turn.
TEST(ResponseSocket, CancelLeavesTheWaitingOneItsTurn) {
  ServerFixture fixture(kScript, {});
  net::TestWebSocket socket(fixture.http().port(), "/v1/responses");
  socket.text(create(R"("input":"endless")"));
  ResponseStreamReader reader;
  reader.event(next(socket));
  socket.text(create(R"("input":"hi")"));
  socket.text(R"({"type":"response.cancel"})");
  while (!reader.over() && !HasFailure()) reader.event(next(socket));
  EXPECT_EQ(reader.text.status, "cancelled");
  const Turn second = read_turn(socket);
  EXPECT_EQ(second.text.status, "completed");
  EXPECT_EQ(second.text.items.at(1).text, "Hello world.");
}

TEST(ResponseSocket, CancelOfAnotherResponseCancelsNothing) {
  ServerFixture fixture(kScript, {});
  net::TestWebSocket socket(fixture.http().port(), "/v1/responses");
  socket.text(create(R"("input":"endless","max_output_tokens":600)"));
  ResponseStreamReader reader;
  reader.event(next(socket));
  socket.text(R"({"type":"response.cancel","response_id":"resp_other"})");
  socket.text(R"({"type":"response.cancel","response_id":7})");
  int refused = 0;
  while (!reader.over() && !HasFailure()) {
    const Json event = next(socket);
    if (event.string("type") != "error") {
      reader.event(event);
      continue;
    }
    EXPECT_EQ(event.integer("status"), 400);
    EXPECT_EQ(event.find("error")->string("param"), "response_id");
    ++refused;
  }
  EXPECT_EQ(refused, 2);
  EXPECT_EQ(reader.text.status, "incomplete");
  EXPECT_EQ(reader.text.output_tokens, 600);

  socket.text(create(R"("input":"endless")"));
  ResponseStreamReader named;
  named.event(next(socket));
  socket.text(R"({"type":"response.cancel","response_id":")" + named.id() + "\"}");
  while (!named.over() && !HasFailure()) named.event(next(socket));
  EXPECT_EQ(named.text.status, "cancelled");
}

TEST(ResponseSocket, WS_14_OneWaitsAndAThirdIsRefused) {
  ServerFixture fixture(kScript, {});
  net::TestWebSocket socket(fixture.http().port(), "/v1/responses");
  socket.text(create(R"("input":"endless","max_output_tokens":60)"));
  socket.text(create(R"("input":"hi")"));
  socket.text(create(R"("input":"hi")"));
  int refused = 0;
  int ended = 0;
  ResponseStreamReader reader;
  while (ended < 2 && !HasFailure()) {
    const Json event = next(socket);
    if (event.string("type") == "error") {
      EXPECT_EQ(event.integer("status"), 429);
      ++refused;
      continue;
    }
    reader.event(event);
    if (!reader.over()) continue;
    EXPECT_EQ(reader.text.status, ended == 0 ? "incomplete" : "completed");
    ++ended;
    reader = {};
  }
  EXPECT_EQ(refused, 1);
}

TEST(ResponseSocket, AClientThatLeavesCancels) {
  ServerFixture fixture(kScript, {});
  {
    net::TestWebSocket socket(fixture.http().port(), "/v1/responses");
    socket.text(create(R"("input":"endless")"));
    next(socket);
  }
  for (int i = 0; i < 500 && fixture.model().state->meter.open() > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(fixture.model().state->meter.open(), 0);
  EXPECT_EQ(fixture.server().services().statistics.counts().cancelled, 1);
  EXPECT_EQ(fixture.server().services().statistics.counts().open(), 0);
}

TEST(ResponseSocket, WS_01_WS_10_HandshakesAreChecked) {
  ServerFixture::Options options;
  options.server.keys.add("key");
  ServerFixture fixture(kScript, std::move(options));
  const int port = fixture.http().port();
  const std::string key = "Authorization: Bearer key\r\n";
  EXPECT_TRUE(net::TestWebSocket(port, "/v1/responses", key).open());
  const auto head = [&](const std::string& headers) {
    return net::TestWebSocket(port, "/v1/responses", headers).head().substr(0, 12);
  };
  EXPECT_EQ(head(""), "HTTP/1.1 401");
  EXPECT_EQ(head(key + "Origin: https://evil.example\r\n"), "HTTP/1.1 403");
  EXPECT_EQ(head(key + "Origin: null\r\n"), "HTTP/1.1 403");
  EXPECT_EQ(head(key + "Origin: http://test\r\n"), "HTTP/1.1 101") << "its own page";
  // D10: a page that came over TLS is none of a server that has none.
  EXPECT_EQ(head(key + "Origin: https://test\r\n"), "HTTP/1.1 403");
  EXPECT_EQ(head(key + "Origin: test\r\n"), "HTTP/1.1 403");
  EXPECT_EQ(head(key + "Origin: http://test:80\r\n"), "HTTP/1.1 403");
  net::HttpCall plain = fixture.call("GET", "/v1/responses", "");
  plain.headers.add("Authorization", "Bearer key");
  const net::HttpResponse refused = fixture.fetch(std::move(plain));
  EXPECT_EQ(refused.status, 426);
  EXPECT_EQ(refused.headers.get("Upgrade"), "websocket");
}

TEST(ResponseSocket, ADrainingServerSaysGoodbye) {
  ServerFixture fixture(kScript, {});
  net::TestWebSocket socket(fixture.http().port(), "/v1/responses");
  socket.text(create(R"("input":"hi")"));
  read_turn(socket);
  std::thread stopping([&] { fixture.http().stop(std::chrono::milliseconds(2000)); });
  EXPECT_EQ(socket.read().close_code(), 1001);
  stopping.join();
}

TEST(ResponseSocket, ADrainingServerTellsWhoWaits) {
  ServerFixture fixture(kScript, {});
  net::TestWebSocket socket(fixture.http().port(), "/v1/responses");
  socket.text(create(R"("input":"endless")"));
  next(socket);
  socket.text(create(R"("input":"hi")"));
  socket.text(create(R"("input":"one too many")"));  // once it is refused, the other waits
  const auto error_status = [&] {
    for (;;) {
      const net::TestWebSocket::Frame frame = socket.read();
      if (frame.opcode != net::WebSocketOpcode::kText) return std::optional<int64_t>();
      const Json event = parsed(frame.payload);
      if (event.string("type") == "error") return event.integer("status");
    }
  };
  EXPECT_EQ(error_status(), 429);
  std::thread stopping([&] { fixture.http().stop(std::chrono::milliseconds(2000)); });
  EXPECT_EQ(error_status(), 503);
  stopping.join();
}

// What a connection remembers is what its next prompt can have, however long it has gone on: seen
// where nothing may be dropped any more.
TEST(ResponseSocket, WhatTruncationDropsIsNotRemembered) {
  ServerFixture fixture(kScript, {});
  net::TestWebSocket socket(fixture.http().port(), "/v1/responses");
  const std::string large(9000, 'x');
  std::string previous;
  for (const std::string& input : {large, std::string("hi"), std::string("and now")}) {
    const std::string items =
        R"([{"role":"user","content":")" + input + R"("},{"role":"user","content":"so?"}])";
    const bool last = input == "and now";
    socket.text(create(R"("store":false,"truncation":")" + std::string(last ? "disabled" : "auto") +
                       R"(","max_output_tokens":100,"input":)" + items + previous));
    const Turn said = read_turn(socket);
    ASSERT_EQ(said.text.status, "completed") << input.substr(0, 10);
    previous = R"(,"previous_response_id":")" + said.response.string("id").value_or("") + "\"";
  }
}

}  // namespace
}  // namespace pelton::server
