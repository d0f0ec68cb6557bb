// A file being downloaded: its bytes, with holes, and beside it a record of the blocks that are
// there, a byte for each. Both survive the end of the process at any instant: a block is recorded
// after its bytes are written. One thread; the caller holds the model's FolderLock.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "base/result.h"
#include "hub/model_folder.h"

namespace pelton::hub {

class UnfinishedBlob {
 public:
  struct Options {
    int64_t size = 0;
    int64_t block_bytes = 0;
  };

  // Continues what is there if it is of this size and block size, or begins anew.
  static Result<UnfinishedBlob> open(const ModelFolder& folder, const std::string& name,
                                     const Options& options);
  UnfinishedBlob(UnfinishedBlob&& other) noexcept;
  UnfinishedBlob& operator=(UnfinishedBlob&&) = delete;
  ~UnfinishedBlob();

  // How many bytes of an earlier download would be continued.
  static int64_t bytes_there(const ModelFolder& folder, const std::string& name,
                             const Options& options);

  int64_t bytes_done() const { return bytes_done_; }
  bool complete() const { return bytes_done_ == options_.size; }
  bool resumed() const { return resumed_; }

  // The first missing byte at or after `from`, and the end of the gap, at most `length` further;
  // both on block boundaries or the file's end.
  struct Gap {
    int64_t begin = 0;
    int64_t end = 0;
  };
  std::optional<Gap> gap(int64_t from, int64_t length) const;

  // Bytes within the file. A block counts when its last byte is written, so writes run from the
  // begin of a block to its end. Returns the bytes that have become done.
  Result<int64_t> write(int64_t offset, std::string_view bytes);

  // Forgets all blocks.
  Result<void> start_over();
  // SHA-256, or the hash that git gives a blob of these bytes, from the disk.
  enum class Hash { kSha256, kGitBlob };
  // `keep_going` is asked about every MiB; false: kCancelled.
  Result<std::string> digest(Hash hash, base::FunctionRef<bool()> keep_going) const;
  // Makes it the blob and deletes the record.
  Result<void> finish();

 private:
  UnfinishedBlob(const ModelFolder& folder, const std::string& name, const Options& options);
  int64_t block_end(size_t block) const;
  Error io_error(const std::string& path, const char* what) const;

  const Options options_;
  const std::string path_;
  const std::string record_path_;
  const std::string final_path_;
  int data_ = -1;
  int record_ = -1;
  std::vector<char> there_;  // of each block: 1 or 0
  int64_t bytes_done_ = 0;
  bool resumed_ = false;
};

}  // namespace pelton::hub
