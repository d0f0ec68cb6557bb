// POST /v1/audio/speech, as OpenAI has it: bodies in and out. Pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/generation_fields.h"
#include "base/result.h"

namespace pelton::api {

// OpenAI's own bound on "input", in characters (code points).
inline constexpr size_t kSpeechInputCharsMax = 4096;
// Below so many audio tokens (the first window of four frames) there is no sound: "max_tokens" is
// at least that.
inline constexpr int64_t kSpeechTokensMin = 28;

struct SpeechRequest {
  enum class Format { kWav, kPcm, kMp3, kOpus, kFlac };

  std::string model;  // empty: the only one there is
  std::string input;
  std::string voice;
  Format format = Format::kWav;
  bool is_sse = false;  // "stream_format": events with the sound in base64, instead of its bytes
  // What of it is read: sampling, seed, max_tokens, who asks. `stream` (true unless it is said to
  // be false): bytes are sent as they come.
  GenerationFields generation;
  std::vector<std::string> warnings;  // what was ignored, for a response header
};

// "mp3", and what bytes of it are: "audio/mpeg".
std::string_view format_name(SpeechRequest::Format format);
std::string_view media_type(SpeechRequest::Format format);

// Errors: kInvalidArgument with the field's path; kUnsupported for formats, speeds and
// instructions.
Result<SpeechRequest> parse_speech_request(std::string_view body, const RequestLimits& limits);

// {"type":"speech.audio.delta","audio":BASE64}, {"type":"speech.audio.done","usage":{…}}
void append_speech_delta(std::string_view bytes, std::string& json);
struct SpeechUsage {
  int64_t input_tokens = 0;
  int64_t output_tokens = 0;
};
void append_speech_done(const SpeechUsage& usage, std::string& json);

// {"object":"list","voices":["tara",…],"data":[{"id","object":"voice","model"},…]}
struct VoiceList {
  std::string model;
  std::span<const std::string> voices;
};
std::string voices_body(std::span<const VoiceList> models);

}  // namespace pelton::api
