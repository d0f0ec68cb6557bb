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
  // Sound as an address without the field has it.
  EXPECT_EQ(
      updated(R"({"response_format":null})", Json::parse(R"({"response_format":"wav"})").value())
          .value()
          .dump(),
      R"({"response_format":"pcm"})");
  for (const char* const none : {"input", "model", "stream", "stream_format"}) {
    const auto refused = updated("{\"" + std::string(none) + "\":1}", settings);
    ASSERT_FALSE(refused.ok()) << none;
    EXPECT_EQ(refused.error().field, "session." + std::string(none));
  }
  EXPECT_EQ(updated_speech_settings(Json::parse("{}").value(), settings).error().field, "session");
  const std::string large = "{\"x\":\"" + std::string(kSpeechSettingsBytesMax, 'x') + "\"}";
  EXPECT_EQ(updated(large, settings).error().field, "session");
}

using Query = std::vector<std::pair<std::string, std::string>>;

TEST(SpeechSession, AnAddressIsReadAsAMessageIs) {
  const auto address = [](const Query& query, UnknownFields unknown = UnknownFields::kWarn) {
    return read_speech_address(query, unknown);
  };
  const SpeechAddress none = address({}).value();
  EXPECT_EQ(none.model, "");
  EXPECT_EQ(none.settings.dump(), R"({"response_format":"pcm"})");
  EXPECT_TRUE(none.warnings.empty());
  const SpeechAddress all = address({{"model", "m"},
                                     {"voice", "tara"},
                                     {"response_format", "raw"},
                                     {"response_encoding", "pcm_s16le"},
                                     {"speed", "1"}})
                                .value();
  EXPECT_EQ(all.model, "m");
  EXPECT_EQ(all.settings.dump(), R"({"response_format":"pcm","voice":"tara","speed":1.0})");
  EXPECT_TRUE(all.warnings.empty());
  // No number is a text, which the reader of bodies refuses by name.
  for (const char* const speed : {"nan", "inf", "-inf", "fast", "1e999", ""}) {
    const SpeechAddress odd = address({{"voice", "tara"}, {"speed", speed}}).value();
    EXPECT_EQ(odd.settings.string("speed"), speed);
    EXPECT_EQ(parse_speech_request(speech_body(odd.settings, "m", "-"), {}).error().field, "speed");
  }
  const auto unknown = address({{"sped", "2"}, {"a\nb", "3"}});
  ASSERT_EQ(unknown.value().warnings.size(), 2u);
  EXPECT_EQ(unknown->warnings[0].find("sped ignored: an address has 'model'"), 0u);
  EXPECT_EQ(unknown->warnings[1].find("? ignored: "), 0u);
  EXPECT_EQ(address({{"sped", "2"}}, UnknownFields::kRefuse).error().field, "sped");
  for (const char* const name : {"model", "voice", "speed", "response_format", "sped"}) {
    const auto twice = address({{name, "1"}, {"x", "1"}, {name, "1"}});
    ASSERT_FALSE(twice.ok()) << name;
    EXPECT_EQ(twice.error().field, name);
    EXPECT_NE(twice.error().message.find("given twice"), std::string::npos);
  }
  EXPECT_LE(address(Query{{"a", ""},
                          {"b", ""},
                          {"c", ""},
                          {"d", ""},
                          {"e", ""},
                          {"f", ""},
                          {"g", ""},
                          {"h", ""},
                          {"i", ""},
                          {"j", ""}})
                .value()
                .warnings.size(),
            8u);
}

TEST(SpeechSession, TheSoundIsNamedInOneWayInTheAddressAndInAMessage) {
  const Json settings = Json::parse(R"({"response_format":"wav"})").value();
  EXPECT_EQ(updated(R"({"response_format":"raw","response_encoding":"pcm_s16le"})", settings)
                .value()
                .dump(),
            R"({"response_format":"pcm"})");
  EXPECT_EQ(updated(R"({"response_encoding":null})", settings).value(), settings);
  for (const char* const encoding : {"\"pcm_mulaw\"", "\"pcm_f32le\"", "16"}) {
    const auto refused =
        updated(R"({"response_encoding":)" + std::string(encoding) + "}", settings);
    ASSERT_FALSE(refused.ok()) << encoding;
    EXPECT_EQ(refused.error().field, "response_encoding");
    EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
  }
  const Query query = {{"response_encoding", "pcm_mulaw"}};
  const auto refused = read_speech_address(query, UnknownFields::kWarn);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message,
            updated(R"({"response_encoding":"pcm_mulaw"})", settings).error().message);
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
