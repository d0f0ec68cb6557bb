// A folder that one process at a time may start replicas from. The lock is the kernel's, so it goes
// with whoever has it; the file beside it says who that is, and with which lead's epoch:
//
//   STATE/lock    locked; "EPOCH PID LEAD START PID-NAMESPACE BOOT\n"
//
// Whoever leads with a newer epoch of the same lead takes the folder from a process that leads no
// more and does not end: one that is stopped, or hangs, would fork replicas on the day that it
// wakes, and no token is looked at between its last check and that. It is given a moment to end by
// itself and is then killed, which is what 0123 asks of it. Nobody without a lead takes anything
// from anybody.
//
// Owned by a launcher; its thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "base/descriptor.h"
#include "base/log.h"
#include "base/result.h"

namespace pelton::launch {

class FolderLock {
 public:
  struct Options {
    std::string folder;  // made if it is not there
    uint64_t epoch = 0;  // of whoever leads; 0: nobody else is there
    // Which lead's epochs these are: those of two can not be compared. A text without spaces.
    std::string lead = "-";
    // For a process that led before to end by itself.
    std::chrono::milliseconds grace{2'000};
  };
  // Errors: kIo, also where others than this user may write; kAddressInUse: another process has it.
  static Result<std::unique_ptr<FolderLock>> take(const Options& options, base::Log& log);
  // Says that nobody has it: its record must not outlive it in a process that goes on.
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  // For a child between fork and exec: it keeps the folder locked until its own lock is there.
  int descriptor() const { return file_.get(); }

 private:
  explicit FolderLock(int file) : file_(file) {}
  Result<void> lock(const Options& options, const std::string& name, base::Log& log);
  bool try_lock() const;

  const base::Descriptor file_;
  bool is_held_ = false;
};

}  // namespace pelton::launch
