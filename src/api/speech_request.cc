#include "api/speech_request.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "api/documented_fields.h"
#include "api/json_object.h"
#include "base/base64.h"
#include "base/json_writer.h"

namespace pelton::api {
namespace {

constexpr size_t kModelBytesMax = 512;
constexpr size_t kVoiceBytesMax = 128;
constexpr size_t kInputBytesMax = 4 * kSpeechInputCharsMax;
constexpr size_t kInstructionBytesMax = kInputBytesMax;
constexpr size_t kWordBytesMax = 16;
constexpr int64_t kTokensMax = INT32_MAX;

using Format = SpeechRequest::Format;
struct FormatName {
  Format format = Format::kWav;
  std::string_view name;
  std::string_view media_type;
};
constexpr std::array<FormatName, 5> kFormats = {{{Format::kWav, "wav", "audio/wav"},
                                                 {Format::kPcm, "pcm", "audio/pcm"},
                                                 {Format::kMp3, "mp3", "audio/mpeg"},
                                                 {Format::kOpus, "opus", "audio/ogg"},
                                                 {Format::kFlac, "flac", "audio/flac"}}};

void read_input(const Fields& fields, SpeechRequest& request) {
  const std::string* input = fields.text("input", kInputBytesMax);
  if (input == nullptr) {
    if (!fields.failed()) fields.refuse("input", "'input' is missing: the text to be spoken");
    return;
  }
  const auto chars =
      static_cast<size_t>(std::ranges::count_if(*input, [](char c) { return (c & 0xc0) != 0x80; }));
  if (chars > kSpeechInputCharsMax) {
    return fields.refuse("input", fmt::format("'input' has {} characters; at most {} are spoken by "
                                              "one request",
                                              chars, kSpeechInputCharsMax));
  }
  if (input->find_first_not_of(" \t\r\n\f\v") == std::string::npos) {
    return fields.refuse("input", "'input' must not be empty");
  }
  request.input = *input;
}

// A name, or {"id": NAME} as OpenAI's own voices are named.
void read_voice(const Fields& fields, SpeechRequest& request) {
  const Json* given = fields.find("voice");
  if (given == nullptr) return fields.refuse("voice", "'voice' is missing");
  const std::string* name = nullptr;
  if (given->is_object()) {
    const Fields members(*given, "voice", fields.complaint(), Fields::Reads::kKept);
    name = members.text("id", kVoiceBytesMax);
    if (name == nullptr) members.refuse("id", "'voice.id' is missing");
    members.refuse_unread({});
  } else {
    name = fields.text("voice", kVoiceBytesMax);
  }
  if (name != nullptr) request.voice = *name;
}

void read_formats(const Fields& fields, SpeechRequest& request) {
  if (const std::string* format = fields.text("response_format", kWordBytesMax)) {
    const auto* const known = std::ranges::find(kFormats, *format, &FormatName::name);
    if (known != kFormats.end()) {
      request.format = known->format;
    } else {
      fields.refuse("response_format",
                    fmt::format("'response_format': '{}' is not made here; 'wav', 'pcm' (16 bits, "
                                "little-endian), 'mp3', 'opus' (in Ogg) and 'flac' are",
                                *format));
    }
  }
  if (const std::string* format = fields.text("stream_format", kWordBytesMax)) {
    request.is_sse = *format == "sse";
    if (!request.is_sse && *format != "audio") {
      fields.refuse("stream_format", "'stream_format' must be 'audio' or 'sse'");
    }
  }
  const bool streams = fields.boolean("stream").value_or(true);
  if (request.is_sse && !streams) {
    fields.refuse("stream", "'stream': false contradicts 'stream_format': 'sse'");
  }
  request.generation.stream = streams;
}

// What changes how it sounds, and is not done.
void refuse_styles(const Fields& fields) {
  if (fields.number("speed", {.low = 0.25, .high = 4.0}).value_or(1.0) != 1.0) {
    fields.refuse_unsupported("speed", "another speed than 1 (the voice speaks as it was trained)");
  }
  const std::string* instructions = fields.text("instructions", kInstructionBytesMax);
  if (instructions != nullptr && !instructions->empty()) {
    fields.refuse_unsupported("instructions", "a way of speaking that does not stand in 'input'");
  }
}

void read_sampling(const Fields& fields, GenerationFields& generation) {
  generation.temperature = fields.number("temperature", {.low = 0.0, .high = 2.0});
  generation.top_p = fields.number("top_p", {.low = 0.0, .high = 1.0, .low_open = true});
  generation.min_p = fields.number("min_p", {.low = 0.0, .high = 1.0});
  if (const auto top_k = fields.integer("top_k", {.low = -1, .high = kTokensMax})) {
    generation.top_k = static_cast<int>(std::max<int64_t>(*top_k, 0));
  }
  generation.repetition_penalty =
      fields.number("repetition_penalty", {.low = 0.0, .high = 100.0, .low_open = true});
  if (const auto seed = fields.integer("seed", {})) {
    generation.seed = static_cast<uint64_t>(*seed);
  }
  generation.max_tokens =
      fields.integer("max_tokens", {.low = kSpeechTokensMin, .high = kTokensMax});
}

}  // namespace

Result<SpeechRequest> parse_speech_request(std::string_view body, const RequestLimits& limits) {
  TRY_ASSIGN(const Json json, parse_object(body));
  std::optional<Error> complaint;
  const Fields fields(json, "", complaint, Fields::Reads::kKept, limits.fields_read);
  SpeechRequest request;
  if (const std::string* model = fields.text("model", kModelBytesMax)) request.model = *model;
  read_input(fields, request);
  read_voice(fields, request);
  read_caller_fields(fields, limits, request.generation);
  read_formats(fields, request);
  refuse_styles(fields);
  read_sampling(fields, request.generation);
  check_unread_fields(fields, BodyKind::kText, limits.unknown_fields, request.warnings);
  if (complaint) return std::move(*complaint);
  return request;
}

std::string_view format_name(SpeechRequest::Format format) {
  return std::ranges::find(kFormats, format, &FormatName::format)->name;
}

std::string_view media_type(SpeechRequest::Format format) {
  return std::ranges::find(kFormats, format, &FormatName::format)->media_type;
}

void append_speech_delta(std::string_view bytes, std::string& json) {
  base::JsonWriter writer(json);
  writer.begin_object().key("type").string("speech.audio.delta");
  writer.key("audio").string(base::base64(bytes)).end_object();
}

void append_speech_done(const SpeechUsage& usage, std::string& json) {
  base::JsonWriter writer(json);
  writer.begin_object().key("type").string("speech.audio.done").key("usage").begin_object();
  writer.key("input_tokens").integer(usage.input_tokens);
  writer.key("output_tokens").integer(usage.output_tokens);
  writer.key("total_tokens").integer(usage.input_tokens + usage.output_tokens);
  writer.end_object().end_object();
}

std::string voices_body(std::span<const VoiceList> models) {
  std::string body;
  base::JsonWriter writer(body);
  writer.begin_object().key("object").string("list").key("voices").begin_array();
  std::vector<std::string_view> listed;
  for (const VoiceList& model : models) {
    for (const std::string& voice : model.voices) {
      if (std::ranges::find(listed, voice) != listed.end()) continue;
      listed.push_back(voice);
      writer.string(voice);
    }
  }
  writer.end_array().key("data").begin_array();
  for (const VoiceList& model : models) {
    for (const std::string& voice : model.voices) {
      writer.begin_object().key("id").string(voice).key("object").string("voice");
      writer.key("model").string(model.model).end_object();
    }
  }
  writer.end_array().end_object();
  return body;
}

}  // namespace pelton::api
