#include "hub/cached_models.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <sys/stat.h>

#include "hub/hub_names.h"
#include "hub/model_folder.h"

namespace pelton::hub {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "models--";

// "models--openai--gpt-oss-20b" -> "openai/gpt-oss-20b"; empty for what is no model's folder.
std::string model_of_folder(const std::string& name) {
  if (!name.starts_with(kPrefix)) return "";
  std::string model = name.substr(kPrefix.size());
  if (const size_t dashes = model.find("--"); dashes != std::string::npos) {
    model = fmt::format("{}/{}", model.substr(0, dashes), model.substr(dashes + 2));
  }
  return check_model_id(model).ok() ? model : "";
}

// Calls `visit(path, lstat)` on everything below `folder`; links are not followed.
template <typename Visit>
void each_entry(const std::string& folder, Visit visit) {
  std::error_code code;
  for (fs::recursive_directory_iterator at(folder, code), end; !code && at != end;
       at.increment(code)) {
    struct stat info {};
    if (::lstat(at->path().c_str(), &info) == 0) visit(at->path(), info);
  }
}

int64_t disk_bytes(const struct stat& info) {
  return static_cast<int64_t>(info.st_blocks) * 512;
}

int files_in(const std::string& snapshot) {
  int files = 0;
  each_entry(snapshot, [&](const fs::path& path, const struct stat& info) {
    if (!S_ISDIR(info.st_mode) && file_size(path.string())) ++files;
  });
  return files;
}

CachedModel look_at(const std::string& cache, const std::string& model) {
  const ModelFolder folder(cache, model);
  CachedModel found{.model = model, .folder = folder.path()};
  each_entry(folder.path() + "/blobs", [&](const fs::path& path, const struct stat& info) {
    if (!S_ISREG(info.st_mode)) return;
    const std::string name = path.filename().string();
    if (name.ends_with(".incomplete") || name.ends_with(".pelton.blocks")) {
      found.unfinished_bytes += disk_bytes(info);
    } else {
      found.bytes += info.st_size;
    }
    found.modified_unix = std::max<int64_t>(found.modified_unix, info.st_mtime);
  });
  const std::string refs = folder.path() + "/refs";
  each_entry(refs, [&](const fs::path& path, const struct stat& info) {
    if (S_ISREG(info.st_mode)) {
      found.revisions.push_back(path.lexically_relative(refs).generic_string());
    }
  });
  std::sort(found.revisions.begin(), found.revisions.end());
  const bool has_main =
      std::find(found.revisions.begin(), found.revisions.end(), "main") != found.revisions.end();
  if (!found.revisions.empty()) {
    const auto commit = folder.read_ref(has_main ? "main" : found.revisions.front());
    if (commit && is_blob_name(*commit)) found.files = files_in(folder.snapshot(*commit));
  }
  return found;
}

Result<void> remove_folder(const std::string& path) {
  std::error_code code;
  fs::remove_all(path, code);
  if (!code) return {};
  return Error{ErrorCode::kIo, fmt::format("{}: cannot delete: {}", path, code.message())};
}

}  // namespace

Result<std::vector<CachedModel>> cached_models(const std::string& cache) {
  std::vector<CachedModel> models;
  std::error_code code;
  if (!fs::exists(cache, code)) return models;
  for (fs::directory_iterator at(cache, code), end; !code && at != end; at.increment(code)) {
    const std::string model = model_of_folder(at->path().filename().string());
    std::error_code ignored;
    if (!model.empty() && at->is_directory(ignored)) models.push_back(look_at(cache, model));
  }
  if (code) {
    return Error{ErrorCode::kIo, fmt::format("{}: cannot read: {}", cache, code.message())};
  }
  std::sort(models.begin(), models.end(),
            [](const CachedModel& a, const CachedModel& b) { return a.model < b.model; });
  return models;
}

Result<int64_t> purge(const std::string& cache, const std::string& model) {
  TRY(check_model_id(model));
  const ModelFolder folder(cache, model);
  std::error_code code;
  const fs::file_status status = fs::symlink_status(folder.path(), code);
  if (status.type() == fs::file_type::not_found) {
    return Error{ErrorCode::kNotFound, fmt::format("{} is not in the cache {}", model, cache),
                 "MODEL"};
  }
  if (status.type() != fs::file_type::directory) {
    return Error{
        ErrorCode::kIo,
        fmt::format("{} is no folder but leads elsewhere; delete it by hand", folder.path())};
  }
  TRY_ASSIGN(const FolderLock lock, FolderLock::take(folder));
  int64_t freed = 0;
  each_entry(folder.path(), [&](const fs::path&, const struct stat& info) {
    if (S_ISREG(info.st_mode)) freed += disk_bytes(info);
  });
  TRY(remove_folder(folder.path()));
  TRY(remove_folder(folder.locks_path()));
  return freed;
}

}  // namespace pelton::hub
