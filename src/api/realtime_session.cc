#include "api/realtime_session.h"

#include <array>
#include <utility>

#include <fmt/format.h>

#include "api/fields.h"
#include "base/json_writer.h"

namespace pelton::api {
namespace {

using Format = RealtimeSession::Format;
using base::JsonWriter;

constexpr size_t kNameBytesMax = 256;
constexpr size_t kPromptBytesMax = 64 << 10;
constexpr int64_t kPaddingMsMax = 5'000;
constexpr int64_t kSilenceMsMax = 10'000;

struct FormatName {
  Format format;
  std::string_view name;   // "audio/pcm"
  std::string_view older;  // "pcm16"
};
constexpr std::array<FormatName, 3> kFormats = {{{Format::kPcm16, "audio/pcm", "pcm16"},
                                                 {Format::kMuLaw, "audio/pcmu", "g711_ulaw"},
                                                 {Format::kALaw, "audio/pcma", "g711_alaw"}}};

const FormatName& name_of(Format format) {
  return kFormats[static_cast<size_t>(format)];
}

void read_format(const Fields& fields, std::string_view key, bool is_older, Format& format) {
  const std::string* const name = fields.text(key, kNameBytesMax);
  if (name == nullptr) return;
  for (const FormatName& one : kFormats) {
    if (*name != (is_older ? one.older : one.name)) continue;
    format = one.format;
    return;
  }
  fields.refuse(key, fmt::format("'{}' must be '{}', '{}' or '{}'", fields.path(key),
                                 is_older ? kFormats[0].older : kFormats[0].name,
                                 is_older ? kFormats[1].older : kFormats[1].name,
                                 is_older ? kFormats[2].older : kFormats[2].name));
}

void read_transcription(const Fields& parent, std::string_view key, RealtimeSession& session) {
  const Json* const json = parent.object(key);
  if (json == nullptr) return;
  const Fields fields(*json, parent.path(key), parent.complaint(), Fields::Reads::kKept);
  if (const auto* model = fields.text("model", kNameBytesMax)) session.model = *model;
  if (const auto* language = fields.text("language", kNameBytesMax)) session.language = *language;
  if (const auto* prompt = fields.text("prompt", kPromptBytesMax)) session.prompt = *prompt;
  fields.refuse_unread({});
}

// null turns it off, and what is absent leaves it as it is.
void read_turn_detection(const Fields& parent, RealtimeSession& session) {
  const Json* const named = parent.json().find("turn_detection");
  const Json* const json = parent.object("turn_detection");
  if (named != nullptr && named->is_null()) session.turn_detection.reset();
  if (json == nullptr) return;
  const Fields fields(*json, parent.path("turn_detection"), parent.complaint(),
                      Fields::Reads::kKept);
  const std::string* const type = fields.text("type", kNameBytesMax);
  if (type != nullptr && *type != "server_vad") {
    return fields.refuse("type", fmt::format("'{}' must be 'server_vad': speech is detected by its "
                                             "energy here",
                                             fields.path("type")));
  }
  RealtimeSession::TurnDetection made =
      session.turn_detection.value_or(RealtimeSession::TurnDetection{});
  made.threshold = fields.number("threshold", {.low = 0.0, .high = 1.0}).value_or(made.threshold);
  made.prefix_padding_ms =
      static_cast<int>(fields.integer("prefix_padding_ms", {.low = 0, .high = kPaddingMsMax})
                           .value_or(made.prefix_padding_ms));
  made.silence_duration_ms =
      static_cast<int>(fields.integer("silence_duration_ms", {.low = 20, .high = kSilenceMsMax})
                           .value_or(made.silence_duration_ms));
  session.turn_detection = made;
  // Of conversations; nobody answers here.
  constexpr std::array<std::string_view, 2> kHarmless = {"create_response", "interrupt_response"};
  fields.refuse_unread(kHarmless);
}

void read_session(const Fields& fields, RealtimeSession& session) {
  const std::string* const type = fields.text("type", kNameBytesMax);
  if (type != nullptr && *type != "transcription") {
    fields.refuse("type", fmt::format("'{}' must be 'transcription': there are no other sessions "
                                      "here",
                                      fields.path("type")));
  }
  if (const Json* const audio = fields.object("audio")) {
    const Fields around(*audio, fields.path("audio"), fields.complaint(), Fields::Reads::kKept);
    if (const Json* const json = around.object("input")) {
      const Fields input(*json, around.path("input"), fields.complaint(), Fields::Reads::kKept);
      if (const Json* const format = input.object("format")) {
        const Fields kind(*format, input.path("format"), fields.complaint(), Fields::Reads::kKept);
        read_format(kind, "type", false, session.format);
        const auto rate = kind.integer("rate", {.low = 1, .high = 1'000'000});
        if (rate && (session.format != Format::kPcm16 || *rate != 24'000)) {
          kind.refuse("rate",
                      "'session.audio.input.format.rate' is 24000, and of 'audio/pcm' alone");
        }
        kind.refuse_unread({});
      }
      read_transcription(input, "transcription", session);
      read_turn_detection(input, session);
      input.refuse_unread({});
    }
    around.refuse_unread({});
  }
  fields.refuse_unread({});
}

void read_older_session(const Fields& fields, RealtimeSession& session) {
  read_format(fields, "input_audio_format", true, session.format);
  read_transcription(fields, "input_audio_transcription", session);
  read_turn_detection(fields, session);
  constexpr std::array<std::string_view, 2> kHarmless = {"modalities", "client_secret"};
  fields.refuse_unread(kHarmless);
}

void write_transcription(JsonWriter& writer, const RealtimeSession& session) {
  writer.begin_object().key("model").string(session.model);
  writer.key("language");
  if (session.language.empty()) {
    writer.null();
  } else {
    writer.string(session.language);
  }
  writer.key("prompt").string(session.prompt).end_object();
}

void write_turn_detection(JsonWriter& writer, const RealtimeSession& session) {
  if (!session.turn_detection) {
    writer.null();
    return;
  }
  writer.begin_object().key("type").string("server_vad");
  writer.key("threshold").number(session.turn_detection->threshold);
  writer.key("prefix_padding_ms").integer(session.turn_detection->prefix_padding_ms);
  writer.key("silence_duration_ms").integer(session.turn_detection->silence_duration_ms);
  writer.end_object();
}

}  // namespace

Result<RealtimeSession> updated_session(const Json& message, RealtimeSession session) {
  std::optional<Error> complaint;
  const Fields fields(message, "", complaint);
  const Json* const json = fields.object("session");
  if (json == nullptr) {
    fields.refuse("session", "'session' is missing: it has what is to be changed");
  } else {
    const Fields wanted(*json, "session", complaint, Fields::Reads::kKept);
    const bool is_older = message.string("type") == "transcription_session.update";
    if (is_older) {
      read_older_session(wanted, session);
    } else {
      read_session(wanted, session);
    }
  }
  if (complaint) return *std::move(complaint);
  return session;
}

std::string session_event(std::string_view type, const RealtimeSession& session,
                          const RealtimeIds& ids) {
  std::string out;
  JsonWriter writer(out);
  writer.begin_object().key("type").string(type).key("event_id").string(ids.event);
  writer.key("session").begin_object().key("id").string(ids.session);
  writer.key("object").string("realtime.transcription_session");
  if (type.starts_with("transcription_session.")) {
    writer.key("input_audio_format").string(name_of(session.format).older);
    writer.key("input_audio_transcription");
    write_transcription(writer, session);
    writer.key("turn_detection");
    write_turn_detection(writer, session);
  } else {
    writer.key("type").string("transcription");
    writer.key("audio").begin_object().key("input").begin_object();
    writer.key("format").begin_object().key("type").string(name_of(session.format).name);
    if (session.format == Format::kPcm16) writer.key("rate").integer(24'000);
    writer.end_object().key("noise_reduction").null().key("transcription");
    write_transcription(writer, session);
    writer.key("turn_detection");
    write_turn_detection(writer, session);
    writer.end_object().end_object().key("include").begin_array().end_array();
  }
  writer.end_object().end_object();
  return out;
}

std::string realtime_error(const ApiError& error, std::string_view event_id,
                           std::string_view about) {
  std::string out;
  JsonWriter writer(out);
  const auto text_or_null = [&](std::string_view key, std::string_view text) {
    writer.key(key);
    if (text.empty()) {
      writer.null();
    } else {
      writer.string(text);
    }
  };
  writer.begin_object().key("type").string("error").key("event_id").string(event_id);
  writer.key("error").begin_object().key("type").string(error.type);
  text_or_null("code", error.code);
  writer.key("message").string(error.message);
  text_or_null("param", error.param);
  text_or_null("event_id", about);
  writer.end_object().end_object();
  return out;
}

}  // namespace pelton::api
