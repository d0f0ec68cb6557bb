#include "server/adapter_folders.h"

#include <algorithm>
#include <array>
#include <system_error>

#include <fmt/format.h>

namespace pelton::server {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kConfigFile = "adapter_config.json";
constexpr std::array<std::string_view, 2> kFiles = {kConfigFile, "adapter_model.safetensors"};

Error bad_path(ErrorCode code, std::string message) {
  return {code, std::move(message), "lora_path"};
}

}  // namespace

bool AdapterFolders::holds(const fs::path& resolved) const {
  return std::ranges::any_of(folders_, [&](const std::string& folder) {
    std::error_code failed;
    const fs::path root = fs::canonical(folder, failed);
    if (failed) return false;
    return std::mismatch(root.begin(), root.end(), resolved.begin(), resolved.end()).first ==
           root.end();
  });
}

bool AdapterFolders::holds_file(const std::string& path) const {
  std::error_code failed;
  const fs::path resolved = fs::canonical(path, failed);
  return !failed && holds(resolved);
}

Result<void> AdapterFolders::check(const std::string& adapter) const {
  std::error_code failed;
  const fs::path folder = fs::canonical(adapter, failed);
  if (failed) return {};  // who reads it says so
  const auto leads_out = [&](std::string_view what) {
    return bad_path(
        ErrorCode::kInvalidArgument,
        fmt::format("'{}': {} leads out of the folders that --lora-folder names", adapter, what));
  };
  if (!holds(folder)) return leads_out("it");
  for (const std::string_view file : kFiles) {
    const fs::path resolved = fs::canonical(folder / file, failed);
    if (!failed && !holds(resolved)) return leads_out(file);
  }
  return {};
}

std::optional<std::string> AdapterFolders::find(std::string_view name) const {
  for (const std::string& folder : folders_) {
    std::string path = fmt::format("{}/{}", folder, name);
    std::error_code ignored;
    const bool is_adapter = fs::is_regular_file(fmt::format("{}/{}", path, kConfigFile), ignored);
    if (is_adapter && check(path).ok()) return path;
  }
  return std::nullopt;
}

std::vector<std::string> AdapterFolders::names() const {
  std::vector<std::string> names;
  for (const std::string& folder : folders_) {
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(folder, ignored)) {
      names.push_back(entry.path().filename().string());
    }
  }
  return names;
}

Result<std::string> AdapterFolders::resolve(const std::string& asked) const {
  std::error_code failed;
  const fs::path path = fs::canonical(asked, failed);
  if (!failed && holds(path)) {
    TRY(check(path.string()));
    return path.string();
  }
  const bool could_be = std::ranges::any_of(folders_, [&](const std::string& folder) {
    return asked.starts_with(folder) && asked.find("..") == std::string::npos;
  });
  if (failed && could_be) {
    return bad_path(ErrorCode::kNotFound, fmt::format("'{}': no such folder", asked));
  }
  return bad_path(ErrorCode::kInvalidArgument,
                  folders_.empty()
                      ? "adapters are loaded only from folders that --lora-folder names, and it "
                        "names none"
                      : "'lora_path' is in none of the folders that --lora-folder names");
}

}  // namespace pelton::server
