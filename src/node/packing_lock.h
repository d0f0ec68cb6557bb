// One process at a time packs a model's weights: the others wait, and find them when it is done.
// Held by a file beside the packed folder, which stays; the system lets go of it with the process.
// Its owner's thread.
#pragma once

#include <string>

#include "base/function_ref.h"
#include "base/log.h"
#include "base/result.h"

namespace pelton::node {

class PackingLock {
 public:
  // For `folder`, which need not exist. Waits for the process that has it; `go_on` is asked ten
  // times a second meanwhile. Where the file system knows no locks nobody waits. Errors:
  // kCancelled.
  static Result<PackingLock> take(const std::string& folder, base::FunctionRef<bool()> go_on,
                                  base::Log& log);
  PackingLock(PackingLock&& other) noexcept;
  PackingLock& operator=(PackingLock&&) = delete;
  ~PackingLock();

  // Deletes what a process that was killed left of such a folder, once nobody has written to it for
  // an hour: a host that shares the folder, but not its locks, may be at work.
  void remove_leftovers(base::Log& log) const;

 private:
  PackingLock(std::string folder, int descriptor)
      : folder_(std::move(folder)), descriptor_(descriptor) {}

  const std::string folder_;
  int descriptor_;  // -1: not locked
};

}  // namespace pelton::node
