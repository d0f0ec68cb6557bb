#include "api/speech_session.h"

#include <array>
#include <optional>

#include <fmt/format.h>

#include "api/fields.h"
#include "base/base64.h"
#include "base/json_writer.h"

namespace pelton::api {
namespace {

using base::JsonWriter;

void begin_item_event(JsonWriter& writer, std::string_view type, std::string_view item) {
  writer.begin_object().key("type").string(type).key("item_id").string(item);
}

}  // namespace

Result<Json> updated_speech_settings(const Json& message, Json settings) {
  std::optional<Error> complaint;
  const Fields fields(message, "", complaint);
  const Json* const wanted = fields.object("session");
  if (wanted == nullptr) {
    fields.refuse("session", "'session' is missing: it has what is to be changed");
    return *std::move(complaint);
  }
  constexpr std::array<std::string_view, 4> kNone = {"input", "model", "stream", "stream_format"};
  for (const std::string_view key : kNone) {
    if (wanted->find(key) == nullptr) continue;
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("'session.{}' is no setting: the model is named in the address, text "
                             "comes by 'input_text_buffer.append' and sound goes out as it is made",
                             key),
                 fmt::format("session.{}", key)};
  }
  Json made{Json::Object()};
  for (const Json::Member& member : settings.as_object()) {
    if (wanted->find(member.key) == nullptr) made.set(member.key, member.value);
  }
  for (const Json::Member& member : wanted->as_object()) {
    if (!member.value.is_null()) made.set(member.key, member.value);
  }
  if (made.dump().size() > kSpeechSettingsBytesMax) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("'session' comes to more than {} bytes", kSpeechSettingsBytesMax),
                 "session"};
  }
  return made;
}

std::string speech_body(const Json& settings, std::string_view model, std::string_view input) {
  Json body = settings;
  body.set("model", Json(model));
  body.set("input", Json(input));
  return body.dump();
}

std::string speech_session_event(std::string_view type, const Json& settings,
                                 const SpeechSessionFacts& facts) {
  Json session = settings;
  session.set("id", Json(facts.session_id));
  session.set("object", Json("realtime.tts.session"));
  session.set("modalities", Json(Json::Array{Json("text"), Json("audio")}));
  session.set("model", Json(facts.model));
  session.set("sample_rate", Json(facts.sample_rate));
  Json event{Json::Object()};
  event.set("type", Json(type));
  event.set("event_id", Json(facts.event_id));
  event.set("session", std::move(session));
  if (!facts.warnings.empty()) {
    event.set("warnings", Json(Json::Array(facts.warnings.begin(), facts.warnings.end())));
  }
  return event.dump();
}

void append_item_delta(std::string_view item, std::string_view bytes, std::string& json) {
  JsonWriter writer(json);
  begin_item_event(writer, "conversation.item.audio_output.delta", item);
  writer.key("delta").string(base::base64(bytes)).end_object();
}

void append_item_done(std::string_view item, const SpeechUsage& usage, std::string& json) {
  JsonWriter writer(json);
  begin_item_event(writer, "conversation.item.audio_output.done", item);
  writer.key("status").string("completed").key("usage").begin_object();
  writer.key("input_tokens").integer(usage.input_tokens);
  writer.key("output_tokens").integer(usage.output_tokens);
  writer.key("total_tokens").integer(usage.input_tokens + usage.output_tokens);
  writer.end_object().end_object();
}

void append_item_cancelled(std::string_view item, std::string& json) {
  JsonWriter writer(json);
  begin_item_event(writer, "conversation.item.audio_output.done", item);
  writer.key("status").string("cancelled").end_object();
}

void append_item_failed(std::string_view item, std::string_view error_body, std::string& json) {
  json += R"({"type":"conversation.item.tts.failed","item_id":)";
  base::append_json_string(json, item);
  const bool is_object = error_body.starts_with("{\"");
  json += is_object ? "," + std::string(error_body.substr(1)) : "}";
}

}  // namespace pelton::api
