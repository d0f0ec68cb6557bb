// What POST /v1/audio/transcriptions and /v1/audio/translations are asked, as OpenAI's clients send
// it: the fields of a form, checked. A plain value.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/field_table.h"
#include "api/fields.h"
#include "base/result.h"

namespace pelton::api {

struct FormField {
  std::string_view name;
  std::string_view content;
  bool is_file = false;  // it came with a file's name
};

struct TranscriptionRequest {
  enum class Format : uint8_t { kJson, kText, kSubrip, kVerboseJson, kWebVtt };

  std::string_view file;  // within the form
  std::string model;
  std::string language;  // as it was asked; empty: detected
  std::string prompt;
  Format format = Format::kJson;
  std::optional<double> temperature;
  int beam_size = 1;
  int best_of = 1;
  bool has_segments = true;  // of kVerboseJson
  bool has_words = false;
  bool stream = false;
  std::optional<double> timeout_s;
  std::string user;  // billing account, if there is no tenant
  std::vector<std::string> warnings;
};

struct TranscriptionLimits {
  int64_t file_bytes_max = 0;
  UnknownFields unknown_fields = UnknownFields::kWarn;
};

// The model alone, before anything else is read; empty: none is named. Errors: kInvalidArgument of
// one that is named twice, or too long.
Result<std::string> transcription_model_asked(std::span<const FormField> form);

// Errors: kInvalidArgument and kUnsupported, with the field and its limit.
Result<TranscriptionRequest> parse_transcription_request(std::span<const FormField> form,
                                                         const TranscriptionLimits& limits);

// For the OpenAPI document.
void note_transcription_fields(FieldTable& table);

}  // namespace pelton::api
