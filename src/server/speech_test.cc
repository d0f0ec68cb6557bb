// POST /v1/audio/speech over HTTP, by a model that says what a script has it say and a vocoder
// whose sound shows which codes it was made of.
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "base/base64.h"
#include "server/speech_fixture.h"

namespace pelton::server {
namespace {

using testing::HasSubstr;

std::string body(std::string_view more) {
  return fmt::format(R"({{"model":"tiny","input":"Hello.","voice":"tara"{}{}}})",
                     more.empty() ? "" : ",", more);
}

const std::vector<int> kCodes = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};

TEST(Speech, AWholeFileIsItsWindowsSound) {
  ServerFixture fixture(script(frames(kCodes)), speech_options());
  const net::HttpResponse wav = fixture.post("/v1/audio/speech", body(R"("stream":false)"));
  ASSERT_EQ(wav.status, 200) << wav.body;
  EXPECT_EQ(wav.headers.get("Content-Type"), "audio/wav");
  const std::string expected = sound(kCodes);
  EXPECT_EQ(expected.size(), size_t{9 * kFrameSamples * 2});
  EXPECT_EQ(wav.body, speech::wav_header(24'000, expected.size()) + expected);
  const net::HttpResponse pcm =
      fixture.post("/v1/audio/speech", body(R"("stream":false,"response_format":"pcm")"));
  EXPECT_EQ(pcm.headers.get("Content-Type"), "audio/pcm");
  EXPECT_EQ(pcm.body, expected);
}

TEST(Speech, AStreamIsTheSameBytes) {
  ServerFixture fixture(script(frames(kCodes)), speech_options());
  const std::string expected = sound(kCodes);
  const net::HttpResponse pcm =
      fixture.post("/v1/audio/speech", body(R"("response_format":"pcm")"));
  ASSERT_EQ(pcm.status, 200) << pcm.body;
  EXPECT_EQ(pcm.body, expected);
  const net::HttpResponse wav = fixture.post("/v1/audio/speech", body(""));
  EXPECT_EQ(wav.headers.get("Content-Type"), "audio/wav");
  EXPECT_EQ(wav.body, speech::wav_header(24'000, std::nullopt) + expected);
}

TEST(Speech, EventsCarryTheSameBytes) {
  ServerFixture fixture(script(frames(kCodes)), speech_options());
  const net::HttpResponse answer =
      fixture.post("/v1/audio/speech", body(R"("stream_format":"sse")"));
  ASSERT_EQ(answer.status, 200) << answer.body;
  std::string bytes;
  Json last;
  for (const std::string& event : events_of(answer.body)) {
    last = parsed(event);
    if (last.string("type") != "speech.audio.delta") continue;
    bytes += base::from_base64(last.string("audio").value_or("")).value_or("");
  }
  EXPECT_EQ(bytes, speech::wav_header(24'000, std::nullopt) + sound(kCodes));
  EXPECT_EQ(last.string("type"), "speech.audio.done");
  EXPECT_EQ(last.find("usage")->integer("output_tokens"), 12 * 7 + 1);
  EXPECT_GT(last.find("usage")->integer("input_tokens"), 10);
}

// One encoder for all of an answer, and its end is sent.
TEST(Speech, CompressedSoundIsWhatTheEncoderMakes) {
  ServerFixture fixture(script(frames(kCodes)), speech_options());
  const auto plain = [](std::string bytes) {
    std::erase(bytes, '|');
    return bytes;
  };
  const std::string expected = "[" + sound(kCodes) + "]";
  const net::HttpResponse whole =
      fixture.post("/v1/audio/speech", body(R"("stream":false,"response_format":"flac")"));
  ASSERT_EQ(whole.status, 200) << whole.body;
  EXPECT_EQ(whole.headers.get("Content-Type"), "audio/flac");
  EXPECT_EQ(plain(whole.body), expected);
  const net::HttpResponse stream =
      fixture.post("/v1/audio/speech", body(R"("response_format":"flac")"));
  EXPECT_EQ(stream.headers.get("Content-Type"), "audio/flac");
  EXPECT_EQ(plain(stream.body), expected);
  const net::HttpResponse events =
      fixture.post("/v1/audio/speech", body(R"("response_format":"flac","stream_format":"sse")"));
  std::string bytes;
  for (const std::string& event : events_of(events.body)) {
    bytes += base::from_base64(parsed(event).string("audio").value_or("")).value_or("");
  }
  EXPECT_EQ(plain(bytes), expected);
}

TEST(Speech, PiecesOfALongTextAreHeardInTheirOrder) {
  const std::string first(350, 'x');
  const std::string second(350, 'y');
  ServerFixture fixture(
      fmt::format(R"({{"context":4096,"rules":[{{"when":"xxx","then":"{}<custom_token_2>"}},
                  {{"when":"","then":"{}<custom_token_2>"}}]}})",
                  frames({1, 1, 1, 1, 1, 1, 1, 1}), frames({2, 2, 2, 2, 2})),
      speech_options());
  const net::HttpResponse answer = fixture.post(
      "/v1/audio/speech",
      fmt::format(R"({{"input":"{}. {}.","voice":"leo","response_format":"pcm"}})", first, second));
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(answer.body, sound({1, 1, 1, 1, 1, 1, 1, 1}) + sound({2, 2, 2, 2, 2}));
}

TEST(Speech, TooFewFramesAreAFileWithoutSamples) {
  ServerFixture fixture(script(frames({1, 2, 3})), speech_options());
  for (const char* const more : {"", R"("stream":false)"}) {
    const net::HttpResponse answer = fixture.post("/v1/audio/speech", body(more));
    EXPECT_EQ(answer.status, 200) << answer.body;
    EXPECT_EQ(answer.body, speech::wav_header(24'000, 0));
  }
  const net::HttpResponse pcm =
      fixture.post("/v1/audio/speech", body(R"("response_format":"pcm")"));
  EXPECT_EQ(pcm.status, 200);
  EXPECT_EQ(pcm.body, "");
}

TEST(Speech, WhatIsNoFrameAtTheEndIsDropped) {
  ServerFixture fixture(script(frames({1, 2, 3, 4, 5}) + speech::code_text(6, 0)),
                        speech_options());
  const net::HttpResponse pcm =
      fixture.post("/v1/audio/speech", body(R"("response_format":"pcm")"));
  EXPECT_EQ(pcm.status, 200);
  EXPECT_EQ(pcm.body, sound({1, 2, 3, 4, 5}));
  const net::HttpResponse cut =
      fixture.post("/v1/audio/speech", body(R"("response_format":"pcm","max_tokens":29)"));
  EXPECT_EQ(cut.status, 200);
  EXPECT_EQ(cut.body, sound({1, 2, 3, 4}));
}

// A window of four frames is the shortest sound, and no room for that is no room at all.
TEST(Speech, TheShortestAnswerHasSound) {
  ServerFixture fixture(script(frames(kCodes)), speech_options());
  const net::HttpResponse least =
      fixture.post("/v1/audio/speech", body(R"("response_format":"pcm","max_tokens":28)"));
  EXPECT_EQ(least.status, 200) << least.body;
  EXPECT_EQ(least.body, sound({1, 2, 3, 4}));
  ServerFixture narrow(
      fmt::format(R"({{"context":48,"rules":[{{"when":"","then":"{}<custom_token_2>"}}]}})",
                  frames(kCodes)),
      speech_options());
  const net::HttpResponse none = narrow.post(
      "/v1/audio/speech", R"({"input":"So many letters.","voice":"tara","response_format":"pcm"})");
  EXPECT_EQ(none.status, 400) << none.body;
  EXPECT_EQ(parsed(none.body).find("error")->string("code"), "context_length_exceeded");
}

TEST(Speech, WhatIsWrongIsNamed) {
  ServerFixture fixture(script(frames(kCodes)), speech_options());
  struct Case {
    std::string body;
    std::string param;
    std::string says;
  };
  const std::string long_input(4097, 'a');
  for (const Case& wrong : std::vector<Case>{
           {body(R"("response_format":"aac")"), "response_format", "'wav', 'pcm'"},
           {body(R"("response_format":"mp3")"), "response_format", "wav, pcm, flac are written"},
           {body(R"("speed":1.5)"), "speed", "not supported"},
           {body(R"("instructions":"whisper")"), "instructions", "not supported"},
           {body(R"("stream_format":"x")"), "stream_format", "'audio' or 'sse'"},
           {body(R"("stream_format":"sse","stream":false)"), "stream", "contradicts"},
           {body(R"("temperature":3)"), "temperature", "2"},
           {R"({"input":"a","voice":"alloy"})", "voice", "tara, leo"},
           {R"({"input":"a","voice":{"id":"alloy"}})", "voice", "tara, leo"},
           {R"({"input":"a"})", "voice", "missing"},
           {R"({"voice":"tara"})", "input", "missing"},
           {R"({"voice":"tara","input":" \n "})", "input", "empty"},
           {fmt::format(R"({{"voice":"tara","input":"{}"}})", long_input), "input", "at most 4096"},
           {body(R"("max_tokens":100000)"), "input", "tokens"},
           {body(R"("max_tokens":1)"), "max_tokens", "from 28"},
           {body(R"("max_tokens":7)"), "max_tokens", "from 28"},
           {body(R"("max_tokens":27)"), "max_tokens", "from 28"},
       }) {
    const net::HttpResponse answer = fixture.post("/v1/audio/speech", wrong.body);
    EXPECT_EQ(answer.status, 400) << wrong.body << answer.body;
    const Json error = *parsed(answer.body).find("error");
    EXPECT_EQ(error.string("param"), wrong.param) << wrong.body;
    EXPECT_THAT(error.string("message").value_or(""), HasSubstr(wrong.says)) << wrong.body;
  }
  const net::HttpResponse named =
      fixture.post("/v1/audio/speech", R"({"input":"a","voice":{"id":"leo"},"speed":1})");
  EXPECT_EQ(named.status, 200) << named.body;
}

TEST(Speech, VoicesAreListed) {
  ServerFixture fixture(script(frames(kCodes)), speech_options());
  const Json list = parsed(fixture.get("/v1/audio/voices").body);
  EXPECT_EQ(list.find("voices")->dump(), R"(["tara","leo"])");
  EXPECT_EQ(list.find("data")->as_array().at(1).dump(),
            R"({"id":"leo","object":"voice","model":"tiny"})");
}

TEST(Speech, VoicesOfAModelThatThereIsNotAreNone) {
  ServerFixture fixture(script(frames(kCodes)), speech_options());
  EXPECT_EQ(parsed(fixture.get("/v1/audio/voices?model=tiny").body).find("voices")->dump(),
            R"(["tara","leo"])");
  const net::HttpResponse none = fixture.get("/v1/audio/voices?model=x");
  EXPECT_EQ(none.status, 404) << none.body;
  EXPECT_EQ(parsed(none.body).find("error")->string("code"), "model_not_found");
}

TEST(Speech, AModelWithoutADecoderSaysSo) {
  ServerFixture::Options silent = speech_options();
  silent.model = [](ServedModel&) {};
  ServerFixture fixture(script(frames(kCodes)), std::move(silent));
  const net::HttpResponse answer = fixture.post("/v1/audio/speech", body(""));
  EXPECT_EQ(answer.status, 501);
  EXPECT_THAT(answer.body, HasSubstr("--speech-decoder"));
  EXPECT_EQ(parsed(fixture.get("/v1/audio/voices").body).find("voices")->dump(), "[]");
}

TEST(Speech, WhatIsHeardIsCounted) {
  ServerFixture fixture(script(frames(kCodes)), speech_options());
  ASSERT_EQ(fixture.post("/v1/audio/speech", body("")).status, 200);
  const SpeechMeter& meter = fixture.model().speech->meter;
  EXPECT_EQ(meter.samples.load(), 9 * kFrameSamples);
  EXPECT_EQ(meter.first_audio_s.read().count(), 1);
  EXPECT_EQ(meter.speed.read().count(), 1);
  ASSERT_EQ(fixture.post("/v1/audio/speech", body(R"("stream":false)")).status, 200);
  EXPECT_EQ(meter.samples.load(), 2 * 9 * kFrameSamples);
  EXPECT_EQ(meter.speed.read().count(), 2);
  const std::string page = fixture.get("/metrics").body;
  EXPECT_THAT(page, HasSubstr("pelton_speech_first_audio_seconds_count"));
  EXPECT_THAT(page, HasSubstr("pelton_speech_audio_seconds_total"));
  EXPECT_THAT(page, HasSubstr("pelton_speech_speed_count"));
}

// A client that leaves amid its stream: nothing of it is left, and others are answered.
TEST(Speech, AClientThatLeavesFreesItsWork) {
  const std::string endless = fmt::format(
      R"({{"context":4096,"step_ms":1,"rules":[{{"when":"","then":[{{"text":"{}","times":500}}]}}]}})",
      speech::frame_text(3));
  ServerFixture fixture(endless, speech_options());
  {
    net::HttpClient client{{}};
    net::HttpCall call =
        fixture.call("POST", "/v1/audio/speech", body(R"("response_format":"pcm")"));
    call.whole_time_max = std::chrono::milliseconds(300);
    const auto cut = net::http_fetch(client, std::move(call));
    EXPECT_FALSE(cut.ok());
  }
  for (int i = 0; i < 600 && !fixture.engine().ledger().clean(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_TRUE(fixture.engine().ledger().clean());
  const net::HttpResponse after =
      fixture.post("/v1/audio/speech", body(R"("response_format":"pcm","max_tokens":35)"));
  EXPECT_EQ(after.body, sound({3, 3, 3, 3, 3}));
}

}  // namespace
}  // namespace pelton::server
