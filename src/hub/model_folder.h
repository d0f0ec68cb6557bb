// One model's place in the standard Hugging Face cache, where other tools find it too:
//   models--ORG--NAME/blobs/ETAG                   the bytes, once
//   models--ORG--NAME/snapshots/COMMIT/PATH     -> ../../blobs/ETAG
//   models--ORG--NAME/refs/REVISION                holds COMMIT
//   .locks/models--ORG--NAME/                      who is downloading
// Unfinished blobs are ETAG.pelton.incomplete: not ETAG.incomplete, which other tools would take
// for the first bytes of the file, while ours has holes. Names must have been checked
// (hub_names.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"

namespace pelton::hub {

class ModelFolder {
 public:
  ModelFolder(std::string cache, std::string model);

  const std::string& path() const { return path_; }
  const std::string& locks_path() const { return locks_path_; }
  std::string blob(const std::string& name) const { return path_ + "/blobs/" + name; }
  std::string unfinished_blob(const std::string& name) const {
    return blob(name) + ".pelton.incomplete";
  }
  std::string blocks_record(const std::string& name) const { return blob(name) + ".pelton.blocks"; }
  std::string snapshot(const std::string& commit) const { return path_ + "/snapshots/" + commit; }

  // Makes blobs/, snapshots/COMMIT/ and the folder of locks.
  Result<void> create(const std::string& commit) const;
  // Makes snapshots/COMMIT/FILE a relative link to the blob.
  Result<void> link(const std::string& commit, const std::string& file,
                    const std::string& blob_name) const;
  Result<void> write_ref(const std::string& revision, const std::string& commit) const;
  // What refs/REVISION holds.
  std::optional<std::string> read_ref(const std::string& revision) const;

 private:
  std::string path_;
  std::string locks_path_;
};

// Held by whoever downloads or deletes; the kernel lets go when the process ends, however it ends.
// A file lock, as the hub's own tools use it.
class FolderLock {
 public:
  // Error: kUnavailable if another process holds it.
  static Result<FolderLock> take(const ModelFolder& folder);
  FolderLock(FolderLock&& other) noexcept;
  FolderLock& operator=(FolderLock&&) = delete;
  ~FolderLock();

 private:
  explicit FolderLock(int descriptor) : descriptor_(descriptor) {}
  int descriptor_ = -1;
};

// The size of a regular file, links followed; empty if there is none.
std::optional<int64_t> file_size(const std::string& path);

}  // namespace pelton::hub
