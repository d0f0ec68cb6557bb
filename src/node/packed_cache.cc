#include "node/packed_cache.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>

#include "node/packed_folder.h"
#include "node/packing_lock.h"

namespace pelton::node {
namespace {

namespace fs = std::filesystem;
using checkpoint::Checkpoint;

constexpr size_t kNameCharsMax = 64;
constexpr size_t kFingerprintChars = 12;  // in a folder's name; the file has all of them

// A part of a path for people to recognise the model by.
std::string name_of(const Checkpoint& source) {
  // .../models--openai--gpt-oss-20b/snapshots/COMMIT is better known by its model.
  fs::path path(source.folder());
  if (path.filename().empty()) path = path.parent_path();
  std::string name = path.filename().string();
  if (path.parent_path().filename() == "snapshots") {
    name = path.parent_path().parent_path().filename().string();
    if (name.starts_with("models--")) name = name.substr(8);
  }
  for (char& c : name) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '.' || c == '-' || c == '_';
    if (!plain) c = '_';
  }
  if (name.empty() || name[0] == '.') name = "model" + name;
  return name.substr(0, kNameCharsMax);
}

constexpr models::WeightChoice kChoices[] = {
    models::WeightChoice::kAuto, models::WeightChoice::kInt8, models::WeightChoice::kShipped};

std::string_view name_of(models::WeightChoice weights) {
  switch (weights) {
    case models::WeightChoice::kAuto:
      return models::kAutoRule;  // so that an older rule's folder stays until this one is there
    case models::WeightChoice::kInt8:
      return "int8";
    case models::WeightChoice::kShipped:
      break;
  }
  return "shipped";
}

std::string folder_of(const std::string& cache, const Checkpoint& source,
                      std::string_view fingerprint, models::WeightChoice weights) {
  return fmt::format("{}/{}-{}-{}", cache, name_of(source),
                     fingerprint.substr(0, kFingerprintChars), name_of(weights));
}

// What fails to open is none of ours, half deleted, or of another version.
std::optional<Checkpoint> open_packed(const std::string& folder) {
  Result<Checkpoint> packed = Checkpoint::open(folder);
  if (!packed.ok() || packed->weight_layout() != families::WeightLayout::kTiled) {
    return std::nullopt;
  }
  return std::move(*packed);
}

bool is_fresh(const std::string& folder, const std::string& fingerprint) {
  const std::optional<Checkpoint> packed = open_packed(folder);
  return packed && packed->tiles().source_fingerprint == fingerprint;
}

Result<int64_t> remove(const PackedEntry& entry) {
  std::error_code failed;
  fs::remove_all(entry.folder, failed);
  if (failed) {
    return Error{ErrorCode::kIo,
                 fmt::format("{}: cannot delete: {}", entry.folder, failed.message())};
  }
  return entry.bytes;
}

}  // namespace

std::vector<PackedEntry> packed_models(const std::string& cache) {
  std::vector<PackedEntry> entries;
  std::error_code failed;
  for (fs::directory_iterator at(cache, failed), end; !failed && at != end; at.increment(failed)) {
    const std::string folder = at->path().string();
    const std::optional<Checkpoint> packed = open_packed(folder);
    if (!packed) continue;
    entries.push_back({.folder = folder,
                       .source = packed->tiles().source,
                       .weights = packed->tiles().weights,
                       .fingerprint = packed->tiles().source_fingerprint,
                       .bytes = packed->weight_bytes()});
  }
  std::sort(entries.begin(), entries.end(),
            [](const PackedEntry& a, const PackedEntry& b) { return a.folder < b.folder; });
  return entries;
}

Result<int64_t> purge_packed(const std::string& cache, const std::string& source) {
  int64_t freed = 0;
  for (const PackedEntry& entry : packed_models(cache)) {
    if (!source.empty() && entry.source != source) continue;
    TRY_ASSIGN(const int64_t bytes, remove(entry));
    freed += bytes;
  }
  return freed;
}

Result<std::optional<std::string>> find_packed(const std::string& cache, const Checkpoint& source,
                                               models::WeightChoice weights) {
  TRY_ASSIGN(const std::string fingerprint, models::packed_fingerprint(source, weights));
  std::string folder = folder_of(cache, source, fingerprint, weights);
  if (!is_fresh(folder, fingerprint)) return std::optional<std::string>();
  return std::optional(std::move(folder));
}

Result<std::string> make_packed(const std::string& cache, const Checkpoint& source,
                                models::WeightChoice weights, base::ThreadPool& pool,
                                models::PackModelProgress progress, base::Log& log) {
  TRY_ASSIGN(const std::string fingerprint, models::packed_fingerprint(source, weights));
  const std::string folder = folder_of(cache, source, fingerprint, weights);
  TRY_ASSIGN(
      const PackingLock lock,
      PackingLock::take(
          folder, [&] { return progress("waiting for another process that packs", 0, 0); }, log));
  if (is_fresh(folder, fingerprint)) return folder;  // by the process that was waited for
  lock.remove_leftovers(log);
  std::error_code failed;
  // Of an older version, or damaged.
  if (fs::exists(folder, failed) && !is_fresh(folder, fingerprint)) {
    TRY(remove({.folder = folder, .source = {}, .weights = {}, .fingerprint = {}}));
  }
  Result<models::PackedModel> made =
      pack_into_folder(source, {.weights = weights}, folder, pool, progress);
  if (!made.ok()) {
    // Another process was faster.
    if (is_fresh(folder, fingerprint)) return folder;
    return made.error();
  }
  log.info(fmt::format("packed: {}; kept in {}", verdict(*made), folder));
  log.debug("packed: " + details(*made));
  if (!made->excess.empty()) log.warning("packed weights: " + made->excess);
  std::vector<std::string> fresh;
  for (const models::WeightChoice choice : kChoices) {
    TRY_ASSIGN(fresh.emplace_back(), models::packed_fingerprint(source, choice));
  }
  for (const PackedEntry& entry : packed_models(cache)) {
    const bool stale = std::find(fresh.begin(), fresh.end(), entry.fingerprint) == fresh.end();
    if (entry.source != source.folder() || !stale) continue;
    TRY_ASSIGN(const int64_t bytes, remove(entry));
    log.info(
        fmt::format("{} is stale (its source changed, or weights are chosen otherwise now): "
                    "deleted, {} bytes",
                    entry.folder, bytes));
  }
  return folder;
}

}  // namespace pelton::node
