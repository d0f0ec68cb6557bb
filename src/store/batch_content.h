// What the parts of BatchStore share: the names of rows as ciphers have them, and a file's content
// on its way to the disk. Internal to the room. One thread at a time.
#pragma once

#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "store/batch_store.h"
#include "store/sealed_content.h"

namespace pelton::store {

// Of a content on its way into a folder that is encrypted from then on.
inline constexpr std::string_view kSealedSuffix = ".sealed";

inline std::string row_of(const StoredFile& file) {
  return row_name({file.owner, "file", file.id});
}
inline std::string row_of(const StoredBatch& batch) {
  return row_name({batch.owner, "batch", batch.id});
}

inline Error io_error(const std::string& path, std::string_view what) {
  return {ErrorCode::kIo, fmt::format("{}: {}: {}", path, what, std::strerror(errno)), ""};
}

// There under its name when all of it is.
class ContentWriter {
 public:
  ContentWriter(std::string path, RowCipher cipher)
      : path_(std::move(path)),
        partial_(path_ + ".partial"),
        cipher_(std::move(cipher)),
        descriptor_(::open(partial_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600)) {}
  ~ContentWriter() {
    if (descriptor_ < 0) return;
    ::close(descriptor_);
    if (!finished_) ::unlink(partial_.c_str());
  }
  ContentWriter(const ContentWriter&) = delete;
  ContentWriter& operator=(const ContentWriter&) = delete;

  Result<void> write(std::string_view bytes) {
    if (descriptor_ < 0) return io_error(partial_, "cannot be made");
    bytes_ += static_cast<int64_t>(bytes.size());
    buffer_.append(bytes);
    return buffer_.size() < kBufferBytes ? Result<void>() : flush(false);
  }
  Result<void> finish() {
    if (descriptor_ < 0) return io_error(partial_, "cannot be made");
    TRY(flush(true));
    if (::fdatasync(descriptor_) != 0) return io_error(partial_, "cannot be written");
    if (::rename(partial_.c_str(), path_.c_str()) != 0) return io_error(path_, "cannot be made");
    finished_ = true;
    return {};
  }
  int64_t bytes() const { return bytes_; }

 private:
  static constexpr size_t kBufferBytes = size_t{1} << 20;

  Result<void> flush(bool is_end) {
    if (!cipher_.encrypts()) {
      TRY(put(buffer_));
      buffer_.clear();
      return {};
    }
    constexpr size_t kPiece = SealedContent::kPieceBytes;
    std::string_view left = buffer_;
    // The last one is sealed as such: one more may always come before the end.
    for (; left.size() > kPiece; left.remove_prefix(kPiece)) {
      TRY(put(SealedContent::seal(cipher_, {.number = pieces_++}, left.substr(0, kPiece))));
    }
    if (is_end) {
      TRY(put(SealedContent::seal(cipher_, {.number = pieces_++, .is_last = true}, left)));
      left = {};
    }
    buffer_ = std::string(left);
    return {};
  }
  Result<void> put(std::string_view left) {
    while (!left.empty()) {
      const ssize_t count = ::write(descriptor_, left.data(), left.size());
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return io_error(partial_, "cannot be written");
      left.remove_prefix(static_cast<size_t>(count));
    }
    return {};
  }

  const std::string path_;
  const std::string partial_;
  const RowCipher cipher_;
  const int descriptor_;
  std::string buffer_;
  int64_t bytes_ = 0;
  int64_t pieces_ = 0;
  bool finished_ = false;
};

}  // namespace pelton::store
