// How weights come into memory: what was asked for, what the machine allows, and so what is done.
// Pure but for load_facts; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace pelton::checkpoint {

enum class LoadMode {
  kAuto,  // kLock where that is allowed and leaves others enough (and then huge_pages.h), else kMap
  kMap,   // the mapped files' pages; the system may drop them when it needs the room
  kLock,  // the same, and it may not
  kRead,  // memory of our own, in huge pages where the system has them; never dropped
};
Result<LoadMode> parse_load_mode(std::string_view name);  // auto, mmap, lock, read
std::string_view load_mode_name(LoadMode mode);

struct LoadFacts {
  int64_t weight_bytes = 0;      // of the files: all of them are mapped
  int64_t beside_bytes = 0;      // keys and values, working memory: what else we shall use
  int64_t memory_bytes = 0;      // min(cgroup limits, RAM)
  int64_t lock_limit_bytes = 0;  // INT64_MAX: none
};
// This machine's, for such a model. Raises the soft limit of what may be locked to the hard one.
LoadFacts load_facts(int64_t weight_bytes, int64_t beside_bytes);

struct LoadChoice {
  LoadMode mode = LoadMode::kMap;  // never kAuto
  bool ahead = true;               // read before the first token
  // Of a lock that is only preferred: it is given up when the system has less than this left while
  // weights are read; and later, when all that we need has been taken, less than the floor.
  std::optional<int64_t> keep_available;
  int64_t floor_bytes = 0;
  std::string reason;  // why, and what to do about it; empty: it is what was asked for

  std::string text() const;  // one line: "mmap: 12.6 GiB of weights may not be locked ..."
};

// Errors: kDoesNotFit (more is to be locked than there is).
Result<LoadChoice> choose_load_mode(LoadMode asked, const LoadFacts& facts);

// `choice`, whose lock was given up when no more than `available_bytes` were left.
LoadChoice without_lock(const LoadChoice& choice, int64_t available_bytes);
// The same, because the system said no to the lock itself.
LoadChoice without_lock(const LoadChoice& choice, std::string_view refusal);

}  // namespace pelton::checkpoint
