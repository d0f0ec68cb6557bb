// Writes random-weight checkpoints in the published layout, as fast as the disk takes them: how
// speed is measured where the real weights cannot be had. Bytes depend on configuration and seed
// alone, not on threads. The caller's thread owns the pool; workers only fill and write pieces.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "base/json.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "checkpoint/convert.h"
#include "families/expected_tensors.h"
#include "families/registry.h"

namespace pelton::checkpoint {

// The published converter's limit.
inline constexpr int64_t kShardBytesMax = 4'800'000'000;

struct SyntheticOptions {
  Json config;      // becomes config.json
  Json generation;  // becomes generation_config.json
  uint64_t seed = 0;
  int64_t shard_bytes_max = kShardBytesMax;
  const families::Registry* registry = &families::Registry::built_in();  // of write_synthetic
};

// `like`: one of families::published_models() or the path of a config.json; layers: 0 keeps their
// number.
Result<SyntheticOptions> synthetic_like(const std::string& like, int layers);

// A model of a few megabytes for tests and demonstrations, with published ratios and a vocabulary
// of that size; eos is vocab_size - 2, padding vocab_size - 1, as in the golden models.
SyntheticOptions synthetic_tiny(int vocab_size);

// Makes `folder` and writes config.json, generation_config.json and the safetensors, the
// configuration last: an interrupted run leaves no model that opens. Refuses a folder that has a
// config.json. Calls progress(bytes done, bytes in all) now and then, from the caller's thread.
// Errors: kInvalidArgument, kBadCheckpoint and kUnsupported (the configuration), kDoesNotFit, kIo.
Result<void> write_synthetic(const SyntheticOptions& options, const std::string& folder,
                             base::ThreadPool& pool,
                             base::FunctionRef<void(int64_t, int64_t)> progress);

// The same weights in other layouts (convert.h): FOLDER/original, and a GGUF file.
Result<void> write_synthetic_original(const SyntheticOptions& options, const std::string& folder,
                                      base::ThreadPool& pool, WriteProgress progress);
Result<void> write_synthetic_gguf(const SyntheticOptions& options, const GgufOptions& gguf,
                                  const std::string& file, base::ThreadPool& pool,
                                  WriteProgress progress);

// Which tensors go to which file: in order, a new file when the next tensor would pass the limit.
struct ShardPlan {
  std::string file;
  std::vector<families::ExpectedTensor> tensors;
};
std::vector<ShardPlan> plan_shards(std::vector<families::ExpectedTensor> tensors,
                                   int64_t shard_bytes_max);

}  // namespace pelton::checkpoint
