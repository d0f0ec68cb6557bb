#include "checkpoint/hub_cache.h"

#include <algorithm>
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
constexpr size_t kRevisionBytesMax = 200;
constexpr std::string_view kMain = "main";

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

std::string how_to_get(const std::string& model, const std::string& revision) {
  if (revision != kMain) {
    return fmt::format("get it with: pelton pull {} --revision {}", model, revision);
  }
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

// "v1.0", "refs/pr/1": below refs/ and nowhere else.
Result<void> check_revision(const std::string& revision) {
  bool fits = !revision.empty() && revision.size() <= kRevisionBytesMax;
  for (size_t begin = 0; fits && begin <= revision.size();) {
    const size_t end = std::min(revision.find('/', begin), revision.size());
    fits = is_plain_name(std::string_view(revision).substr(begin, end - begin));
    begin = end + 1;
  }
  if (fits) return {};
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("--revision is a branch, a tag or a commit, not {}", shown(revision)),
               "revision"};
}

// What the revision's ref says; a snapshot may be named itself.
Result<std::string> snapshot_name(const std::string& model, const std::string& folder,
                                  const std::string& revision) {
  const std::string ref = folder + "/refs/" + revision;
  Result<std::string> text = base::read_file(ref, kRefBytesMax);
  if (!text.ok()) {
    if (is_plain_name(revision) && is_folder(folder + "/snapshots/" + revision)) return revision;
    return not_found(fmt::format(
        "model {} has a folder in the Hugging Face cache, but no finished "
        "download of {}: {}; {}",
        shown(model), shown(revision), text.error().message, how_to_get(model, revision)));
  }
  std::string name = std::move(text).value();
  while (!name.empty() && (name.back() == '\n' || name.back() == ' ')) name.pop_back();
  if (is_plain_name(name)) return name;
  return Error{ErrorCode::kBadCheckpoint,
               fmt::format("{}: does not hold the name of a snapshot, but {}", ref, shown(name))};
}

Result<std::string> snapshot(const std::string& model, const std::string& folder,
                             const std::string& revision) {
  TRY_ASSIGN(const std::string name, snapshot_name(model, folder, revision));
  std::string path = folder + "/snapshots/" + name;
  if (!exists(path + "/config.json") && !holds_other_layout(path)) {
    return not_found(
        fmt::format("model {} is incomplete in the Hugging Face cache: {} has no "
                    "config.json; {}",
                    shown(model), path, how_to_get(model, revision)));
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

Result<std::string> resolve_model(const std::string& model, const HubEnvironment& environment,
                                  const std::string& revision) {
  TRY(check_revision(revision));
  if (is_folder(model) || (model.ends_with(".gguf") && exists(model))) {
    if (revision == kMain) return model;
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--revision {} is of a hub id, and {} lies on this machine",
                             shown(revision), shown(model)),
                 "revision"};
  }
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
  if (is_folder(folder)) return snapshot(id, folder, revision);
  if (id.find('/') == std::string::npos) {
    return not_found(fmt::format(
        "there is no folder {}, and it is no hub id with an owner: one looks like "
        "openai/gpt-oss-20b, owner and name; give that, or the folder that holds its config.json",
        shown(model)));
  }
  return not_found(
      fmt::format("there is no folder {}, and the Hugging Face cache has no such model "
                  "(searched {}); {}",
                  shown(model), folder, how_to_get(id, revision)));
}

Result<std::string> resolve_model(const std::string& model, const std::string& revision) {
  return resolve_model(model,
                       HubEnvironment{.hf_hub_cache = variable("HF_HUB_CACHE"),
                                      .hf_home = variable("HF_HOME"),
                                      .xdg_cache_home = variable("XDG_CACHE_HOME"),
                                      .home = variable("HOME")},
                       revision.empty() ? std::string(kMain) : revision);
}

Result<std::string> resolve_model(const std::string& model) {
  return resolve_model(model, std::string());
}

}  // namespace pelton::checkpoint
