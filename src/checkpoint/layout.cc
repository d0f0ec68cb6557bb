#include "checkpoint/layout.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <system_error>

#include <fmt/format.h>

#include "base/file.h"
#include "checkpoint/foreign_text.h"
#include "families/gpt_oss_original.h"

namespace pelton::checkpoint {
namespace {

constexpr size_t kPartsMax = 1000;
constexpr size_t kConfigBytesMax = size_t{1} << 20;

bool exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

bool has_safetensors(const std::string& folder) {
  return exists(folder + "/model.safetensors") || exists(folder + "/model.safetensors.index.json");
}

bool has_consolidated(const std::string& folder) {
  return exists(folder + "/consolidated.safetensors") ||
         exists(folder + "/consolidated.safetensors.index.json");
}

// "NAME-00002-of-00003.gguf"
struct PartName {
  std::string stem;
  int index = 0;
  int count = 0;
};
std::optional<PartName> parse_part_name(const std::string& file) {
  constexpr std::string_view kEnd = ".gguf";
  constexpr size_t kTail = 15;  // "-00002-of-00003"
  if (!file.ends_with(kEnd) || file.size() < kEnd.size() + kTail) return std::nullopt;
  const size_t begin = file.size() - kEnd.size() - kTail;
  const std::string_view tail = std::string_view(file).substr(begin, kTail);
  if (tail[0] != '-' || tail.substr(6, 4) != "-of-") return std::nullopt;
  PartName part{.stem = file.substr(0, begin)};
  const auto number = [](std::string_view digits, int& to) {
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), to);
    return error == std::errc{} && end == digits.data() + digits.size() && digits[0] != '-';
  };
  if (!number(tail.substr(1, 5), part.index) || !number(tail.substr(10, 5), part.count)) {
    return std::nullopt;
  }
  return part;
}

Result<std::vector<std::string>> all_parts(const std::string& file) {
  const std::optional<PartName> part = parse_part_name(file);
  if (!part) return std::vector<std::string>{file};
  if (part->count < 1 || part->count > static_cast<int>(kPartsMax)) {
    return Error{ErrorCode::kBadCheckpoint, fmt::format("{}: names {} parts; supported: 1 to {}",
                                                        file, part->count, kPartsMax)};
  }
  std::vector<std::string> files;
  for (int i = 1; i <= part->count; ++i) {
    files.push_back(fmt::format("{}-{:05}-of-{:05}.gguf", part->stem, i, part->count));
    if (!exists(files.back())) {
      return Error{ErrorCode::kNotFound,
                   fmt::format("{}: part {} of {} is missing", files.back(), i, part->count)};
    }
  }
  return files;
}

Result<Layout> gguf_layout(const std::string& file, const std::string& folder) {
  Layout layout{.kind = LayoutKind::kGguf, .folder = folder, .text_folders = {folder}};
  TRY_ASSIGN(layout.gguf_files, all_parts(file));
  return layout;
}

// The GGUF files of a folder; of a split one only the first part.
std::vector<std::string> gguf_files_in(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code ignored;
  for (std::filesystem::directory_iterator it(folder, ignored), end; it != end && !ignored;
       it.increment(ignored)) {
    const std::string name = it->path().filename().string();
    if (!name.ends_with(".gguf")) continue;
    const std::optional<PartName> part = parse_part_name(name);
    if (!part || part->index == 1) files.push_back(it->path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

bool holds_original_config(const std::string& folder) {
  const Result<std::string> text = base::read_file(folder + "/config.json", kConfigBytesMax);
  if (!text.ok()) return false;
  const Result<Json> config = Json::parse(*text);
  return config.ok() && families::is_original_config(*config);
}

Layout safetensors_layout(const std::string& folder) {
  Layout layout{.folder = folder, .config_folder = folder, .text_folders = {folder}};
  if (!holds_original_config(folder)) return layout;
  layout.kind = LayoutKind::kOriginal;
  // In the published repositories the tokenizer lies beside the folder original/.
  layout.text_folders.push_back(folder + "/..");
  return layout;
}

}  // namespace

std::string_view layout_name(LayoutKind kind) {
  switch (kind) {
    case LayoutKind::kHuggingFace:
      return "Hugging Face";
    case LayoutKind::kOriginal:
      return "original";
    case LayoutKind::kMistral:
      return "Mistral";
    case LayoutKind::kGguf:
      return "GGUF";
  }
  return "";
}

Result<Layout> find_layout(const std::string& model) {
  std::error_code ignored;
  if (std::filesystem::is_regular_file(model, ignored)) {
    const std::string parent = std::filesystem::path(model).parent_path().string();
    return gguf_layout(model, parent.empty() ? "." : parent);
  }
  if (!std::filesystem::is_directory(model, ignored)) {
    return Error{ErrorCode::kNotFound, fmt::format("{}: is not a folder", model)};
  }
  if (has_safetensors(model)) return safetensors_layout(model);
  if (exists(model + "/params.json") && has_consolidated(model)) {
    return Layout{.kind = LayoutKind::kMistral,
                  .folder = model,
                  .config_folder = model,
                  .text_folders = {model}};
  }
  const std::string inner = model + "/original";
  if (has_safetensors(inner) && exists(inner + "/config.json")) {
    Layout layout = safetensors_layout(inner);
    layout.text_folders = {model, inner};
    return layout;
  }
  const std::vector<std::string> files = gguf_files_in(model);
  if (files.size() > 1) {
    return Error{ErrorCode::kNotFound,
                 fmt::format("{}: holds {} GGUF models; name one of them, such as {}", model,
                             files.size(), files[0])};
  }
  if (files.size() == 1) return gguf_layout(files[0], model);
  return safetensors_layout(model);  // whose reader says what is missing
}

}  // namespace pelton::checkpoint
