#include "hub/unfinished_blob.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "base/check.h"
#include "base/digest.h"
#include "base/file.h"

namespace pelton::hub {
namespace {

// The record: this line, then a byte for each block.
std::string record_head(const UnfinishedBlob::Options& options) {
  return fmt::format("pelton blocks 1 {} {}\n", options.size, options.block_bytes);
}

size_t block_count(const UnfinishedBlob::Options& options) {
  return static_cast<size_t>((options.size + options.block_bytes - 1) / options.block_bytes);
}

// The blocks that a record names; none if it is of something else.
std::vector<char> read_record(const std::string& path, const UnfinishedBlob::Options& options) {
  const std::string head = record_head(options);
  const size_t count = block_count(options);
  std::vector<char> there(count, 0);
  const Result<std::string> text = base::read_file(path, head.size() + count);
  if (!text.ok() || text->size() != head.size() + count || !text->starts_with(head)) return there;
  for (size_t i = 0; i < count; ++i) there[i] = (*text)[head.size() + i] == 1 ? 1 : 0;
  return there;
}

int64_t bytes_of_block(size_t block, const UnfinishedBlob::Options& options) {
  const int64_t begin = static_cast<int64_t>(block) * options.block_bytes;
  return std::min(options.block_bytes, options.size - begin);
}

int64_t bytes_of(const std::vector<char>& there, const UnfinishedBlob::Options& options) {
  int64_t bytes = 0;
  for (size_t i = 0; i < there.size(); ++i) {
    if (there[i] == 1) bytes += bytes_of_block(i, options);
  }
  return bytes;
}

bool put(int descriptor, int64_t offset, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::pwrite(descriptor, bytes.data(), bytes.size(), offset);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return false;
    bytes.remove_prefix(static_cast<size_t>(put));
    offset += put;
  }
  return true;
}

}  // namespace

UnfinishedBlob::UnfinishedBlob(const ModelFolder& folder, const std::string& name,
                               const Options& options)
    : options_(options),
      path_(folder.unfinished_blob(name)),
      record_path_(folder.blocks_record(name)),
      final_path_(folder.blob(name)) {
  CHECK(options.size > 0 && options.block_bytes > 0);
}

UnfinishedBlob::UnfinishedBlob(UnfinishedBlob&& other) noexcept
    : options_(other.options_),
      path_(other.path_),
      record_path_(other.record_path_),
      final_path_(other.final_path_),
      data_(std::exchange(other.data_, -1)),
      record_(std::exchange(other.record_, -1)),
      there_(std::move(other.there_)),
      bytes_done_(other.bytes_done_),
      resumed_(other.resumed_) {}

UnfinishedBlob::~UnfinishedBlob() {
  if (data_ >= 0) ::close(data_);
  if (record_ >= 0) ::close(record_);
}

Error UnfinishedBlob::io_error(const std::string& path, const char* what) const {
  return Error{ErrorCode::kIo, fmt::format("{}: cannot {}: {}", path, what, std::strerror(errno))};
}

int64_t UnfinishedBlob::bytes_there(const ModelFolder& folder, const std::string& name,
                                    const Options& options) {
  if (options.size == 0 || file_size(folder.unfinished_blob(name)) != options.size) return 0;
  return bytes_of(read_record(folder.blocks_record(name), options), options);
}

Result<UnfinishedBlob> UnfinishedBlob::open(const ModelFolder& folder, const std::string& name,
                                            const Options& options) {
  UnfinishedBlob blob(folder, name, options);
  const bool whole = file_size(blob.path_) == options.size;
  blob.data_ = ::open(blob.path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (blob.data_ < 0) return blob.io_error(blob.path_, "create");
  if (::ftruncate(blob.data_, options.size) != 0) return blob.io_error(blob.path_, "size");
  if (whole) {
    blob.there_ = read_record(blob.record_path_, options);
    blob.bytes_done_ = bytes_of(blob.there_, options);
  }
  blob.record_ = ::open(blob.record_path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (blob.record_ < 0) return blob.io_error(blob.record_path_, "create");
  blob.resumed_ = blob.bytes_done_ > 0;
  if (!blob.resumed_) TRY(blob.start_over());
  return blob;
}

Result<void> UnfinishedBlob::start_over() {
  there_.assign(block_count(options_), 0);
  bytes_done_ = 0;
  resumed_ = false;
  const std::string head = record_head(options_);
  if (::ftruncate(record_, 0) != 0 || !put(record_, 0, head) ||
      ::ftruncate(record_, static_cast<off_t>(head.size() + there_.size())) != 0) {
    return io_error(record_path_, "write");
  }
  return {};
}

std::optional<UnfinishedBlob::Gap> UnfinishedBlob::gap(int64_t from, int64_t length) const {
  size_t first = static_cast<size_t>(from / options_.block_bytes);
  while (first < there_.size() && there_[first] == 1) ++first;
  if (first >= there_.size()) return std::nullopt;
  const int64_t begin = static_cast<int64_t>(first) * options_.block_bytes;
  size_t last = first;
  while (last + 1 < there_.size() && there_[last + 1] == 0 &&
         block_end(last + 1) - begin <= length) {
    ++last;
  }
  return Gap{begin, block_end(last)};
}

int64_t UnfinishedBlob::block_end(size_t block) const {
  return std::min(options_.size, (static_cast<int64_t>(block) + 1) * options_.block_bytes);
}

Result<int64_t> UnfinishedBlob::write(int64_t offset, std::string_view bytes) {
  const int64_t end = offset + static_cast<int64_t>(bytes.size());
  CHECK(offset >= 0 && end <= options_.size);
  if (!put(data_, offset, bytes)) return io_error(path_, "write");
  int64_t done = 0;
  for (size_t block = static_cast<size_t>(offset / options_.block_bytes);
       block < there_.size() && block_end(block) <= end; ++block) {
    if (there_[block] == 1) continue;
    const char one = 1;
    const size_t place = record_head(options_).size() + block;
    if (!put(record_, static_cast<int64_t>(place), {&one, 1})) {
      return io_error(record_path_, "write");
    }
    there_[block] = 1;
    done += bytes_of_block(block, options_);
  }
  bytes_done_ += done;
  return done;
}

Result<std::string> UnfinishedBlob::digest(Hash hash, base::FunctionRef<bool()> keep_going) const {
  base::Digest digest(hash == Hash::kSha256 ? base::Digest::Kind::kSha256
                                            : base::Digest::Kind::kSha1);
  if (hash == Hash::kGitBlob) {
    const std::string head = fmt::format("blob {}", options_.size);
    digest.update({head.c_str(), head.size() + 1});  // with the NUL
  }
  std::vector<char> buffer(size_t{1} << 20);
  for (int64_t offset = 0; offset < options_.size;) {
    const ssize_t got = ::pread(data_, buffer.data(), buffer.size(), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return io_error(path_, "read");
    digest.update({buffer.data(), static_cast<size_t>(got)});
    offset += got;
    if (!keep_going()) return Error{ErrorCode::kCancelled, "interrupted"};
  }
  return digest.finish();
}

Result<void> UnfinishedBlob::finish() {
  CHECK(complete());
  if (::fsync(data_) != 0) return io_error(path_, "write");
  if (::rename(path_.c_str(), final_path_.c_str()) != 0) {
    return io_error(final_path_, "rename into place");
  }
  ::unlink(record_path_.c_str());
  return {};
}

}  // namespace pelton::hub
