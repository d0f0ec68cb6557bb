// A session of OpenAI's Realtime API that transcribes, as clients configure it and see it. Two
// dialects: "session.update" with the session's "audio", and the older
// "transcription_session.update". A plain value and pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "api/error.h"
#include "base/json.h"
#include "base/result.h"

namespace pelton::api {

// Of an event of a client: base64 of a minute of sound, more than a session keeps, and the message
// around it.
inline constexpr size_t kRealtimeEventBytesMax = size_t{4} << 20;

struct RealtimeSession {
  enum class Format : uint8_t { kPcm16, kMuLaw, kALaw };
  struct TurnDetection {
    double threshold = 0.5;
    int prefix_padding_ms = 300;
    int silence_duration_ms = 500;
  };

  Format format = Format::kPcm16;
  std::string model;     // as it was named
  std::string language;  // empty: detected
  std::string prompt;
  std::optional<TurnDetection> turn_detection = TurnDetection{};  // none: the client commits
};

// The session that the message makes of `session`. Errors: kInvalidArgument, kUnsupported, with the
// field.
Result<RealtimeSession> updated_session(const Json& message, RealtimeSession session);

// The event that says what a session is: "session.created", "session.updated", or, in the older
// dialect, "transcription_session.updated".
struct RealtimeIds {
  std::string_view event;
  std::string_view session;
};
std::string session_event(std::string_view type, const RealtimeSession& session,
                          const RealtimeIds& ids);
// {"type":"error", …}: what was wrong with a message; `about`: its own event_id, if it had one.
std::string realtime_error(const ApiError& error, std::string_view event_id,
                           std::string_view about);

}  // namespace pelton::api
