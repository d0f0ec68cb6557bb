// Reads the pieces of a checkpoint's mapped weights that are computed with into memory ahead of the
// first token: several large reads in flight keep the disk busy, where page faults in the order of
// a computation would not; and what is in memory already is mapped at once. Before other threads
// use the checkpoint. Called once, by whoever loads the model.
#pragma once

#include <cstdint>

#include "base/function_ref.h"
#include "base/result.h"
#include "checkpoint/load_choice.h"
#include "checkpoint/weight_pieces.h"

namespace pelton::checkpoint {

// Bytes so far, and in all; false stops the reading. On the calling thread, some times a second.
using ReadProgress = base::FunctionRef<bool(int64_t done, int64_t total)>;

// The addresses of tensors stay what they are. A lock comes first, of all at once: pages are locked
// as they are read, and where it is refused nothing has been read yet. What was done is given back:
// a lock that was only preferred may have had to be given up. Errors: kBadCheckpoint (names the
// file that could not be read), kDoesNotFit (may not be locked; no memory), kCancelled.
Result<LoadChoice> read_weights(const WeightPieces& pieces, const LoadChoice& choice,
                                ReadProgress progress);

// The pages stay what they are; the system may drop them from now on.
void unlock_weights(const WeightPieces& pieces);
// Reads nothing: pages that are in memory are locked now, others when they come. Threads that work
// with the weights wait for a piece at most. All or nothing. Errors: kDoesNotFit (the system's
// reason).
Result<void> lock_weights(const WeightPieces& pieces);
// The pages of the files that are in none of `pieces`, in their order, need not stay in this
// process's memory; they come again when they are read. So do pages of `pieces` that the system had
// mapped in one huge page with others: they stay in its cache, and locked ones where they are.
void drop_other_pages(const Checkpoint& checkpoint, const WeightPieces& pieces);

}  // namespace pelton::checkpoint
