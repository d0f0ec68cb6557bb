#include "weights/chunk_folder.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/descriptor.h"

namespace pelton::weights {
namespace {

namespace fs = std::filesystem;

}  // namespace

ChunkFolder::ChunkFolder(std::string folder, Manifest manifest)
    : folder_(std::move(folder)),
      manifest_(std::move(manifest)),
      manifest_json_(manifest_.to_json()),
      digest_(manifest_.digest()),
      chunks_(chunks_of(manifest_)),
      states_(chunks_.size()) {
  for (size_t i = 0; i < chunks_.size(); ++i) {
    index_.emplace(weights::digest_of(manifest_, chunks_[i]), static_cast<int>(i));
  }
}

ChunkFolder::~ChunkFolder() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Result<std::shared_ptr<ChunkFolder>> ChunkFolder::open(const std::string& folder,
                                                       Manifest manifest) {
  std::shared_ptr<ChunkFolder> made(new ChunkFolder(folder, std::move(manifest)));
  TRY(made->open_folder());
  for (std::atomic<State>& state : made->states_) state = State::kThere;
  return made;
}

Result<std::shared_ptr<ChunkFolder>> ChunkFolder::begin(const std::string& folder,
                                                        Manifest manifest, int threads,
                                                        MakeProgress progress) {
  std::error_code failed;
  fs::create_directories(folder, failed);
  if (failed) {
    return Error{ErrorCode::kIo, fmt::format("{}: cannot create: {}", folder, failed.message())};
  }
  std::shared_ptr<ChunkFolder> made(new ChunkFolder(folder, std::move(manifest)));
  TRY(made->open_folder());
  TRY(made->make_files());
  TRY(made->check_files(threads, progress));
  return made;
}

Result<void> ChunkFolder::open_folder() {
  descriptor_ = ::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor_ >= 0) return {};
  const int code = errno;
  return Error{code == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo,
               fmt::format("{}: cannot open: {}", folder_, std::strerror(code))};
}

Result<void> ChunkFolder::make_files() {
  for (const ManifestFile& file : manifest_.files) {
    const fs::path path = fs::path(folder_) / file.path;
    std::error_code failed;
    fs::create_directories(path.parent_path(), failed);
    const base::Descriptor made(
        ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644));
    if (made.get() >= 0 && ::ftruncate(made.get(), file.bytes) == 0) continue;
    return Error{ErrorCode::kIo,
                 fmt::format("{}: cannot create: {}", path.string(), std::strerror(errno))};
  }
  return {};
}

Result<void> ChunkFolder::check_file_chunk(size_t i) {
  const Chunk& chunk = chunks_[i];
  TRY_ASSIGN(const int number, open_file(chunk, O_RDONLY));
  const base::Descriptor file(number);
  TRY_ASSIGN(const std::string digest,
             digest_of_range(file.get(), chunk.offset, chunk.bytes, folder_));
  if (digest == weights::digest_of(manifest_, chunk)) states_[i] = State::kThere;
  return {};
}

Result<void> ChunkFolder::check_files(int threads, MakeProgress progress) {
  std::atomic<size_t> next{0};
  std::atomic<int64_t> done{0};
  std::atomic<int> running{std::max(threads, 1)};
  std::atomic<bool> stop{false};
  std::mutex mutex;
  Result<void> failure;
  std::vector<std::thread> others;
  for (int t = 0; t < std::max(threads, 1); ++t) {
    others.emplace_back([&] {
      for (size_t i = next++; i < chunks_.size() && !stop; i = next++) {
        if (Result<void> checked = check_file_chunk(i); !checked.ok()) {
          std::lock_guard lock(mutex);
          failure = std::move(checked);
          stop = true;
        }
        done += chunks_[i].bytes;
      }
      --running;
    });
  }
  bool goes_on = true;
  while (running > 0 && goes_on) {
    goes_on = progress(done, manifest_.bytes());
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  stop = true;
  for (std::thread& other : others) other.join();
  TRY(failure);
  if (!goes_on) return Error{ErrorCode::kCancelled, "interrupted"};
  return {};
}

std::string ChunkFolder::text_of(int chunk) const {
  const Chunk& one = chunks_[static_cast<size_t>(chunk)];
  return fmt::format("{} from byte {}", manifest_.files[static_cast<size_t>(one.file)].path,
                     one.offset);
}

int ChunkFolder::find(const std::string& digest) const {
  int first = -1;
  const auto [begin, end] = index_.equal_range(digest);
  for (auto at = begin; at != end; ++at) {
    if (state(at->second) == State::kThere) return at->second;
    if (first < 0 || at->second < first) first = at->second;
  }
  return first;
}

bool ChunkFolder::whole() const {
  return std::all_of(states_.begin(), states_.end(),
                     [](const std::atomic<State>& state) { return state == State::kThere; });
}

Result<int> ChunkFolder::open_file(const Chunk& chunk, int flags) const {
  const std::string& path = manifest_.files[static_cast<size_t>(chunk.file)].path;
  const int number = ::openat(descriptor_, path.c_str(), flags | O_CLOEXEC | O_NONBLOCK);
  if (number < 0) return io_error(chunk, "open");
  return number;
}

Error ChunkFolder::io_error(const Chunk& chunk, const char* what) const {
  const int code = errno;
  return Error{code == ENOSPC || code == EDQUOT ? ErrorCode::kDoesNotFit : ErrorCode::kIo,
               fmt::format("{}/{}: cannot {}: {}", folder_,
                           manifest_.files[static_cast<size_t>(chunk.file)].path, what,
                           std::strerror(code))};
}

Result<size_t> ChunkFolder::read(int chunk, int64_t offset, std::span<char> into) const {
  const Chunk& one = chunks_[static_cast<size_t>(chunk)];
  TRY_ASSIGN(const int number, open_file(one, O_RDONLY));
  const base::Descriptor file(number);
  const size_t wanted = std::min(into.size(), static_cast<size_t>(one.bytes - offset));
  size_t done = 0;
  while (done < wanted) {
    const ssize_t got = ::pread(file.get(), into.data() + done, wanted - done,
                                one.offset + offset + static_cast<int64_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return io_error(one, "read");
    if (got == 0) return Error{ErrorCode::kIo, text_of(chunk) + ": the file has become shorter"};
    done += static_cast<size_t>(got);
  }
  return done;
}

Result<void> ChunkFolder::write(int chunk, std::string_view bytes) {
  const Chunk& one = chunks_[static_cast<size_t>(chunk)];
  CHECK(static_cast<int64_t>(bytes.size()) == one.bytes);
  TRY_ASSIGN(const int number, open_file(one, O_WRONLY | O_NOFOLLOW));
  const base::Descriptor file(number);
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t put = ::pwrite(file.get(), bytes.data() + done, bytes.size() - done,
                                 one.offset + static_cast<int64_t>(done));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return io_error(one, "write");
    done += static_cast<size_t>(put);
  }
  set_state(chunk, State::kThere);
  return {};
}

Result<void> ChunkFolder::sync() const {
  std::set<std::string> paths = {"."};
  for (const ManifestFile& file : manifest_.files) {
    paths.insert(file.path);
    for (fs::path above = fs::path(file.path).parent_path(); !above.empty();
         above = above.parent_path()) {
      paths.insert(above.string());
    }
  }
  for (const std::string& path : paths) {
    const base::Descriptor one(
        ::openat(descriptor_, path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (one.get() >= 0 && ::fsync(one.get()) == 0) continue;
    return Error{ErrorCode::kIo,
                 fmt::format("{}/{}: cannot sync: {}", folder_, path, std::strerror(errno))};
  }
  return {};
}

}  // namespace pelton::weights
