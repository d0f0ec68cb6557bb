// Fetches a model from a hub into the standard Hugging Face cache, where checkpoint's
// resolve_model() finds it. Continues what an earlier pull left, fetches nothing twice, and checks
// every hash that the hub gives. One thread, the caller's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/function_ref.h"
#include "base/result.h"
#include "hub/hub_access.h"
#include "hub/hub_api.h"
#include "hub/retry.h"
#include "hub/transfers.h"

namespace pelton::hub {

struct PullOptions {
  std::string model;              // "openai/gpt-oss-20b"
  std::string revision = "main";  // branch, tag or commit
  HubAccess access;
  std::string cache;                 // the hub cache's folder
  std::vector<std::string> include;  // globs over paths, "*" also across slashes; empty: the usual
  std::vector<std::string> exclude;
  Transfers::Options transfers;
  RetryOptions retry;
  int64_t piece_bytes = int64_t{64} << 20;  // most that one request asks for
  int64_t block_bytes = int64_t{1} << 20;   // least that an interrupted pull has to fetch again
};

struct PullProgress {
  enum class Phase { kAsking, kFetching, kChecking };
  Phase phase = Phase::kAsking;
  std::string_view file;
  int64_t bytes_done = 0;  // of those that had to come
  int64_t bytes_total = 0;
};
// False ends the pull with kCancelled; what has been fetched stays.
using PullObserver = base::FunctionRef<bool(const PullProgress&)>;

struct PullReport {
  std::string folder;  // the snapshot
  std::string commit;
  int files_fetched = 0;
  int files_kept = 0;  // that were there
  int64_t bytes_fetched = 0;
  int64_t bytes_total = 0;
  std::vector<std::string> unchecked;  // files for which the hub gives no hash
};

// Errors: kInvalidArgument, kNotFound (no such model or not for this token), kUnavailable (network,
// offline, another pull), kDoesNotFit (disk), kBadCheckpoint (sizes or hashes do not match), kIo,
// kCancelled.
Result<PullReport> pull(const PullOptions& options, const base::Clock& clock,
                        PullObserver observer);

// Whether a pull with these globs wants that file. No `include`: the weights, configuration,
// tokenizer and licence that stand at the top, not the second copies in folders, and 1_Pooling's
// configuration. (And pytorch_model.bin, which a pull takes where there are no safetensors.)
bool wants_file(const std::string& path, const std::vector<std::string>& include,
                const std::vector<std::string>& exclude);

}  // namespace pelton::hub
