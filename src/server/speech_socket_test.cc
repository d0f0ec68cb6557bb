// /v1/audio/speech/websocket: text that comes bit by bit, by a model that says what a script has it
// say.
#include "server/speech_socket.h"

#include <chrono>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "base/base64.h"
#include "net/test_websocket.h"
#include "server/speech_fixture.h"

namespace pelton::server {
namespace {

using testing::HasSubstr;

constexpr std::string_view kPath = "/v1/audio/speech/websocket?model=tiny&voice=tara";
constexpr std::string_view kDelta = "conversation.item.audio_output.delta";
constexpr std::string_view kDone = "conversation.item.audio_output.done";
constexpr std::string_view kFailed = "conversation.item.tts.failed";

class Session {
 public:
  explicit Session(ServerFixture& fixture, std::string_view path = kPath,
                   const std::string& headers = "")
      : socket_(fixture.http().port(), std::string(path), headers) {
    if (socket_.open()) created = hear();
  }

  net::TestWebSocket& socket() { return socket_; }

  // A message of this type, with members behind it.
  void say(std::string_view type, std::string_view members = "") {
    socket_.text(fmt::format(R"({{"type":"{}"{}{}}})", type, members.empty() ? "" : ",", members));
  }
  void append(std::string_view text) {
    say("input_text_buffer.append", fmt::format(R"("text":{})", Json(text).dump()));
  }
  void commit() { say("input_text_buffer.commit"); }

  Json hear() {
    const net::TestWebSocket::Frame frame = socket_.read();
    EXPECT_EQ(frame.opcode, net::WebSocketOpcode::kText) << frame.close_code();
    return frame.opcode == net::WebSocketOpcode::kText ? parsed(frame.payload) : Json();
  }
  // The next event of this type; what comes before it is left out, but sound is kept.
  Json until(std::string_view type) {
    while (!testing::Test::HasFailure()) {
      Json event = hear();
      if (event.string("type") == kDelta) {
        sound += base::from_base64(event.string("delta").value_or("")).value_or("");
      }
      if (event.string("type") == type) return event;
      EXPECT_NE(event.string("type"), kFailed) << event.dump();
    }
    return {};
  }
  Json error() {
    const Json event = until("error");
    const Json* const said = event.find("error");
    return said == nullptr ? Json() : *said;
  }
  // An item, to its end: its sound.
  std::string spoken() {
    sound.clear();
    const Json done = until(kDone);
    EXPECT_EQ(done.string("status"), "completed");
    return sound;
  }

  Json created;
  std::string sound;  // that has been heard

 private:
  net::TestWebSocket socket_;
};

// What is said of each sentence shows which one it was of.
const std::string kSentences = fmt::format(
    R"({{"context":4096,"rules":[{{"when":"One","then":"{}<custom_token_2>"}},
        {{"when":"Two","then":"{}<custom_token_2>"}},{{"when":"","then":"{}<custom_token_2>"}}]}})",
    frames({1, 1, 1, 1, 1, 1}), frames({2, 2, 2, 2, 2}), frames({3, 3, 3, 3}));

// For longer than any test takes.
const std::string kEndless = fmt::format(
    R"({{"context":4096,"step_ms":20,"rules":[{{"when":"","then":[{{"text":"{}","times":500}}]}}]}})",
    speech::frame_text(3));

std::string over_http(ServerFixture& fixture, std::string_view text, std::string_view more = "") {
  const net::HttpResponse answer = fixture.post(
      "/v1/audio/speech", fmt::format(R"({{"input":{},"voice":"tara","response_format":"pcm"{}}})",
                                      Json(text).dump(), more));
  EXPECT_EQ(answer.status, 200) << answer.body;
  return answer.body;
}

// Behind a short text alone the context of 4096 has room for so much.
constexpr std::string_view kHardlyRoom = R"("session":{"max_tokens":4050})";
const std::string kTooLong = "One " + std::string(80, 'a');

void wait_until_clean(ServerFixture& fixture) {
  for (int i = 0; i < 600 && !fixture.engine().ledger().clean(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_TRUE(fixture.engine().ledger().clean());
}

TEST(SpeechSocket, ATextInBitsSoundsAsItDoesWhole) {
  ServerFixture fixture(kSentences, speech_options());
  const std::string text =
      "One is first. And a second sentence that says One once more, to be long. Two has its own "
      "words, and so many that it makes up a whole piece by itself. Two ends it, or does it? Yes.";
  const std::string whole = over_http(fixture, text);
  EXPECT_GT(whole.size(), sound({1, 1, 1, 1, 1, 1}).size());
  for (const size_t bit : std::vector<size_t>{1, 7, 40, 1000}) {
    Session session(fixture);
    ASSERT_TRUE(session.socket().open()) << session.socket().head();
    for (size_t at = 0; at < text.size(); at += bit) session.append(text.substr(at, bit));
    session.commit();
    EXPECT_EQ(session.spoken(), whole) << bit;
  }
}

TEST(SpeechSocket, TheFirstSentenceIsSaidWhileTheRestIsWritten) {
  ServerFixture fixture(kSentences, speech_options());
  Session session(fixture);
  session.append("One is");
  EXPECT_EQ(session.hear().string("text"), "One is");
  session.append(" first. And");
  const std::string item = session.hear().string("item_id").value_or("");
  const Json delta = session.until(kDelta);
  EXPECT_EQ(delta.string("item_id"), item);
  session.append(" Two");
  session.commit();
  session.until("input_text_buffer.committed");
  const Json done = session.until(kDone);
  EXPECT_EQ(done.string("item_id"), item);
  EXPECT_EQ(done.find("usage")->integer("output_tokens"), 6 * 7 + 1 + 5 * 7 + 1);
  EXPECT_EQ(session.sound, sound({1, 1, 1, 1, 1, 1}) + sound({2, 2, 2, 2, 2}));
}

TEST(SpeechSocket, ItemsAreSaidOneAfterTheOther) {
  ServerFixture fixture(kSentences, speech_options());
  Session session(fixture);
  for (const char* const text : {"One", "Two", "Three"}) {
    session.append(text);
    session.commit();
  }
  EXPECT_EQ(session.spoken(), sound({1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(session.spoken(), sound({2, 2, 2, 2, 2}));
  EXPECT_EQ(session.spoken(), sound({3, 3, 3, 3}));
  session.append("One.");
  session.say("session.finish");
  session.until("input_text_buffer.committed");
  EXPECT_EQ(session.spoken(), sound({1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(session.hear().string("type"), "session.finished");
  EXPECT_EQ(session.socket().read().close_code(), 1000);
}

TEST(SpeechSocket, ASessionIsSetAsABodyIs) {
  ServerFixture fixture(kSentences, speech_options());
  Session session(fixture);
  EXPECT_EQ(session.created.string("type"), "session.created");
  const Json& made = *session.created.find("session");
  EXPECT_EQ(made.string("object"), "realtime.tts.session");
  EXPECT_EQ(made.string("model"), "tiny");
  EXPECT_EQ(made.string("voice"), "tara");
  EXPECT_EQ(made.string("response_format"), "pcm");
  EXPECT_EQ(made.integer("sample_rate"), 24'000);
  for (const char* const type : {"session.update", "tts_session.updated"}) {
    session.say(type, R"("session":{"voice":"leo","response_format":"wav","max_tokens":35})");
    const Json updated = session.hear();
    EXPECT_EQ(updated.string("type"), "session.updated");
    EXPECT_EQ(updated.find("session")->string("voice"), "leo");
    EXPECT_EQ(updated.find("session")->string("id"), made.string("id"));
  }
  session.append("One");
  session.commit();
  const std::string wav = session.spoken();
  EXPECT_EQ(wav, speech::wav_header(24'000, std::nullopt) + sound({1, 1, 1, 1, 1}));
  session.say("session.update", R"("session":{"max_tokens":null,"response_format":"pcm"})");
  EXPECT_EQ(session.hear().find("session")->find("max_tokens"), nullptr);
  session.append("One");
  session.commit();
  EXPECT_EQ(session.spoken(), sound({1, 1, 1, 1, 1, 1}));
}

TEST(SpeechSocket, AFieldOfTheAddressThatIsNotReadIsSaid) {
  ServerFixture fixture(kSentences, speech_options());
  Session session(fixture, std::string(kPath) + "&sped=2");
  const Json* const warnings = session.created.find("warnings");
  ASSERT_NE(warnings, nullptr) << session.created.dump();
  ASSERT_EQ(warnings->as_array().size(), 1u);
  EXPECT_THAT(warnings->as_array()[0].as_string(), HasSubstr("sped ignored"));
  EXPECT_EQ(Session(fixture).created.find("warnings"), nullptr);
  session.say("session.update", R"("session":{"response_format":"raw"})");
  const Json updated = session.until("session.updated");
  EXPECT_EQ(updated.find("session")->string("response_format"), "pcm");
  EXPECT_EQ(updated.find("warnings"), nullptr);
}

TEST(SpeechSocket, WhatIsWrongIsNamedAndEndsNothing) {
  ServerFixture fixture(kSentences, speech_options());
  Session session(fixture, "/v1/audio/speech/websocket");
  struct Case {
    std::string type;
    std::string members;
    std::string param;
    std::string code;
    std::string says;
  };
  const std::string session_of = R"("session":)";
  for (const Case& wrong : std::vector<Case>{
           {"response.create", "", "type", "", "'input_text_buffer.append'"},
           {"input_text_buffer.append", R"("text":7)", "text", "invalid_value", "must be a text"},
           {"input_text_buffer.append", "", "text", "invalid_value", "must be a text"},
           {"input_text_buffer.append", R"("text":"a")", "voice", "", "missing"},
           {"input_text_buffer.commit", "", "", "input_text_buffer_commit_empty", "no text"},
           {"response.cancel", "", "type", "response_cancel_not_active", "nothing"},
           {"session.update", "", "session", "", "missing"},
           {"session.update", session_of + R"({"voice":"alloy"})", "voice", "", "tara, leo"},
           {"session.update", session_of + R"({"speed":2})", "speed", "", "not supported"},
           {"session.update", session_of + R"({"response_format":"aac"})", "response_format", "",
            "'wav', 'pcm'"},
           {"session.update", session_of + R"({"temperature":3})", "temperature", "", "2"},
           {"session.update", session_of + R"({"max_tokens":27})", "max_tokens", "", "from 28"},
           {"session.update", session_of + R"({"max_tokens":4096})", "max_tokens",
            "context_length_exceeded", "4096 tokens"},
           {"session.update", session_of + R"({"max_tokens":99999999})", "max_tokens",
            "context_length_exceeded", "99999999"},
           {"session.update", session_of + R"({"response_encoding":"pcm_mulaw"})",
            "response_encoding", "unsupported", "pcm_s16le"},
           {"session.update", session_of + R"({"input":"a"})", "session.input", "", "no setting"},
           {"session.update", session_of + fmt::format(R"({{"x":"{}"}})", std::string(17'000, 'x')),
            "session", "", "16384 bytes"},
       }) {
    session.say(wrong.type,
                wrong.members + (wrong.members.empty() ? "" : ",") + R"("event_id":"mine")");
    const Json error = session.error();
    EXPECT_EQ(error.string("param").value_or(""), wrong.param) << error.dump();
    EXPECT_EQ(error.string("event_id"), "mine");
    if (!wrong.code.empty()) {
      EXPECT_EQ(error.string("code"), wrong.code);
    }
    EXPECT_THAT(error.string("message").value_or(""), HasSubstr(wrong.says));
  }
  session.socket().text("{");
  EXPECT_EQ(session.error().string("type"), "invalid_request_error");
  session.say("session.update", session_of + R"({"voice":{"id":"tara"}})");
  session.until("session.updated");
  session.append("One");
  session.commit();
  EXPECT_EQ(session.spoken(), sound({1, 1, 1, 1, 1, 1}));
}

TEST(SpeechSocket, WhoMayNotIsAnsweredOverHttp) {
  ServerFixture fixture(kSentences, speech_options());
  const std::string path = "/v1/audio/speech/websocket";
  const net::HttpResponse plain = fixture.get(path);
  EXPECT_EQ(plain.status, 426);
  EXPECT_THAT(plain.body, HasSubstr("POST /v1/audio/speech"));
  const auto refused = [&](const std::string& query, const std::string& headers = "") {
    net::TestWebSocket socket(fixture.http().port(), path + query, headers);
    return socket.head().substr(0, 12);
  };
  EXPECT_EQ(refused("?voice=alloy"), "HTTP/1.1 400");
  EXPECT_EQ(refused("?speed=1.5"), "HTTP/1.1 400");
  EXPECT_EQ(refused("?response_encoding=pcm_f32le"), "HTTP/1.1 400");
  for (const char* const speed : {"nan", "inf", "-inf", "fast"}) {
    EXPECT_EQ(refused(fmt::format("?voice=tara&speed={}", speed)), "HTTP/1.1 400") << speed;
  }
  EXPECT_EQ(refused("?voice=tara&voice=leo"), "HTTP/1.1 400");
  EXPECT_EQ(refused("?model=tiny&model=tiny"), "HTTP/1.1 400");
  EXPECT_EQ(refused("?model=nobody"), "HTTP/1.1 404");
  EXPECT_EQ(refused("?voice=tara", "x-request-timeout-ms: 0\r\n"), "HTTP/1.1 400");
  EXPECT_EQ(refused("?voice=tara", "Origin: http://elsewhere.example\r\n"), "HTTP/1.1 403");
  EXPECT_EQ(refused("?voice=tara&response_format=raw&response_encoding=pcm_s16le&speed=1"),
            "HTTP/1.1 101");
  ServerFixture::Options silent = speech_options();
  silent.model = [](ServedModel&) {};
  ServerFixture mute(kSentences, std::move(silent));
  net::TestWebSocket socket(mute.http().port(), path);
  EXPECT_THAT(socket.head(), HasSubstr("HTTP/1.1 501"));
}

TEST(SpeechSocket, TextThatPilesUpIsRefusedByName) {
  ServerFixture fixture(kEndless, speech_options());
  Session session(fixture);
  session.append(std::string(4097, 'a'));
  EXPECT_EQ(session.error().string("code"), "input_text_buffer_full");
  // Some pieces are begun, of each of which the model says much; the rest waits.
  for (int i = 0; i < 60; ++i) {
    session.append("A sentence of about fifty characters, as it were, ok. ");
    session.until("conversation.item.input_text.received");
  }
  session.append(std::string(4000, 'a'));
  EXPECT_EQ(session.error().string("code"), "input_text_buffer_full");
  session.say("input_text_buffer.clear");
  session.until("input_text_buffer.cleared");
  session.append(std::string(4000, 'b'));
  session.until("conversation.item.input_text.received");
}

TEST(SpeechSocket, WhatIsBeingSaidCanBeCancelled) {
  ServerFixture fixture(kEndless, speech_options());
  Session session(fixture);
  session.append("First. It goes on and on. ");
  session.until(kDelta);
  session.say("response.cancel");
  const Json done = session.until(kDone);
  EXPECT_EQ(done.string("status"), "cancelled");
  wait_until_clean(fixture);
  session.say("session.update", R"("session":{"max_tokens":35})");
  session.until("session.updated");
  session.append("Second");
  session.commit();
  EXPECT_EQ(session.spoken(), sound({3, 3, 3, 3, 3}));
}

TEST(SpeechSocket, AClientThatLeavesFreesItsWork) {
  ServerFixture fixture(kEndless, speech_options());
  {
    Session session(fixture);
    session.append("First. It goes on and on. ");
    session.commit();
    session.append("Another item waits");
    session.commit();
    session.until(kDelta);
  }
  wait_until_clean(fixture);
  EXPECT_EQ(over_http(fixture, "Next.", R"(,"max_tokens":35)"), sound({3, 3, 3, 3, 3}));
}

TEST(SpeechSocket, ADeadlineEndsTheSession) {
  ServerFixture fixture(kEndless, speech_options());
  Session session(fixture, kPath, "x-request-timeout-ms: 3000\r\n");
  session.append("First. It goes on and on. ");
  session.until(kDelta);
  const Json error = session.error();
  EXPECT_THAT(error.string("message").value_or(""), HasSubstr("time is over"));
  EXPECT_EQ(session.socket().read().close_code(), 1008);
  wait_until_clean(fixture);
}

TEST(SpeechSocket, AnItemThatFailsSaysWhyAndTheNextIsSaid) {
  ServerFixture fixture(kSentences, speech_options());
  Session session(fixture);
  session.say("session.update", kHardlyRoom);
  session.until("session.updated");
  session.append(kTooLong);
  session.commit();
  session.until("input_text_buffer.committed");
  const Json failed = session.hear();
  EXPECT_EQ(failed.string("type"), kFailed) << failed.dump();
  EXPECT_EQ(failed.find("error")->string("param"), "input");
  session.say("session.update", R"("session":{"max_tokens":null})");
  session.until("session.updated");
  session.append("Two");
  session.commit();
  EXPECT_EQ(session.spoken(), sound({2, 2, 2, 2, 2}));
}

// One read brings both.
TEST(SpeechSocket, AnItemThatFailsIsAnsweredBeforeABadFrameEndsTheSession) {
  ServerFixture fixture(kSentences, speech_options());
  {
    Session session(fixture);
    session.say("session.update", kHardlyRoom);
    session.until("session.updated");
    using net::client_frame, net::WebSocketOpcode;
    session.socket().raw(
        client_frame(
            WebSocketOpcode::kText,
            fmt::format(R"({{"type":"input_text_buffer.append","text":"{}"}})", kTooLong)) +
        client_frame(WebSocketOpcode::kText, R"({"type":"input_text_buffer.commit"})") +
        std::string("\x81\x01x", 3));
    session.until("input_text_buffer.committed");
    EXPECT_EQ(session.hear().string("type"), kFailed);
    EXPECT_EQ(session.socket().read().close_code(), 1002);
  }
  wait_until_clean(fixture);
  EXPECT_EQ(over_http(fixture, "Next."), sound({3, 3, 3, 3}));
}

TEST(SpeechSocket, AServerThatStopsSaysWhatItHasBegun) {
  ServerFixture fixture(kSentences, speech_options());
  Session session(fixture);
  session.append("One is first. And");
  session.until(kDelta);
  std::thread stopping([&] { fixture.http().stop(std::chrono::seconds(20)); });
  session.until(kDone);
  EXPECT_EQ(session.socket().read().close_code(), 1001);
  stopping.join();
}

TEST(SpeechSocket, EachItemIsCountedAsAnAnswerIs) {
  ServerFixture fixture(kSentences, speech_options());
  Session session(fixture);
  const SpeechMeter& meter = fixture.model().speech->meter;
  for (int item = 1; item <= 2; ++item) {
    session.append("One is first. ");
    session.until(kDelta);
    // While nothing is there to be said a player waits for the client.
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    session.append("Two");
    session.commit();
    session.until(kDone);
    EXPECT_EQ(meter.first_audio_s.read().count(), item);
    EXPECT_EQ(meter.speed.read().count(), item);
    EXPECT_EQ(meter.samples.load(), item * 5 * kFrameSamples);
  }
}

}  // namespace
}  // namespace pelton::server
