// bf16 matrices held in memory in 12 bits a weight, exactly (tensor/compact_bf16.h), in place of
// the files' pages: a step reads a quarter less of them. Made by whoever loads a model, before
// anything points at its tensors; other models that are mapped from the same files are not touched.
#pragma once

#include <cstdint>
#include <vector>

#include "base/function_ref.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "checkpoint/checkpoint.h"
#include "families/expected_tensors.h"

namespace pelton::checkpoint {

// From so many bytes of such matrices on. Smaller models come from the processor's caches, where
// 16 bits are read faster.
inline constexpr int64_t kCompactFromBytes = int64_t{1} << 30;

// Whether it is a matrix that every step reads, of bf16. The embedding is one where it is the head,
// too; the head is none beside an approximate one, of which few rows are read.
bool can_be_compact(const families::ExpectedTensor& tensor, const families::ModelConfig& config,
                    bool has_coarse_head);
// The files' bytes of all such tensors.
int64_t compactible_bytes(const Checkpoint& checkpoint);
// Such a tensor's bytes in memory.
int64_t compact_bytes(const families::ExpectedTensor& tensor);

// Bytes of the files so far, and in all; false stops. On the calling thread.
using CompactProgress = base::FunctionRef<bool(int64_t done, int64_t total)>;

struct CompactWeights {
  int64_t file_bytes = 0;  // of the tensors that are held in 12 bits
  int64_t bytes = 0;       // of the same, now
  int tensors = 0;
  int left = 0;  // tensors whose exponents lie too far apart: they stay as they are
};
// Reads each tensor once, on all of the pool's threads. Experts of a layer stay of one type.
// Errors: kDoesNotFit, kCancelled.
Result<CompactWeights> compact_weights(Checkpoint& checkpoint, base::ThreadPool& pool,
                                       CompactProgress progress);

}  // namespace pelton::checkpoint
