#include "api/unread_part.h"

#include <utility>

#include <fmt/format.h>

namespace pelton::api {

std::string_view medium_of(std::string_view part_type) {
  static constexpr std::pair<std::string_view, std::string_view> kMedia[] = {
      {"image", "image"},
      {"image_url", "image"},
      {"input_image", "image"},
      {"computer_screenshot", "image"},
      {"file", "file"},
      {"input_file", "file"},
      {"container_upload", "file"},
      {"audio", "audio"},
      {"audio_url", "audio"},
      {"input_audio", "audio"},
      {"video", "video"},
      {"video_url", "video"},
      {"input_video", "video"},
  };
  for (const auto& [type, medium] : kMedia) {
    if (type == part_type) return medium;
  }
  return {};
}

std::string placeholder_of(std::string_view medium) {
  return fmt::format("[{} omitted: this model reads text only]", medium);
}

void refuse_medium(const Fields& part, std::string_view medium) {
  const std::string* type = part.text("type", 256);
  part.refuse("type", fmt::format("Could not process {}: '{}' is '{}'; this model reads text parts "
                                  "only",
                                  medium, part.path("type"), type == nullptr ? "" : *type));
}

// Of messages[2].content[0] and messages[4].content[1]: "messages[2].content[0] and 1 more replaced
// by a placeholder: this model reads text only".
std::optional<std::string> replaced_warning(std::span<const std::string> paths) {
  if (paths.empty()) return std::nullopt;
  const std::string more =
      paths.size() == 1 ? std::string() : fmt::format(" and {} more", paths.size() - 1);
  return fmt::format("{}{} replaced by a placeholder: this model reads text only", paths.front(),
                     more);
}

}  // namespace pelton::api
