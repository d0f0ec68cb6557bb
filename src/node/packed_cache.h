// Weights that were packed when a model was first loaded, one folder for each model and choice,
// each a model folder of its own. What no longer matches the files it was made from is made anew.
// Any process may use and delete folders at any time: they appear complete, and what is mapped
// stays.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "models/pack_model.h"

namespace pelton::node {

// From this size on it is worth while to say that packing would be faster. Smaller models come from
// the processor's caches.
inline constexpr int64_t kPackedFromBytes = int64_t{1} << 30;

struct PackedEntry {
  std::string folder;
  std::string source;       // what it was made from
  std::string weights;      // "int8", "shipped"
  std::string fingerprint;  // models::packed_fingerprint of what it was made from
  int64_t bytes = 0;
};
// By folder. A cache that does not exist has none.
std::vector<PackedEntry> packed_models(const std::string& cache);
// Deletes the entries made from `source`, all if it is empty. Returns the bytes freed. Errors: kIo.
Result<int64_t> purge_packed(const std::string& cache, const std::string& source);

// The folder of `source`'s packed weights, if they are there and fresh.
Result<std::optional<std::string>> find_packed(const std::string& cache,
                                               const checkpoint::Checkpoint& source,
                                               models::WeightChoice weights);

// The same, made now; entries of the same source that are stale go away. Logs what was chosen.
Result<std::string> make_packed(const std::string& cache, const checkpoint::Checkpoint& source,
                                models::WeightChoice weights, base::ThreadPool& pool,
                                models::PackModelProgress progress, base::Log& log);

}  // namespace pelton::node
