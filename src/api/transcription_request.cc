#include "api/transcription_request.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include <fmt/format.h>

#include "base/json.h"

namespace pelton::api {
namespace {

using Format = TranscriptionRequest::Format;

constexpr size_t kModelBytesMax = 512;
constexpr size_t kLanguageBytesMax = 64;
constexpr size_t kPromptBytesMax = size_t{16} << 10;
constexpr size_t kUserBytesMax = 512;
constexpr size_t kChunkingBytesMax = 1024;
constexpr double kTimeoutMax = 24 * 3600;
constexpr int kTextsMax = 16;  // that are followed or drawn
constexpr size_t kShownMax = 64;
constexpr std::string_view kChunking = "chunking_strategy";

constexpr std::array<std::pair<std::string_view, Format>, 5> kFormats = {
    {{"json", Format::kJson},
     {"text", Format::kText},
     {"srt", Format::kSubrip},
     {"verbose_json", Format::kVerboseJson},
     {"vtt", Format::kWebVtt}}};

Error bad(std::string_view field, std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message), std::string(field)};
}

Error given_twice(std::string_view field) {
  return bad(field, fmt::format("'{}' is given twice", field));
}

Result<std::string> text_of(const FormField& field, size_t bytes_max) {
  if (field.content.size() <= bytes_max) return std::string(field.content);
  return bad(field.name, fmt::format("'{}' has {} bytes; at most {} are read", field.name,
                                     field.content.size(), bytes_max));
}

Result<double> number_of(const FormField& field, double most) {
  double value = 0.0;
  const char* const end = field.content.data() + field.content.size();
  const auto [last, error] = std::from_chars(field.content.data(), end, value);
  if (error == std::errc() && last == end && value >= 0.0 && value <= most) return value;
  return bad(field.name, fmt::format("'{}' must be a number from 0 to {}", field.name, most));
}

Result<double> timeout_of(const FormField& field) {
  const Result<double> seconds = number_of(field, kTimeoutMax);
  if (seconds.ok() && *seconds > 0.0) return *seconds;
  return bad(field.name, fmt::format("'{}' must be a number of seconds greater than 0, and at most "
                                     "{}",
                                     field.name, kTimeoutMax));
}

Result<int> texts_of(const FormField& field) {
  int value = 0;
  const char* const end = field.content.data() + field.content.size();
  const auto [last, error] = std::from_chars(field.content.data(), end, value);
  if (error == std::errc() && last == end && value >= 1 && value <= kTextsMax) return value;
  return bad(field.name,
             fmt::format("'{}' must be a whole number from 1 to {}", field.name, kTextsMax));
}

Result<bool> boolean_of(const FormField& field) {
  if (field.content == "true" || field.content == "True" || field.content == "1") return true;
  if (field.content == "false" || field.content == "False" || field.content == "0") return false;
  return bad(field.name, fmt::format("'{}' must be true or false", field.name));
}

Result<Format> format_of(const FormField& field) {
  for (const auto& [name, format] : kFormats) {
    if (name == field.content) return format;
  }
  return bad(field.name,
             "'response_format' must be 'json', 'text', 'srt', 'verbose_json' or 'vtt'");
}

// What came of the fields that may come several times.
struct Asked {
  bool segments = false;
  bool words = false;
  bool turns = false;  // the file is to be cut where nobody speaks
};

Result<void> read_granularity(const FormField& field, Asked& asked) {
  if (field.content == "word") {
    asked.words = true;
  } else if (field.content == "segment") {
    asked.segments = true;
  } else {
    return bad("timestamp_granularities",
               "'timestamp_granularities[]' must be 'word' or 'segment'");
  }
  return {};
}

// A member of OpenAI's {"type": "server_vad", ...}, by which others cut a file into pieces.
Result<void> check_chunking(std::string_view key, const Json& value) {
  const std::string path = fmt::format("{}.{}", kChunking, key);
  if (key == "type") {
    if (value.is_string() && value.as_string() == "server_vad") return {};
    return bad(path, fmt::format("'{}' must be 'server_vad'", path));
  }
  const bool is_share = key == "threshold";
  if (!is_share && key != "prefix_padding_ms" && key != "silence_duration_ms") {
    return bad(path.substr(0, kShownMax),
               fmt::format("there is no field '{}'; 'type', 'threshold', 'prefix_padding_ms' and "
                           "'silence_duration_ms' there are",
                           path.substr(0, kShownMax)));
  }
  if (value.is_null()) return {};
  const std::optional<int64_t> ms = is_share ? std::nullopt : exact_integer(value);
  if (is_share && value.is_number() && value.as_number() >= 0.0 && value.as_number() <= 1.0) {
    return {};
  }
  if (ms && *ms >= 0) return {};
  return bad(path, fmt::format("'{}' must be {}", path,
                               is_share ? "a number from 0 to 1" : "a whole number, 0 or more"));
}

bool is_chunking(std::string_view name) {
  if (!name.starts_with(kChunking)) return false;
  const std::string_view rest = name.substr(kChunking.size());
  return rest.empty() || (rest.starts_with('[') && rest.ends_with(']'));
}

// "auto"; the object as JSON, or as OpenAI's clients write one in a form, a field for each member:
// chunking_strategy[type]. What it asks for is looked at and not done.
Result<void> read_chunking(const FormField& field, Asked& asked) {
  const std::string_view rest = field.name.substr(kChunking.size());
  TRY_ASSIGN(const std::string content, text_of(field, kChunkingBytesMax));
  if (!rest.empty()) {
    const Result<Json> number = Json::parse(content);
    const bool is_number = number.ok() && number->is_number();
    asked.turns = true;
    return check_chunking(rest.substr(1, rest.size() - 2), is_number ? *number : Json(content));
  }
  if (content == "auto") return {};
  const Result<Json> object = Json::parse(content);
  if (!object.ok() || !object->is_object() || object->find("type") == nullptr) {
    return bad(kChunking, fmt::format("'{}' must be 'auto', or an object of JSON whose 'type' is "
                                      "'server_vad'",
                                      kChunking));
  }
  for (const Json::Member& member : object->as_object()) {
    TRY(check_chunking(member.key, member.value));
  }
  asked.turns = true;
  return {};
}

Result<void> read_file(const FormField& field, const TranscriptionLimits& limits,
                       TranscriptionRequest& request) {
  if (!field.is_file) return bad("file", "'file' must be a file: the part has no file name");
  if (static_cast<int64_t>(field.content.size()) > limits.file_bytes_max) {
    return bad("file", fmt::format("'file' has {} bytes; at most {} are read (--max-audio-bytes)",
                                   field.content.size(), limits.file_bytes_max));
  }
  request.file = field.content;
  return {};
}

// What other models of OpenAI's take, and this one not.
Result<void> refuse_or_warn(const FormField& field, const TranscriptionLimits& limits,
                            TranscriptionRequest& request) {
  const std::string_view shown = field.name.substr(0, kShownMax);
  if (field.name == "include[]" || field.name == "include") {
    return Error{ErrorCode::kUnsupported, "'include[]' is not done: tokens have no logprobs here",
                 "include"};
  }
  if (limits.unknown_fields == UnknownFields::kRefuse) {
    return bad(shown, fmt::format("there is no field '{}' in this form", shown));
  }
  const bool is_plain =
      std::ranges::all_of(shown, [](char c) { return c > ' ' && c <= '~' && c != '"'; });
  request.warnings.push_back(
      fmt::format("the field '{}' is not read", is_plain ? shown : std::string_view("?")));
  return {};
}

Result<void> read_field(const FormField& field, const TranscriptionLimits& limits,
                        TranscriptionRequest& request, Asked& asked) {
  const std::string_view name = field.name;
  if (name == "file") return read_file(field, limits, request);
  if (name == "model") {
    TRY_ASSIGN(request.model, text_of(field, kModelBytesMax));
  } else if (name == "language") {
    TRY_ASSIGN(request.language, text_of(field, kLanguageBytesMax));
  } else if (name == "prompt") {
    TRY_ASSIGN(request.prompt, text_of(field, kPromptBytesMax));
  } else if (name == "response_format") {
    TRY_ASSIGN(request.format, format_of(field));
  } else if (name == "temperature") {
    TRY_ASSIGN(request.temperature, number_of(field, 1.0));
  } else if (name == "beam_size") {
    TRY_ASSIGN(request.beam_size, texts_of(field));
  } else if (name == "best_of") {
    TRY_ASSIGN(request.best_of, texts_of(field));
  } else if (name == "timestamp_granularities[]" || name == "timestamp_granularities") {
    return read_granularity(field, asked);
  } else if (is_chunking(name)) {
    return read_chunking(field, asked);
  } else if (name == "stream") {
    TRY_ASSIGN(request.stream, boolean_of(field));
  } else if (name == "timeout") {
    TRY_ASSIGN(request.timeout_s, timeout_of(field));
  } else if (name == "user") {
    TRY_ASSIGN(request.user, text_of(field, kUserBytesMax));
  } else {
    return refuse_or_warn(field, limits, request);
  }
  return {};
}

bool may_come_again(std::string_view name) {
  return name.starts_with("timestamp_granularities") || name.ends_with("[]");
}

Result<void> check_together(const TranscriptionRequest& request, const Asked& asked) {
  if ((asked.segments || asked.words) && request.format != Format::kVerboseJson) {
    return bad("timestamp_granularities",
               "'timestamp_granularities[]' needs 'response_format' 'verbose_json'");
  }
  const bool is_text = request.format == Format::kJson || request.format == Format::kText;
  if (request.stream && !is_text) {
    return bad("stream", "'stream' needs 'response_format' 'json' or 'text'");
  }
  return {};
}

}  // namespace

Result<std::string> transcription_model_asked(std::span<const FormField> form) {
  const auto is_model = [](const FormField& field) { return field.name == "model"; };
  const auto found = std::ranges::find_if(form, is_model);
  if (found == form.end()) return std::string();
  if (std::ranges::count_if(form, is_model) > 1) return given_twice("model");
  return text_of(*found, kModelBytesMax);
}

Result<TranscriptionRequest> parse_transcription_request(std::span<const FormField> form,
                                                         const TranscriptionLimits& limits) {
  TranscriptionRequest request;
  Asked asked;
  for (size_t i = 0; i < form.size(); ++i) {
    const FormField& field = form[i];
    const auto is_same = [&](const FormField& other) { return other.name == field.name; };
    if (!may_come_again(field.name) && std::ranges::any_of(form.first(i), is_same)) {
      return given_twice(field.name.substr(0, kShownMax));
    }
    TRY(read_field(field, limits, request, asked));
  }
  const bool has_file =
      std::ranges::any_of(form, [](const FormField& field) { return field.name == "file"; });
  if (!has_file) return bad("file", "'file' is missing");
  if (request.file.empty()) return bad("file", "'file' is empty");
  TRY(check_together(request, asked));
  if (asked.turns) {
    request.warnings.push_back(
        fmt::format("{} ignored: a file is heard in windows of 30 s", kChunking));
  }
  request.has_words = asked.words;
  request.has_segments = asked.segments || !asked.words;
  return request;
}

void note_transcription_fields(FieldTable& table) {
  using Kind = FieldTable::Kind;
  table.note({.name = "file"});
  table.note({.name = "model", .kind = Kind::kText, .size_max = kModelBytesMax});
  table.note({.name = "language", .kind = Kind::kText, .size_max = kLanguageBytesMax});
  table.note({.name = "prompt", .kind = Kind::kText, .size_max = kPromptBytesMax});
  table.note({.name = "response_format", .kind = Kind::kText});
  table.note({.name = "temperature", .kind = Kind::kNumber, .numbers = {.low = 0, .high = 1}});
  for (const char* const name : {"beam_size", "best_of"}) {
    table.note({.name = name, .kind = Kind::kInteger, .integers = {.low = 1, .high = kTextsMax}});
  }
  table.note({.name = "timestamp_granularities[]", .kind = Kind::kArray});
  table.note({.name = "stream", .kind = Kind::kBoolean});
  table.note({.name = "timeout",
              .kind = Kind::kNumber,
              .numbers = {.low = 0, .high = kTimeoutMax, .low_open = true}});
  table.note({.name = "user", .kind = Kind::kText, .size_max = kUserBytesMax});
}

}  // namespace pelton::api
