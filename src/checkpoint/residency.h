// Reads a checkpoint's mapped weights into memory ahead of the first token: several large reads in
// flight keep the disk busy, where page faults in the order of a computation would not; and what is
// in memory already is mapped at once. Before other threads use the checkpoint. Called once, by whoever loads the model.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/function_ref.h"
#include "base/result.h"
#include "checkpoint/checkpoint.h"

namespace pelton::checkpoint {

// How weights come to be in memory.
enum class LoadMode {
  kMap,   // the mapped files' pages; the system may drop them when it needs the room
  kLock,  // the same, and it may not; as far as the process may lock so much (ulimit -l)
  kRead,  // memory of our own, in huge pages where the system has them; never dropped
};
Result<LoadMode> parse_load_mode(std::string_view name);  // mmap, lock, read

// Bytes so far, and in all; false stops the reading. On the calling thread, some times a second.
using ReadProgress = base::FunctionRef<bool(int64_t done, int64_t total)>;

// The addresses of tensors stay what they are. Errors: kBadCheckpoint (names the file that could
// not be read), kDoesNotFit (may not be locked; no memory), kCancelled.
Result<void> read_weights(const Checkpoint& checkpoint, LoadMode mode, ReadProgress progress);

}  // namespace pelton::checkpoint
