// A session that speaks a text while it is being written (/v1/audio/speech/websocket), in
// Together's events: what it is set to, and what is said to its client. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/error.h"
#include "api/fields.h"
#include "api/speech_request.h"
#include "base/json.h"
#include "base/result.h"

namespace pelton::api {

// Of a client's message: as much text as a session keeps, each character written as an escape, and
// the message around it.
inline constexpr size_t kSpeechEventBytesMax = size_t{128} << 10;
// Of a session's settings, as JSON.
inline constexpr size_t kSpeechSettingsBytesMax = size_t{16} << 10;

// What the address of a handshake says.
struct SpeechAddress {
  std::string model;                  // empty: none is named
  Json settings;                      // that the session begins with
  std::vector<std::string> warnings;  // of fields that an address does not have
};
// `query`: its fields, decoded, in order. Errors, with the field: kInvalidArgument of one that
// comes twice, and of one that an address does not have where `unknown` says so; kUnsupported of
// another encoding.
Result<SpeechAddress> read_speech_address(
    std::span<const std::pair<std::string, std::string>> query, UnknownFields unknown);

// A session's settings are members of a body for POST /v1/audio/speech, without its "input".
// The settings that a message makes of `settings`: its "session"'s members in place of theirs, null
// takes one away. Whether their values may be is not looked at, parse_speech_request() does that.
// Errors: kInvalidArgument with the field, of members that are no setting; kUnsupported of another
// encoding.
Result<Json> updated_speech_settings(const Json& message, Json settings);
// The body that asks for `input` to be spoken so.
std::string speech_body(const Json& settings, std::string_view model, std::string_view input);

struct SpeechSessionFacts {
  std::string_view event_id;
  std::string_view session_id;
  std::string_view model;  // as it was named
  int sample_rate = 0;
  std::span<const std::string> warnings = {};  // what is not obeyed
};
// "session.created", "session.updated".
std::string speech_session_event(std::string_view type, const Json& settings,
                                 const SpeechSessionFacts& facts);

// {"type":"conversation.item.audio_output.delta","item_id","delta":BASE64}: the next bytes of an
// item's sound.
void append_item_delta(std::string_view item, std::string_view bytes, std::string& json);
// {"type":"conversation.item.audio_output.done","item_id","status":"completed","usage":{…}}; of one
// that was cancelled without usage.
void append_item_done(std::string_view item, const SpeechUsage& usage, std::string& json);
void append_item_cancelled(std::string_view item, std::string& json);
// {"type":"conversation.item.tts.failed","item_id","error":{…}}, of an error_body().
void append_item_failed(std::string_view item, std::string_view error_body, std::string& json);

}  // namespace pelton::api
