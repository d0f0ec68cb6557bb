#include "checkpoint/hub_cache.h"

#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/file.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/foreign_text.h"

namespace pelton::checkpoint {
namespace {

constexpr size_t kHubIdPartMax = 96;
constexpr size_t kRefBytesMax = 256;

bool is_folder(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored);
}

bool exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

// Letters, digits and ._- as the hub allows them; so never a path.
bool is_plain_name(std::string_view name) {
  if (name.empty() || name.size() > kHubIdPartMax || name.front() == '.' || name.front() == '-') {
    return false;
  }
  for (const char c : name) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (!letter && c != '.' && c != '_' && c != '-') return false;
  }
  return name.find("..") == std::string_view::npos && name.find("--") == std::string_view::npos;
}

bool is_hub_id(std::string_view model) {
  const size_t slash = model.find('/');
  if (slash == std::string_view::npos) return is_plain_name(model);
  return is_plain_name(model.substr(0, slash)) && is_plain_name(model.substr(slash + 1));
}

// "openai/gpt-oss-20b" lies in "models--openai--gpt-oss-20b".
std::string cache_entry(const std::string& model) {
  std::string entry = "models--" + model;
  const size_t slash = entry.find('/');
  if (slash != std::string::npos) entry.replace(slash, 1, "--");
  return entry;
}

std::string how_to_get(const std::string& model) {
  return fmt::format(
      "get it with: pelton pull {0}, or: hf download {0} --exclude \"original/*\" --exclude "
      "\"metal/*\"  (older tools: "
      "huggingface-cli download {0}), or name the folder that holds its config.json",
      model);
}

Error not_found(const std::string& what) {
  return Error{ErrorCode::kNotFound, what, "MODEL"};
}

// OpenAI's original files, or GGUF.
bool holds_other_layout(const std::string& path) {
  if (exists(path + "/original/config.json")) return true;
  std::error_code ignored;
  for (std::filesystem::directory_iterator it(path, ignored), end; it != end && !ignored;
       it.increment(ignored)) {
    if (it->path().extension() == ".gguf") return true;
  }
  return false;
}

Result<std::string> snapshot(const std::string& model, const std::string& folder) {
  const std::string ref = folder + "/refs/main";
  Result<std::string> text = base::read_file(ref, kRefBytesMax);
  if (!text.ok()) {
    return not_found(
        fmt::format("model {} has a folder in the Hugging Face cache, but no finished "
                    "download: {}; {}",
                    shown(model), text.error().message, how_to_get(model)));
  }
  std::string revision = std::move(text).value();
  while (!revision.empty() && (revision.back() == '\n' || revision.back() == ' ')) {
    revision.pop_back();
  }
  if (!is_plain_name(revision)) {
    return Error{
        ErrorCode::kBadCheckpoint,
        fmt::format("{}: does not hold the name of a snapshot, but {}", ref, shown(revision))};
  }
  std::string path = folder + "/snapshots/" + revision;
  if (!exists(path + "/config.json") && !holds_other_layout(path)) {
    return not_found(
        fmt::format("model {} is incomplete in the Hugging Face cache: {} has no "
                    "config.json; {}",
                    shown(model), path, how_to_get(model)));
  }
  return path;
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

std::string hub_cache_folder(const HubEnvironment& environment) {
  const auto expanded = [&](const std::string& path) {
    return path == "~" || path.starts_with("~/") ? environment.home + path.substr(1) : path;
  };
  if (!environment.hf_hub_cache.empty()) return expanded(environment.hf_hub_cache);
  if (!environment.hf_home.empty()) return expanded(environment.hf_home) + "/hub";
  if (!environment.xdg_cache_home.empty()) {
    return expanded(environment.xdg_cache_home) + "/huggingface/hub";
  }
  if (environment.home.empty()) return "";
  return environment.home + "/.cache/huggingface/hub";
}

std::string hub_id_of(const std::string& model) {
  const bool is_short = model.starts_with("gpt-oss-") && is_plain_name(model);
  return is_short ? "openai/" + model : model;
}

Result<std::string> resolve_model(const std::string& model, const HubEnvironment& environment) {
  if (is_folder(model)) return model;
  if (model.ends_with(".gguf") && exists(model)) return model;
  if (exists(model)) {
    return not_found(
        fmt::format("{} is a file; a model is a folder with config.json and "
                    "*.safetensors, a .gguf file, or a hub id such as openai/gpt-oss-20b",
                    shown(model)));
  }
  if (!is_hub_id(model)) {
    return not_found(fmt::format("there is no folder {}", shown(model)));
  }
  const std::string cache = hub_cache_folder(environment);
  if (cache.empty()) {
    return not_found(
        fmt::format("there is no folder {}, and no Hugging Face cache to search: none of "
                    "HF_HUB_CACHE, HF_HOME, XDG_CACHE_HOME, HOME is set",
                    shown(model)));
  }
  const std::string id = hub_id_of(model);
  const std::string folder = cache + "/" + cache_entry(id);
  if (is_folder(folder)) return snapshot(id, folder);
  return not_found(
      fmt::format("there is no folder {}, and the Hugging Face cache has no such model "
                  "(searched {}); {}",
                  shown(model), folder, how_to_get(id)));
}

Result<std::string> resolve_model(const std::string& model) {
  return resolve_model(model, HubEnvironment{.hf_hub_cache = variable("HF_HUB_CACHE"),
                                             .hf_home = variable("HF_HOME"),
                                             .xdg_cache_home = variable("XDG_CACHE_HOME"),
                                             .home = variable("HOME")});
}

}  // namespace pelton::checkpoint
