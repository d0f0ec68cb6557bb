#include "api/speech_session.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <system_error>

#include <fmt/format.h>

#include "api/documented_fields.h"
#include "api/fields.h"
#include "base/base64.h"
#include "base/json_writer.h"

namespace pelton::api {
namespace {

using base::JsonWriter;

constexpr std::string_view kEncoding = "response_encoding";
constexpr std::string_view kHas =
    "an address has 'model', 'voice', 'response_format', 'response_encoding' and 'speed', and "
    "'session.update' sets the others";
constexpr size_t kShownMax = 64;  // bytes of a name that is not ours

void begin_item_event(JsonWriter& writer, std::string_view type, std::string_view item) {
  writer.begin_object().key("type").string(type).key("item_id").string(item);
}

// Whatever it is, the reader of the settings names it as a field.
Json number_or_text(const std::string& text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_number = error == std::errc() && end == text.data() + text.size();
  return is_number && std::isfinite(number) ? Json(number) : Json(text);
}

// What Together's clients say of the sound, in our words: "raw" are the samples alone, as "pcm" is,
// and their only encoding is no setting.
std::optional<Error> settle_sound(Json& settings) {
  if (const Json* const encoding = settings.find(kEncoding)) {
    if (!encoding->is_string() || encoding->as_string() != "pcm_s16le") {
      return Error{ErrorCode::kUnsupported,
                   "'response_encoding' is 'pcm_s16le': samples of 16 bits, little-endian",
                   std::string(kEncoding)};
    }
    std::erase_if(settings.as_object(),
                  [](const Json::Member& member) { return member.key == kEncoding; });
  }
  if (settings.string("response_format") == "raw") settings.set("response_format", Json("pcm"));
  return std::nullopt;
}

// As it may stand in a message.
std::string_view shown(std::string_view name) {
  const bool is_plain = name.size() <= kShownMax && std::ranges::all_of(name, [](char c) {
                          return c > ' ' && c <= '~' && c != '"';
                        });
  return is_plain ? name : std::string_view("?");
}

}  // namespace

Result<SpeechAddress> read_speech_address(
    std::span<const std::pair<std::string, std::string>> query, UnknownFields unknown) {
  SpeechAddress address;
  address.settings = Json(Json::Object());
  address.settings.set("response_format", Json("pcm"));
  for (size_t i = 0; i < query.size(); ++i) {
    const auto& [name, value] = query[i];
    const auto is_same = [&name = name](const auto& other) { return other.first == name; };
    if (std::ranges::any_of(query.first(i), is_same)) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("'{}' is given twice in the address", shown(name)),
                   std::string(shown(name))};
    }
    if (name == "model") {
      address.model = value;
    } else if (name == "voice" || name == "response_format" || name == kEncoding) {
      address.settings.set(name, Json(value));
    } else if (name == "speed") {
      address.settings.set(name, number_or_text(value));
    } else if (unknown == UnknownFields::kRefuse) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("there is no field '{}' in this address: {}", shown(name), kHas),
                   std::string(shown(name))};
    } else if (address.warnings.size() < kFieldWarningsMax) {
      address.warnings.push_back(unread_warning(shown(name), kHas));
    }
  }
  if (auto error = settle_sound(address.settings)) return *std::move(error);
  return address;
}

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
  // What an address without it has, and not what a body without it would: a WAV file.
  if (const Json* const format = wanted->find("response_format"); format && format->is_null()) {
    made.set("response_format", Json("pcm"));
  }
  if (auto error = settle_sound(made)) return *std::move(error);
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
