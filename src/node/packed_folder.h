// A packed model in a folder of its own: weights as models/pack_model.h makes them, and beside them
// what a model folder has. The folder takes its name only when it is complete and on the disk. One
// thread, which owns the pool.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "models/pack_model.h"

namespace pelton::node {

// Between a folder's name and what mkdtemp adds, until it is complete.
inline constexpr std::string_view kPartialFolder = ".partial.";

struct PackFolderOptions {
  models::WeightChoice weights = models::WeightChoice::kAuto;
  std::optional<kernels::Activations> activations;  // empty: models::PackModelOptions
};

// Errors: kInvalidArgument if `out` is there already, and those of pack_model().
Result<models::PackedModel> pack_into_folder(const checkpoint::Checkpoint& source,
                                             const PackFolderOptions& options,
                                             const std::string& out, base::ThreadPool& pool,
                                             models::PackModelProgress progress);

// The same in memory, without a file that has a name when this returns; `made` says what was
// chosen. The checkpoint's texts are the source's. Errors: those of pack_model(), kIo.
Result<checkpoint::Checkpoint> pack_into_memory(const checkpoint::Checkpoint& source,
                                                const PackFolderOptions& options,
                                                base::ThreadPool& pool,
                                                models::PackModelProgress progress,
                                                models::PackedModel& made);

}  // namespace pelton::node
