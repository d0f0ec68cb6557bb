// A model fetched as a whole: its manifest, one process of this machine at a time, what is there
// kept, the rest fetched, and the copy under its name only when it is whole. One thread.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/function_ref.h"
#include "base/result.h"
#include "weights/fetch.h"
#include "weights/share_server.h"

namespace pelton::weights {

struct MirrorOptions {
  FetchOptions fetch;
  std::string folder;              // where the copy is to be
  bool durable = true;             // on the disk before it has its name
  bool below_digest = false;       // rather: folder-DIGEST, so that versions lie beside each other
  ShareServer* share = nullptr;    // gives to others what is there; outlives the mirror
  std::string name;                // under which
  std::chrono::seconds linger{0};  // at most so long for those that still fetch
};

struct MirrorProgress {
  enum class Phase { kManifest, kWaiting, kChecking, kFetching, kSharing };
  Phase phase = Phase::kManifest;
  int64_t done = 0;  // bytes
  int64_t total = 0;
};
// False ends it with kCancelled; what has come is kept.
using MirrorObserver = base::FunctionRef<bool(const MirrorProgress&)>;

struct MirrorReport {
  std::string folder;
  bool was_there = false;
  int64_t bytes = 0;  // of the model
  FetchReport fetch;
  double manifest_seconds = 0;
  double fetch_seconds = 0;  // all else, but for lingering
};

// Errors: fetch_manifest's and Fetch::run's; kInvalidArgument where the folder is something else;
// kDoesNotFit where the disk is too small; kIo, kCancelled.
Result<MirrorReport> mirror(MirrorOptions options, const base::Clock& clock,
                            MirrorObserver observer);

}  // namespace pelton::weights
