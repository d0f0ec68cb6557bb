// Copies of models that were fetched, as folders: how one appears, who may write it, how it goes
// away to the last byte. A copy FOLDER is
//   FOLDER/                    the model's files, the manifest, and a hidden note that it is a copy
//   FOLDER.partial.DIGEST/     the same while it is being fetched, the note from the beginning on;
//                              DIGEST: of its manifest
//   .NAME.weights-lock         beside it: who is at work, for as long as a copy is there
// Any process may read at any time: a copy takes its name when it is whole.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "base/result.h"
#include "weights/chunk_folder.h"

namespace pelton::weights {

// One process at a time fetches or erases a copy. The kernel lets go of it with the process; its
// file goes with the last byte of the copy, and where none was begun.
class CopyLock {
 public:
  // Waits for who has it; `go_on` is asked ten times a second meanwhile. Errors: kCancelled where
  // it says no, kIo.
  static Result<CopyLock> take(const std::string& folder, base::FunctionRef<bool()> go_on);
  CopyLock(CopyLock&& other) noexcept;
  CopyLock& operator=(CopyLock&&) = delete;
  ~CopyLock();

 private:
  explicit CopyLock(int descriptor) : descriptor_(descriptor) {}
  bool is_named(const std::string& path) const;
  int descriptor_;
  std::string folder_;  // empty: it is not ours yet
};

std::string partial_folder(const std::string& folder, const std::string& digest);
// Makes that folder, with the note that it is one: `from`. The caller has the lock. Errors: kIo.
Result<void> begin_partial(const std::string& folder, const std::string& digest,
                           const std::string& from);

// Whether a whole copy, of that manifest, is there by its files' sizes. Errors: kInvalidArgument if
// something else is there.
Result<bool> find_copy(const std::string& folder, const Manifest& manifest);

// Deletes what was begun of other manifests. The caller has the lock.
void remove_other_partials(const std::string& folder, const std::string& digest);

// The partial folder becomes the copy. Errors: kIo.
Result<void> finish_copy(const std::string& folder, const ChunkFolder& chunks);

// Of a folder that is to be served: the manifest beside its files, if none has been changed or put
// there since (a time that cannot be set back) and all have its sizes; else make_manifest's.
Result<Manifest> manifest_of(const std::string& folder, const MakeOptions& options,
                             MakeProgress progress);

struct Copy {
  std::string folder;
  std::string from;
  int64_t bytes = 0;          // that its files take on the disk
  int64_t partial_bytes = 0;  // the same of what was begun
  bool whole = false;
};
// `folder` itself, if it is one, and those that lie in it; by name.
std::vector<Copy> list_copies(const std::string& folder);

struct Erased {
  int64_t bytes = 0;              // that were freed
  std::vector<std::string> left;  // what somebody else has put there, which stays; sorted
};
// Deletes a copy, of the files those that its manifest names, and all that was begun of it. Errors:
// kNotFound where there is none, also where the folder is no copy; kUnavailable while another
// process fetches it; kIo.
Result<Erased> erase_copy(const std::string& folder);

}  // namespace pelton::weights
