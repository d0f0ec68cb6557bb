// Runs a program that a model wrote, which may do anything, and says whether it came to its end. It
// has a process of its own in namespaces of its own: nobody else's processes, no network, all of
// the machine's files read-only, /proc and /run empty, a temporary folder in memory, bounds of
// time, memory, processes and file sizes; no capability, and no user with rights where this process
// is root. When its time is over all of its processes are ended with it. Where the system does not
// allow that nothing is run. Any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace pelton::eval {

struct SandboxLimits {
  std::chrono::milliseconds wall{10'000};
  int cpu_s = 10;                            // of one process
  int64_t memory_bytes = int64_t{1} << 30;   // address space of one process
  int64_t file_bytes = int64_t{16} << 20;    // of one file
  int64_t folder_bytes = int64_t{64} << 20;  // of all its files
  int processes = 32;
};

enum class ProgramEnd {
  kFinished,  // it ran to its last line
  kFailed,    // an exception, a signal, or it left before its last line
  kTimeOut,   // it was ended
};

// A program in Python, whose output nobody hears. Errors: kUnsupported: the sandbox cannot be made
// here, with what is missing.
Result<ProgramEnd> run_program(std::string_view python, const SandboxLimits& limits);

// Whether a program can be run here at all. Errors: as above.
Result<void> check_sandbox();

}  // namespace pelton::eval
