#include "weights/manifest.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/json.h"
#include "base/json_writer.h"
#include "hub/hub_names.h"

namespace pelton::weights {
namespace {

namespace fs = std::filesystem;

Error bad(std::string field, const std::string& what) {
  return Error{ErrorCode::kBadCheckpoint, fmt::format("the manifest's {} {}", field, what), field};
}

int64_t chunk_count(int64_t bytes, int64_t chunk_bytes) {
  return bytes / chunk_bytes + (bytes % chunk_bytes == 0 ? 0 : 1);
}

Result<ManifestFile> parse_file(const Json& json, int64_t chunk_bytes, const std::string& at) {
  if (!json.is_object()) return bad(at, "is not an object");
  ManifestFile file;
  const std::optional<std::string> path = json.string("path");
  if (!path) return bad(at + ".path", "is not a text");
  if (const Result<void> sound = hub::check_file_path(*path); !sound.ok()) {
    return bad(at + ".path", "is " + hub::shown(*path) + ", no path inside a model's folder");
  }
  if (*path == kManifestName) return bad(at + ".path", "is the manifest's own name");
  if (*path == kCopyNote) return bad(at + ".path", "is the name of a copy's own note");
  file.path = *path;
  const std::optional<int64_t> bytes = json.integer("bytes");
  if (!bytes || *bytes < 0 || *bytes > kChunksMax * chunk_bytes) {
    return bad(at + ".bytes",
               fmt::format("is not a number from 0 to {}", kChunksMax * chunk_bytes));
  }
  file.bytes = *bytes;
  const Json* chunks = json.find("chunks");
  if (chunks == nullptr || !chunks->is_array()) return bad(at + ".chunks", "is not an array");
  const Json::Array& names = chunks->as_array();
  const int64_t count = chunk_count(file.bytes, chunk_bytes);
  if (static_cast<int64_t>(names.size()) != count) {
    return bad(at + ".chunks", fmt::format("has {} entries; {} bytes are {} chunks", names.size(),
                                           file.bytes, count));
  }
  for (size_t i = 0; i < names.size(); ++i) {
    if (!names[i].is_string() || !hub::is_sha256(names[i].as_string())) {
      return bad(fmt::format("{}.chunks[{}]", at, i), "is not 64 lower-case hexadecimal digits");
    }
    file.chunks.push_back(names[i].as_string());
  }
  return file;
}

// Neither the same path twice nor "a" beside "a/b", of which one would have to be both a file and a
// folder.
Result<void> check_paths(const std::vector<ManifestFile>& files) {
  std::set<std::string_view> paths;
  for (size_t i = 0; i < files.size(); ++i) {
    if (paths.insert(files[i].path).second) continue;
    return bad(fmt::format("files[{}].path", i), hub::shown(files[i].path) + " stands there twice");
  }
  for (size_t i = 0; i < files.size(); ++i) {
    const std::string_view path = files[i].path;
    for (size_t end = path.find('/'); end != std::string_view::npos;
         end = path.find('/', end + 1)) {
      if (!paths.contains(path.substr(0, end))) continue;
      return bad(fmt::format("files[{}].path", i),
                 hub::shown(path) + " has another file as its folder");
    }
  }
  return {};
}

Error io_error(const std::string& path, const char* what) {
  const int code = errno;
  return Error{code == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo,
               fmt::format("{}: cannot {}: {}", path, what, std::strerror(code))};
}

bool is_hidden(const fs::path& path) {
  return path.filename().string().starts_with('.');
}

}  // namespace

Result<std::vector<ManifestFile>> files_below(const std::string& folder) {
  std::error_code error;
  std::vector<ManifestFile> files;
  fs::recursive_directory_iterator entry(folder, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    const fs::path& path = entry->path();
    const bool is_folder = fs::is_directory(entry->symlink_status(error));
    if (is_hidden(path)) {
      if (is_folder) entry.disable_recursion_pending();
      continue;
    }
    if (is_folder) continue;
    std::string name = path.lexically_relative(folder).generic_string();
    if (name == kManifestName) continue;
    if (!fs::is_regular_file(entry->status(error))) {
      return Error{ErrorCode::kBadCheckpoint, path.string() + ": is no regular file", name};
    }
    if (!hub::check_file_path(name).ok()) {
      return Error{ErrorCode::kBadCheckpoint,
                   fmt::format("{}: no manifest may hold this name", hub::shown(path.string())),
                   name};
    }
    files.push_back({.path = std::move(name),
                     .bytes = static_cast<int64_t>(fs::file_size(path, error)),
                     .chunks = {}});
    if (files.size() <= kFilesMax) continue;
    return Error{ErrorCode::kBadCheckpoint,
                 fmt::format("{}: holds more than {} files", folder, kFilesMax), "files"};
  }
  if (error) {
    errno = error.value();
    return io_error(folder, "read");
  }
  std::sort(files.begin(), files.end(),
            [](const ManifestFile& a, const ManifestFile& b) { return a.path < b.path; });
  return files;
}

namespace {

Result<std::string> digest_of_chunk(const std::string& name, const Chunk& chunk) {
  const int descriptor = ::open(name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return io_error(name, "open");
  Result<std::string> digest = digest_of_range(descriptor, chunk.offset, chunk.bytes, name);
  ::close(descriptor);
  return digest;
}

// Chunks are handed out to threads one by one, in their order; the caller's looks after them.
class Hashing {
 public:
  Hashing(const std::string& folder, Manifest& manifest)
      : folder_(folder), manifest_(manifest), chunks_(chunks_of(manifest)) {}

  Result<void> run(int threads, MakeProgress progress) {
    std::vector<std::thread> others;
    for (int i = 0; i < threads; ++i) others.emplace_back([this] { work(); });
    const int64_t total = manifest_.bytes();
    bool goes_on = progress(done_bytes_, total);
    while (goes_on && !stop_ && done_chunks_ < chunks_.size()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      goes_on = progress(done_bytes_, total);
    }
    stop_ = true;
    for (std::thread& thread : others) thread.join();
    TRY(failure_);
    if (!goes_on) return Error{ErrorCode::kCancelled, "interrupted"};
    return {};
  }

 private:
  void work() {
    for (size_t i = next_++; i < chunks_.size() && !stop_; i = next_++) {
      const Chunk& chunk = chunks_[i];
      ManifestFile& file = manifest_.files[static_cast<size_t>(chunk.file)];
      Result<std::string> digest = digest_of_chunk(folder_ + "/" + file.path, chunk);
      if (!digest.ok()) {
        std::lock_guard lock(mutex_);
        failure_ = std::move(digest).error();
        stop_ = true;
        return;
      }
      file.chunks[static_cast<size_t>(chunk.offset / manifest_.chunk_bytes)] = *std::move(digest);
      done_bytes_ += chunk.bytes;
      ++done_chunks_;
    }
  }

  const std::string& folder_;
  Manifest& manifest_;  // each thread writes its own chunks' names
  const std::vector<Chunk> chunks_;
  std::atomic<size_t> next_{0};
  std::atomic<size_t> done_chunks_{0};
  std::atomic<int64_t> done_bytes_{0};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  Result<void> failure_;  // guarded by mutex_ while threads run
};

}  // namespace

int64_t Manifest::bytes() const {
  int64_t bytes = 0;
  for (const ManifestFile& file : files) bytes += file.bytes;
  return bytes;
}

std::string Manifest::to_json() const {
  std::string out;
  base::JsonWriter writer(out);
  writer.begin_object();
  writer.key("pelton_manifest").integer(1).key("chunk_bytes").integer(chunk_bytes);
  writer.key("files").begin_array();
  for (const ManifestFile& file : files) {
    writer.begin_object().key("path").string(file.path).key("bytes").integer(file.bytes);
    writer.key("chunks").begin_array();
    for (const std::string& chunk : file.chunks) writer.string(chunk);
    writer.end_array().end_object();
  }
  writer.end_array().end_object();
  return out;
}

std::string Manifest::digest() const {
  return base::sha256(to_json());
}

std::vector<Chunk> chunks_of(const Manifest& manifest) {
  std::vector<Chunk> chunks;
  for (size_t file = 0; file < manifest.files.size(); ++file) {
    const int64_t bytes = manifest.files[file].bytes;
    for (int64_t at = 0; at < bytes; at += manifest.chunk_bytes) {
      chunks.push_back({.file = static_cast<int>(file),
                        .offset = at,
                        .bytes = std::min(manifest.chunk_bytes, bytes - at)});
    }
  }
  return chunks;
}

const std::string& digest_of(const Manifest& manifest, const Chunk& chunk) {
  const ManifestFile& file = manifest.files[static_cast<size_t>(chunk.file)];
  return file.chunks[static_cast<size_t>(chunk.offset / manifest.chunk_bytes)];
}

std::string zeros_digest(int64_t bytes) {
  static std::mutex mutex;
  static std::map<int64_t, std::string> known;  // of whole chunks, of which there are few sizes
  const bool is_kept = bytes >= kChunkBytesMin && (bytes & (bytes - 1)) == 0;
  if (is_kept) {
    std::lock_guard lock(mutex);
    if (const auto found = known.find(bytes); found != known.end()) return found->second;
  }
  base::Digest digest(base::Digest::Kind::kSha256);
  const std::string zeros(static_cast<size_t>(std::min(bytes, int64_t{1} << 20)), '\0');
  for (int64_t left = bytes; left > 0; left -= static_cast<int64_t>(zeros.size())) {
    digest.update(std::string_view(zeros).substr(0, static_cast<size_t>(left)));
  }
  std::string hex = digest.finish();
  if (is_kept) {
    std::lock_guard lock(mutex);
    known.emplace(bytes, hex);
  }
  return hex;
}

Result<std::string> digest_of_range(int descriptor, int64_t offset, int64_t bytes,
                                    const std::string& name) {
  struct stat info {};
  if (::fstat(descriptor, &info) != 0) return io_error(name, "look at");
  const auto shorter = [&] {
    return Error{ErrorCode::kIo, name + ": has become shorter while it was read"};
  };
  if (info.st_size < offset + bytes) return shorter();
  const off_t data = ::lseek(descriptor, offset, SEEK_DATA);
  const bool is_hole = data < 0 ? errno == ENXIO : data >= offset + bytes;
  if (is_hole) return zeros_digest(bytes);
  base::Digest digest(base::Digest::Kind::kSha256);
  std::vector<char> buffer(static_cast<size_t>(std::min(bytes, int64_t{1} << 20)));
  for (int64_t done = 0; done < bytes;) {
    const auto wanted = std::min(buffer.size(), static_cast<size_t>(bytes - done));
    const ssize_t got = ::pread(descriptor, buffer.data(), wanted, offset + done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return io_error(name, "read");
    if (got == 0) return shorter();
    digest.update({buffer.data(), static_cast<size_t>(got)});
    done += got;
  }
  return digest.finish();
}

Result<Manifest> make_manifest(const std::string& folder, const MakeOptions& options,
                               MakeProgress progress) {
  Manifest manifest{.chunk_bytes = options.chunk_bytes, .files = {}};
  TRY_ASSIGN(manifest.files, files_below(folder));
  int64_t chunks = 0;
  for (ManifestFile& file : manifest.files) {
    const int64_t count = chunk_count(file.bytes, options.chunk_bytes);
    chunks += count;
    if (chunks > kChunksMax) {
      return Error{ErrorCode::kBadCheckpoint,
                   fmt::format("{}: is more than {} chunks of {} bytes", folder, kChunksMax,
                               options.chunk_bytes),
                   "files"};
    }
    file.chunks.resize(static_cast<size_t>(count));
  }
  TRY(Hashing(folder, manifest).run(std::max(options.threads, 1), progress));
  return manifest;
}

Result<Manifest> parse_manifest(std::string_view text) {
  if (text.size() > kManifestBytesMax) {
    return bad("text", fmt::format("has {} bytes, more than {}", text.size(), kManifestBytesMax));
  }
  const Result<Json> json = Json::parse(text);
  if (!json.ok()) return bad("text", "is no JSON: " + json.error().message);
  if (json->integer("pelton_manifest") != std::optional<int64_t>(1)) {
    return bad("pelton_manifest", "is not 1");
  }
  const int64_t chunk_bytes = json->integer("chunk_bytes").value_or(0);
  if (chunk_bytes < kChunkBytesMin || chunk_bytes > kChunkBytesMax ||
      (chunk_bytes & (chunk_bytes - 1)) != 0) {
    return bad("chunk_bytes",
               fmt::format("is no power of two from {} to {}", kChunkBytesMin, kChunkBytesMax));
  }
  const Json* files = json->find("files");
  if (files == nullptr || !files->is_array()) return bad("files", "is not an array");
  if (files->as_array().size() > kFilesMax) {
    return bad("files", fmt::format("has more than {} entries", kFilesMax));
  }
  Manifest manifest{.chunk_bytes = chunk_bytes, .files = {}};
  int64_t chunks = 0;
  for (const Json& one : files->as_array()) {
    const std::string at = fmt::format("files[{}]", manifest.files.size());
    TRY_ASSIGN(ManifestFile file, parse_file(one, chunk_bytes, at));
    chunks += static_cast<int64_t>(file.chunks.size());
    if (chunks > kChunksMax) {
      return bad("files", fmt::format("are more than {} chunks", kChunksMax));
    }
    manifest.files.push_back(std::move(file));
  }
  TRY(check_paths(manifest.files));
  std::sort(manifest.files.begin(), manifest.files.end(),
            [](const ManifestFile& a, const ManifestFile& b) { return a.path < b.path; });
  return manifest;
}

}  // namespace pelton::weights
