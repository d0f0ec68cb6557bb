// Writes a checkpoint's weights as the fast kernels like them: one safetensors file of tiles
// (kernels/tiles.h), which loads by mapping it, with no work. Experts stay MXFP4 to the bit; what
// is plain elsewhere (of dense models, MLPs too) stays as it is, or becomes signed bytes if that is
// asked for; Q8_0 becomes tiles of the same bytes. Queries, keys and values are one matrix, in that
// order. The caller's thread owns the pool.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/function_ref.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "checkpoint/checkpoint.h"
#include "kernels/kernels.h"

namespace pelton::layers {

enum class MatrixWeights {
  kAsShipped,  // attention, dense MLPs and head as the checkpoint has them
  kInt8,       // signed bytes, a float16 scale for each 32 along a row
};

struct PackOptions {
  MatrixWeights matrices = MatrixWeights::kInt8;
  // The head as shipped, and in 4 bits beside it (layers/output_head.h), whatever `matrices` says;
  // if the checkpoint has it in float32, float16 or bf16.
  bool coarse_head = true;
  kernels::Activations activations = kernels::Activations::kInt16;
  std::string source;       // what is said of where the weights come from
  std::string fingerprint;  // of the source (checkpoint/fingerprint.h); may be empty
};

std::string_view name_of(MatrixWeights weights);             // "shipped", "int8"
std::string_view name_of(kernels::Activations activations);  // "int16", "int8"

// Bytes so far, and in all; false stops. On the calling thread, some times a second.
using PackProgress = base::FunctionRef<bool(int64_t done, int64_t total)>;

// Whether pack_weights takes the model: its experts are published in MXFP4; or it is dense, with
// attention of keys and values, and its files are safetensors in Hugging Face's layout without
// quantization.
bool can_be_packed(const checkpoint::Checkpoint& checkpoint);
// The same of files that are not there yet, as the family publishes them.
bool can_be_packed(const families::ModelConfig& config);

// Writes `file`, which is complete only when this returns. Errors: kUnsupported (what cannot be
// packed), kDoesNotFit, kIo, kCancelled.
Result<void> pack_weights(const checkpoint::Checkpoint& checkpoint, const PackOptions& options,
                          const std::string& file, base::ThreadPool& pool, PackProgress progress);

// Says in a file made by pack_weights, in place, what its tiles are to be multiplied with. Errors:
// kIo; kBadCheckpoint if the file was not made with kInt16.
Result<void> rewrite_activations(const std::string& file, kernels::Activations activations);

}  // namespace pelton::layers
