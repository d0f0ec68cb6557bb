// Reads a checkpoint's mapped weights into memory ahead of the first token: several large reads in
// flight keep the disk busy, where page faults in the order of a computation would not; and what is
// in memory already is mapped at once. Called once, by whoever loads the model.
#pragma once

#include <cstdint>

#include "base/function_ref.h"
#include "base/result.h"
#include "checkpoint/checkpoint.h"

namespace pelton::checkpoint {

// Bytes so far, and in all; false stops the reading. On the calling thread, some times a second.
using ReadProgress = base::FunctionRef<bool(int64_t done, int64_t total)>;

// Errors: kBadCheckpoint (names the file that could not be read), kCancelled.
Result<void> read_weights(const Checkpoint& checkpoint, ReadProgress progress);

}  // namespace pelton::checkpoint
