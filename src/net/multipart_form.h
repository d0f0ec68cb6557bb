// A form with files as browsers and OpenAI's clients send it (RFC 7578, multipart/form-data). Pure
// functions on foreign bytes.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace pelton::net {

struct FormPart {
  std::string name;
  std::optional<std::string> file_name;  // of a file
  std::string_view content;              // within the body
};

inline constexpr size_t kFormPartsMax = 32;
inline constexpr size_t kFormPartHeaderBytesMax = 4096;

// "multipart/form-data", whatever its parameters.
bool is_form(std::string_view content_type);

// The parts in their order. Errors: kInvalidArgument, with what is missing.
Result<std::vector<FormPart>> parse_form(std::string_view content_type, std::string_view body);

}  // namespace pelton::net
