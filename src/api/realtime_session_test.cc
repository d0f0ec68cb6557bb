#include "api/realtime_session.h"

#include <gtest/gtest.h>

namespace pelton::api {
namespace {

Result<RealtimeSession> updated(std::string_view message, const RealtimeSession& session = {}) {
  return updated_session(Json::parse(message).value(), session);
}

TEST(RealtimeSession, IsReadInBothDialects) {
  const auto newer = updated(
      R"({"type":"session.update","session":{"type":"transcription","audio":{"input":{
          "format":{"type":"audio/pcmu"},"noise_reduction":null,
          "transcription":{"model":"w","language":"de","prompt":"Pelton"},
          "turn_detection":{"type":"server_vad","threshold":0.25,"silence_duration_ms":700}}},
          "include":[]}})");
  const auto older = updated(
      R"({"type":"transcription_session.update","session":{"input_audio_format":"g711_ulaw",
          "input_audio_transcription":{"model":"w","language":"de","prompt":"Pelton"},
          "turn_detection":{"threshold":0.25,"silence_duration_ms":700,"create_response":true}}})");
  for (const auto* made : {&newer, &older}) {
    ASSERT_TRUE(made->ok()) << made->error().message;
    const RealtimeSession& session = made->value();
    EXPECT_EQ(session.format, RealtimeSession::Format::kMuLaw);
    EXPECT_EQ(session.model, "w");
    EXPECT_EQ(session.language, "de");
    EXPECT_EQ(session.prompt, "Pelton");
    ASSERT_TRUE(session.turn_detection.has_value());
    EXPECT_EQ(session.turn_detection->threshold, 0.25);
    EXPECT_EQ(session.turn_detection->prefix_padding_ms, 300);
    EXPECT_EQ(session.turn_detection->silence_duration_ms, 700);
  }
}

TEST(RealtimeSession, WhatIsAbsentStaysAndNullTurnsDetectionOff) {
  RealtimeSession session;
  session.language = "fr";
  session.turn_detection->threshold = 0.7;
  const std::string update = R"({"type":"session.update","session":{"audio":{"input":)";
  auto made = updated(update + R"({"transcription":{"prompt":"x"}}}}})", session);
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(made->language, "fr");
  EXPECT_EQ(made->turn_detection->threshold, 0.7);
  made = updated(update + R"({"turn_detection":null}}}})", session);
  ASSERT_TRUE(made.ok());
  EXPECT_FALSE(made->turn_detection.has_value());
  made = updated(update + R"({"turn_detection":{"type":"server_vad"}}}}})", *made);
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(made->turn_detection->threshold, 0.5);
}

TEST(RealtimeSession, WhatIsNotObeyedIsRefusedByName) {
  struct Case {
    std::string_view session;
    std::string_view field;
  };
  const Case cases[] = {
      {R"(7)", "session"},
      {R"({"type":"realtime"})", "session.type"},
      {R"({"voice":"alloy"})", "session.voice"},
      {R"({"include":["item.input_audio_transcription.logprobs"]})", "session.include"},
      {R"({"audio":{"output":{}}})", "session.audio.output"},
      {R"({"audio":{"input":{"noise_reduction":{"type":"near_field"}}}})",
       "session.audio.input.noise_reduction"},
      {R"({"audio":{"input":{"format":{"type":"audio/mp3"}}}})", "session.audio.input.format.type"},
      {R"({"audio":{"input":{"format":{"type":"audio/pcm","rate":16000}}}})",
       "session.audio.input.format.rate"},
      {R"({"audio":{"input":{"transcription":{"keywords":["a"]}}}})",
       "session.audio.input.transcription.keywords"},
      {R"({"audio":{"input":{"turn_detection":{"type":"semantic_vad"}}}})",
       "session.audio.input.turn_detection.type"},
      {R"({"audio":{"input":{"turn_detection":{"threshold":2}}}})",
       "session.audio.input.turn_detection.threshold"},
      {R"({"audio":{"input":{"turn_detection":{"idle_timeout_ms":5000}}}})",
       "session.audio.input.turn_detection.idle_timeout_ms"},
  };
  for (const Case& one : cases) {
    const auto made =
        updated(R"({"type":"session.update","session":)" + std::string(one.session) + "}");
    ASSERT_FALSE(made.ok()) << one.session;
    EXPECT_EQ(made.error().field, one.field) << made.error().message;
  }
  EXPECT_EQ(updated(R"({"type":"session.update","session":{"type":"realtime"}})").error().message,
            "'session.type' must be 'transcription': there are no other sessions here");
  EXPECT_EQ(updated(R"({"type":"transcription_session.update",
                        "session":{"turn_detection":{"type":"semantic_vad"}}})")
                .error()
                .message,
            "'session.turn_detection.type' must be 'server_vad': speech is detected by its energy "
            "here");
  EXPECT_EQ(updated(R"({"type":"session.update"})").error().field, "session");
}

TEST(RealtimeSession, IsSaidAsItIs) {
  RealtimeSession session;
  session.model = "w";
  EXPECT_EQ(
      session_event("session.created", session, {.event = "event_1", .session = "sess_1"}),
      R"({"type":"session.created","event_id":"event_1","session":{"id":"sess_1",)"
      R"("object":"realtime.transcription_session","type":"transcription","audio":{"input":{)"
      R"("format":{"type":"audio/pcm","rate":24000},"noise_reduction":null,)"
      R"("transcription":{"model":"w","language":null,"prompt":""},"turn_detection":{)"
      R"("type":"server_vad","threshold":0.5,"prefix_padding_ms":300,"silence_duration_ms":500}}},)"
      R"("include":[]}})");
  session.turn_detection.reset();
  session.format = RealtimeSession::Format::kALaw;
  const std::string older =
      session_event("transcription_session.updated", session, {.event = "e", .session = "s"});
  EXPECT_NE(older.find(R"("input_audio_format":"g711_alaw")"), std::string::npos) << older;
  EXPECT_NE(older.find(R"("turn_detection":null)"), std::string::npos) << older;
}

TEST(RealtimeSession, AnErrorNamesTheMessage) {
  const ApiError error = api_error({ErrorCode::kInvalidArgument, "wrong", "audio"});
  EXPECT_EQ(realtime_error(error, "event_1", "mine"),
            R"({"type":"error","event_id":"event_1","error":{"type":"invalid_request_error",)"
            R"("code":)" +
                (error.code.empty() ? "null" : "\"" + std::string(error.code) + "\"") +
                R"(,"message":"wrong","param":"audio","event_id":"mine"}})");
}

}  // namespace
}  // namespace pelton::api
