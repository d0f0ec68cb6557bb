// A form's fields are foreign bytes: "name=content" lines, of which those with a '!' before them
// are files. What is accepted is within its bounds.
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "api/transcription_request.h"
#include "base/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pelton::api;
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  std::vector<FormField> form;
  while (!rest.empty() && form.size() < 32) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(line.size() + (line.size() < rest.size() ? 1 : 0));
    const bool is_file = line.starts_with('!');
    const std::string_view field = line.substr(is_file ? 1 : 0);
    const size_t end = field.find('=');
    const std::string_view content =
        end == std::string_view::npos ? std::string_view() : field.substr(end + 1);
    form.push_back({.name = field.substr(0, end), .content = content, .is_file = is_file});
  }
  static_cast<void>(transcription_model_asked(form));
  const auto request = parse_transcription_request(form, {.file_bytes_max = 64});
  if (!request.ok()) {
    CHECK(!request.error().message.empty());
    return 0;
  }
  CHECK(!request->file.empty() && request->file.size() <= 64);
  CHECK(!request->temperature || (*request->temperature >= 0.0 && *request->temperature <= 1.0));
  CHECK(request->has_segments || request->has_words);
  return 0;
}
