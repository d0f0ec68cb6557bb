#include "hub/hub_names.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/json_writer.h"
#include "base/utf8.h"

namespace pelton::hub {
namespace {

constexpr size_t kIdPartMax = 96;
constexpr size_t kNameMax = 255;  // what file systems take
constexpr size_t kPathMax = 1024;

bool is_word_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '_' || c == '-';
}

bool is_word(std::string_view text, size_t length_max) {
  return !text.empty() && text.size() <= length_max && text.front() != '.' && text.front() != '-' &&
         std::all_of(text.begin(), text.end(), is_word_letter);
}

bool is_id_part(std::string_view text) {
  return is_word(text, kIdPartMax) && text.find("..") == std::string_view::npos &&
         text.find("--") == std::string_view::npos;
}

bool is_lower_hex(std::string_view text, size_t length) {
  return text.size() == length && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

// Calls `good` on each part between slashes.
template <typename Good>
bool each_segment(std::string_view path, Good good) {
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    if (!good(path.substr(begin, end - begin))) return false;
    begin = end + 1;
  }
  return true;
}

bool is_file_name(std::string_view name) {
  return !name.empty() && name.size() <= kNameMax && name != "." && name != ".." &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return static_cast<unsigned char>(c) >= ' ' && c != 0x7F && c != '\\';
         });
}

}  // namespace

Result<void> check_model_id(std::string_view id) {
  const size_t slash = id.find('/');
  const bool good = slash == std::string_view::npos
                        ? is_id_part(id)
                        : is_id_part(id.substr(0, slash)) && is_id_part(id.substr(slash + 1));
  if (good) return {};
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("{} is no hub id; one looks like openai/gpt-oss-20b", shown(id)),
               "MODEL"};
}

Result<void> check_revision(std::string_view revision) {
  const bool good =
      revision.size() <= kNameMax && each_segment(revision, [](std::string_view part) {
        return is_word(part, kNameMax) && part.find("..") == std::string_view::npos;
      });
  if (good) return {};
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("{} is no name of a branch, a tag or a commit", shown(revision)),
               "--revision"};
}

Result<void> check_file_path(std::string_view path) {
  if (path.size() <= kPathMax && base::is_valid_utf8(path) && each_segment(path, is_file_name)) {
    return {};
  }
  return Error{ErrorCode::kBadCheckpoint,
               fmt::format("the hub lists a file {}, which is no path inside a model's folder",
                           shown(path))};
}

bool is_commit(std::string_view text) {
  return is_lower_hex(text, 40);
}

bool is_sha256(std::string_view text) {
  return is_lower_hex(text, 64);
}

bool is_blob_name(std::string_view text) {
  return is_word(text, 128);
}

std::string shown(std::string_view foreign) {
  constexpr size_t kShownMax = 120;
  std::string out;
  base::append_json_string(out, foreign.substr(0, kShownMax));
  if (foreign.size() > kShownMax) out += "...";
  return out;
}

}  // namespace pelton::hub
