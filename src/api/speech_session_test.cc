#include "api/speech_session.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace pelton::api {
namespace {

Result<Json> updated(std::string_view session, const Json& settings) {
  return updated_speech_settings(
      Json::parse(R"({"type":"session.update","session":)" + std::string(session) + "}").value(),
      settings);
}

TEST(SpeechSession, WhatIsGivenTakesTheOldOnesPlaceAndNullTakesItAway) {
  const Json settings = Json::parse(R"({"voice":"tara","seed":5})").value();
  EXPECT_EQ(updated(R"({"voice":"leo","top_k":3})", settings).value().dump(),
            R"({"seed":5,"voice":"leo","top_k":3})");
  EXPECT_EQ(updated(R"({"seed":null,"top_p":null})", settings).value().dump(),
            R"({"voice":"tara"})");
  EXPECT_EQ(updated("{}", settings).value(), settings);
  for (const char* const none : {"input", "model", "stream", "stream_format"}) {
    const auto refused = updated("{\"" + std::string(none) + "\":1}", settings);
    ASSERT_FALSE(refused.ok()) << none;
    EXPECT_EQ(refused.error().field, "session." + std::string(none));
  }
  EXPECT_EQ(updated_speech_settings(Json::parse("{}").value(), settings).error().field, "session");
  const std::string large = "{\"x\":\"" + std::string(kSpeechSettingsBytesMax, 'x') + "\"}";
  EXPECT_EQ(updated(large, settings).error().field, "session");
}

TEST(SpeechSession, AnItemIsABodyAndItsEventsSayWhichItIs) {
  const Json settings = Json::parse(R"({"voice":"tara"})").value();
  EXPECT_EQ(speech_body(settings, "m", "a \"b\""),
            R"({"voice":"tara","model":"m","input":"a \"b\""})");
  const std::vector<std::string> warnings = {"'x' is ignored"};
  EXPECT_EQ(
      speech_session_event("session.updated", settings,
                           {.event_id = "event_1",
                            .session_id = "sess_1",
                            .model = "m",
                            .sample_rate = 24'000,
                            .warnings = warnings}),
      R"({"type":"session.updated","event_id":"event_1","session":{"voice":"tara","id":"sess_1",)"
      R"("object":"realtime.tts.session","modalities":["text","audio"],"model":"m",)"
      R"("sample_rate":24000},"warnings":["'x' is ignored"]})");
  std::string json;
  append_item_delta("item_1", "abc", json);
  EXPECT_EQ(json,
            R"({"type":"conversation.item.audio_output.delta","item_id":"item_1","delta":"YWJj"})");
  json.clear();
  append_item_done("item_1", {.input_tokens = 2, .output_tokens = 3}, json);
  EXPECT_EQ(
      json,
      R"({"type":"conversation.item.audio_output.done","item_id":"item_1","status":"completed",)"
      R"("usage":{"input_tokens":2,"output_tokens":3,"total_tokens":5}})");
  json.clear();
  append_item_failed("item_1", R"({"error":{"message":"no"}})", json);
  EXPECT_EQ(
      json,
      R"({"type":"conversation.item.tts.failed","item_id":"item_1","error":{"message":"no"}})");
}

}  // namespace
}  // namespace pelton::api
