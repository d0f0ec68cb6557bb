// Rows SE and WS of the catalogue of bad inputs: what a stream of events may hold and how it may
// end, and frames that are none to /v1/responses. net/websocket_test.cc has the frames finer.
#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "net/test_websocket.h"
#include "server/hostile_fixture.h"

namespace pelton::server {
namespace {

using HostileEvents = Hostile;
using Opcode = net::WebSocketOpcode;

TEST_F(HostileEvents, SE_01_TextThatLooksLikeEvents) {
  // In JSON's own spelling; between the parts of the script's "then" nothing is added.
  const std::string nasty =
      R"(a\n\ndata: [DONE]\n\nb\r\revent: error\r\nid: 7\u0000c\u2028d\u2029: ping\n\n)";
  ServerFixture fixture(R"({"rules": [{"when": "", "then": "<|channel|>final<|message|>)" + nasty +
                            R"(<|return|>"}]})",
                        {});
  const std::string text = Json::parse("\"" + nasty + "\"")->as_string();
  EXPECT_EQ(text.find("[DONE]"), 9u);
  const net::HttpResponse whole = fixture.post(kChat, kHello);
  EXPECT_EQ(whole_text(whole.body).content, text);
  const net::HttpResponse streamed =
      fixture.post(kChat, R"({"messages":[{"role":"user","content":"hi"}],"stream":true})");
  EXPECT_EQ(streamed_text(streamed.body).content, text);
  const std::vector<std::string> events = events_of(streamed.body);
  EXPECT_EQ(std::count(events.begin(), events.end(), "[DONE]"), 1);
  for (const char bare : {'\r', '\0'}) EXPECT_EQ(streamed.body.find(bare), std::string::npos);
  // Each line is an event's or empty; of the model's own line ends none is one.
  size_t lines = 0;
  for (size_t at = 0; at < streamed.body.size(); ++lines) {
    const size_t end = std::min(streamed.body.find('\n', at), streamed.body.size());
    EXPECT_TRUE(end == at || streamed.body.compare(at, 6, "data: ") == 0);
    at = end + 1;
  }
  EXPECT_EQ(lines, 2 * events.size());
  for (const std::string path : {"/v1/completions", "/v1/responses", "/v1/messages"}) {
    const std::string body = path == "/v1/completions" ? R"({"prompt":"x","stream":true})"
                             : path == "/v1/responses"
                                 ? R"({"input":"x","stream":true})"
                                 : R"({"messages":[{"role":"user","content":"x"}],"max_tokens":90,)"
                                   R"("model":"tiny","stream":true})";
    const net::HttpResponse other = fixture.post(path, body);
    EXPECT_EQ(other.status, 200);
    EXPECT_EQ(other.body.find('\r'), std::string::npos) << path;
    for (const std::string& event : events_of(other.body)) {
      EXPECT_TRUE(event == "[DONE]" || Json::parse(event).ok()) << path << " " << event;
    }
  }
}

TEST_F(HostileEvents, SE_02_AnErrorIsTheLastEvent) {
  std::atomic<int> steps{0};
  ServerFixture::Options options;
  options.executor = [&](engine::ModelledExecutor::Options& executor) {
    executor.fail_step = [&](const engine::StepPlan&) -> std::optional<Error> {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));  // so that some of it is emitted
      if (++steps < 30) return std::nullopt;
      return Error{ErrorCode::kInternal, "the disk at /secret/place burnt", ""};
    };
  };
  for (const std::string path : {"/v1/chat/completions", "/v1/completions"}) {
    ServerFixture fixture(kHostileScript, options);
    steps = 0;
    const net::HttpResponse cut = fixture.post(
        path, path == "/v1/completions" ? R"({"prompt":"endless","max_tokens":900,"stream":true})"
                                        : kEndless);
    EXPECT_EQ(cut.status, 200);
    const std::vector<std::string> events = events_of(cut.body);
    ASSERT_GE(events.size(), 2u);
    EXPECT_EQ(std::count(events.begin(), events.end(), "[DONE]"), 0) << "it looks like success";
    const Json last = parsed(events.back());
    const Json* error = last.find("error");
    ASSERT_NE(error, nullptr) << events.back();
    EXPECT_EQ(error->string("type"), "server_error");
    EXPECT_TRUE(error->find("param") != nullptr && error->find("code") != nullptr);
    EXPECT_EQ(events.back().find("secret"), std::string::npos);
    EXPECT_EQ(cut.body.find("\"finish_reason\":\"stop\""), std::string::npos);
    EXPECT_TRUE(comes_true([&] { return fixture.engine().ledger().clean(); }));
  }
}

TEST_F(HostileEvents, SE_03_UsageIsWholeOrNotThere) {
  const std::string body = R"({"messages":[{"role":"user","content":"endless"}],"stream":true,)"
                           R"("stream_options":{"include_usage":true}})";
  for (int bytes = 200; bytes < 4000; bytes += 431) {
    net::TestSocket socket(port());
    socket.send(post_text(kChat, body));
    std::string got;
    while (got.size() < static_cast<size_t>(bytes)) {
      const std::string more = socket.read_some_bytes(5000);
      if (more.empty()) break;
      got += more;
    }
    socket.reset();
    // Whole events only were looked at; the last may be cut by us.
    size_t seen = 0;
    for (size_t at = got.find("data: "); at != std::string::npos; at = got.find("data: ", at + 1)) {
      const size_t end = got.find("\n\n", at);
      if (end == std::string::npos) break;
      const Json event = parsed(got.substr(at + 6, end - at - 6));
      const Json* usage = event.find("usage");
      EXPECT_TRUE(usage == nullptr || usage->is_null()) << "usage before the end";
      ++seen;
    }
    EXPECT_GT(seen, 0u);
  }
}

TEST_F(HostileEvents, SE_04_BytesWhileAStreamRuns) {
  net::TestSocket socket(port());
  socket.send(post_text(kChat, kEndless));
  EXPECT_NE(socket.read_until("data: ").find("200 OK"), std::string::npos);
  for (int i = 0; i < 20; ++i) socket.send("is anybody there?\r\n\r\n");
  const std::string all = socket.read_all(20'000);
  EXPECT_NE(all.find("[DONE]"), std::string::npos) << "the stream is not disturbed";
  EXPECT_NE(all.find("HTTP/1.1 505 "), std::string::npos) << "and then they are no request";
  EXPECT_TRUE(socket.closed_by_peer());
}

// A comment every five seconds, whether a request waits or its model thinks: proxies see life.
TEST_F(HostileEvents, SE_05_AHeartbeatWhileNothingComes) {
  open({}, R"({"slots": 1, "step_ms": 40, "rules": [
    {"when": "", "then": "<|channel|>final<|message|>Hello.<|return|>"},
    {"when": "witness", "then": "<|channel|>final<|message|>I saw nothing.<|return|>"},
    {"when": "endless", "then": ["<|channel|>final<|message|>", {"text": "on and on ", "times": 200}]}
  ]})");
  net::TestSocket first(port());
  first.send(post_text(kChat, kEndless));
  EXPECT_NE(first.read_until("data: ").find("data: "), std::string::npos);
  net::TestSocket queued(port());
  queued.send(post_text(kChat, kEndless));
  const std::string got = queued.read_until(": ", 8000);
  EXPECT_NE(got.find("\r\n: "), std::string::npos) << got;
  EXPECT_EQ(got.find("data: "), std::string::npos) << "it was to be queued: " << got;
}

// Who asks for a stream gets one, whatever it says it accepts: as OpenAI's server does.
TEST_F(HostileEvents, SE_06_AcceptDoesNotDecide) {
  for (const char* accept : {"application/json", "text/html", "*/*;q=0", ""}) {
    const std::string answer =
        ask(post_text(kChat, R"({"messages":[{"role":"user","content":"hi"}],"stream":true})",
                      fmt::format("Accept: {}\r\n", accept)));
    EXPECT_EQ(status_of(answer), 200);
    EXPECT_NE(answer.find("text/event-stream"), std::string::npos) << accept;
    EXPECT_NE(answer.find("[DONE]"), std::string::npos);
  }
}

class HostileSocket : public Hostile {
 protected:
  static constexpr char kPath[] = "/v1/responses";

  // How the server says goodbye to these bytes; what it says before that is thrown away.
  int code_for(std::string_view bytes) {
    net::TestWebSocket socket(port(), kPath);
    EXPECT_TRUE(socket.open()) << socket.head();
    socket.raw(bytes);
    for (int i = 0; i < 10'000; ++i) {
      const net::TestWebSocket::Frame frame = socket.read();
      if (frame.opcode == Opcode::kClose) return frame.close_code();
    }
    return 0;
  }
  static std::string frame(Opcode opcode, std::string_view payload, bool last = true) {
    return net::client_frame(opcode, payload, {.last = last});
  }
  static std::string bytes(std::initializer_list<int> values) {
    std::string text;
    for (const int value : values) text += static_cast<char>(value);
    return text;
  }
};

TEST_F(HostileSocket, WS_01_HandshakesThatAreNone) {
  const std::string good =
      "GET /v1/responses HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
      "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
  const auto without = [&](std::string_view name, std::string_view instead) {
    std::string text = good;
    const size_t at = text.find(name);
    return text.replace(at, text.find("\r\n", at) + 2 - at, instead);
  };
  EXPECT_EQ(asked(without("Sec-WebSocket-Key", "")), 400);
  EXPECT_EQ(asked(without("Sec-WebSocket-Key", "Sec-WebSocket-Key: short\r\n")), 400);
  // Not even an attempt.
  EXPECT_EQ(asked(without("Upgrade: ", "")), 426);
  EXPECT_EQ(asked(without("Sec-WebSocket-Version", "Sec-WebSocket-Version: 8\r\n")), 426);
}

TEST_F(HostileSocket, WS_02_FramesWithoutAMask) {
  EXPECT_EQ(code_for(bytes({0x81, 1, 'x'})), 1002);
}

TEST_F(HostileSocket, WS_03_BitsAndOpcodesThatAreNone) {
  for (const int bit : {0x10, 0x20, 0x40}) {
    std::string bad = frame(Opcode::kText, "{}");
    bad[0] = static_cast<char>(bad[0] | bit);
    EXPECT_EQ(code_for(bad), 1002);
  }
  for (const int opcode : {3, 4, 5, 6, 7, 11, 12, 13, 14, 15}) {
    EXPECT_EQ(code_for(frame(static_cast<Opcode>(opcode), "x")), 1002) << opcode;
  }
}

TEST_F(HostileSocket, WS_04_ControlFramesTooLongOrInPieces) {
  for (const Opcode opcode : {Opcode::kPing, Opcode::kPong, Opcode::kClose}) {
    EXPECT_EQ(code_for(frame(opcode, std::string(126, 'x'))), 1002);
    EXPECT_EQ(code_for(frame(opcode, "", false)), 1002);
  }
}

TEST_F(HostileSocket, WS_05_LengthsThatAreNone) {
  const std::string mask(4, '\0');
  EXPECT_EQ(code_for(bytes({0x81, 0xFE, 0, 1}) + mask + "x"), 1002) << "not the shortest";
  EXPECT_EQ(code_for(bytes({0x81, 0xFF, 0, 0, 0, 0, 0, 0, 0, 1}) + mask + "x"), 1002);
  for (const int top : {0x80, 0xFF, 0x7F}) {
    const int code = code_for(bytes({0x81, 0xFF, top, 0, 0, 0, 0, 0, 0, 0}) + mask);
    EXPECT_TRUE(code == 1002 || code == 1009) << code;
  }
}

TEST_F(HostileSocket, WS_06_TextThatIsNoUtf8) {
  EXPECT_EQ(
      code_for(frame(Opcode::kText, "\"\xE2\x82", false) + frame(Opcode::kContinuation, "\"")),
      1007);
  EXPECT_EQ(code_for(frame(Opcode::kText, "\xC0\xAF")), 1007);
}

TEST_F(HostileSocket, WS_07_AMessageBeyondTheLimit) {
  // 33 MiB, told by the head of the frame; nothing of it follows.
  EXPECT_EQ(code_for(bytes({0x81, 0xFF, 0, 0, 0, 0, 2, 0x10, 0, 0, 0, 0, 0, 0})), 1009);
}

TEST_F(HostileSocket, WS_08_PiecesOfNothing) {
  EXPECT_EQ(code_for(frame(Opcode::kContinuation, "x")), 1002);
  EXPECT_EQ(code_for(frame(Opcode::kText, "a", false) + frame(Opcode::kText, "b")), 1002);
  std::string empties = frame(Opcode::kText, "", false);
  const std::string empty = frame(Opcode::kContinuation, "", false);
  for (int i = 0; i < 1'000'000; ++i) empties += empty;
  EXPECT_EQ(code_for(empties), 1008);
}

TEST_F(HostileSocket, WS_09_GoodbyesThatAreNone) {
  for (const int code : {0, 999, 1004, 1005, 1006, 1015, 2000, 65535}) {
    EXPECT_EQ(code_for(frame(Opcode::kClose, bytes({code >> 8, code & 0xFF}))), 1002) << code;
  }
  EXPECT_EQ(code_for(frame(Opcode::kClose, "x")), 1002);
  EXPECT_EQ(code_for(frame(Opcode::kClose, bytes({0x03, 0xE8, 0xFF}))), 1007);
  EXPECT_EQ(code_for(frame(Opcode::kClose, bytes({0x03, 0xE8}))), 1000) << "this one is fine";
}

// We know no cookies; a page of another origin may not connect all the same.
TEST_F(HostileSocket, WS_10_AForeignOrigin) {
  const net::TestWebSocket evil(port(), kPath, "Origin: https://evil.example\r\n");
  EXPECT_TRUE(evil.head().starts_with("HTTP/1.1 403")) << evil.head();
  const net::TestWebSocket null(port(), kPath, "Origin: null\r\n");
  EXPECT_TRUE(null.head().starts_with("HTTP/1.1 403")) << null.head();
}

// No extension is agreed to, so a compressed frame is a broken one.
TEST_F(HostileSocket, WS_11_CompressionIsNotSpoken) {
  const net::TestWebSocket socket(
      port(), kPath, "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n");
  EXPECT_TRUE(socket.open());
  EXPECT_EQ(socket.head().find("permessage-deflate"), std::string::npos);
  std::string bomb = frame(Opcode::kText, std::string(1000, '\0'));
  bomb[0] = static_cast<char>(bomb[0] | 0x40);
  EXPECT_EQ(code_for(bomb), 1002);
}

TEST_F(HostileSocket, WS_12_PingsWhileAnAnswerIsMade) {
  net::TestWebSocket socket(port(), kPath);
  socket.text(R"({"type":"response.create","input":"endless"})");
  std::string flood;
  for (int i = 0; i < 20'000; ++i) flood += frame(Opcode::kPing, "p");
  socket.raw(flood);
  int pongs = 0;
  bool done = false;
  for (int i = 0; i < 100'000 && !done; ++i) {
    const net::TestWebSocket::Frame got = socket.read();
    ASSERT_NE(got.opcode, Opcode::kClose);
    if (got.opcode == Opcode::kPong) ++pongs;
    done = got.payload.find("\"type\":\"response.incomplete\"") != std::string::npos;
  }
  EXPECT_TRUE(done);
  EXPECT_GE(pongs, 1);
  EXPECT_LT(pongs, 10'000) << "a pong for each ping";
}

TEST_F(HostileSocket, WS_15_MessagesThatAreNoRequest) {
  net::TestWebSocket socket(port(), kPath);
  ASSERT_TRUE(socket.open());
  for (const std::string& bad :
       {std::string("{"), std::string("[]"), std::string("null"), std::string("{}"),
        std::string(R"({"type":7})"), std::string(R"({"type":"nothing"})"),
        std::string(R"({"type":"response.create"})"),
        std::string(R"({"type":"response.create","input":7})"), std::string(100'000, '[')}) {
    socket.text(bad);
    const net::TestWebSocket::Frame answer = socket.read();
    ASSERT_EQ(answer.opcode, Opcode::kText) << bad.substr(0, 60);
    EXPECT_EQ(parsed(answer.payload).string("type"), "error") << answer.payload;
  }
  socket.text(R"({"type":"response.create","input":"hi"})");
  EXPECT_NE(socket.read().payload.find("response.created"), std::string::npos);
}

}  // namespace
}  // namespace pelton::server
