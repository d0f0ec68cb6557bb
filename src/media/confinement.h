// What a process that reads foreign bytes gives up before it does: processor time, memory, files,
// and by seccomp filters all system calls that it does not need. For good; of the calling process,
// which has one thread. Linux.
#pragma once

#include <cstdint>

#include "base/result.h"

namespace pelton::media {

struct Bounds {
  int cpu_s = 60;
  int64_t memory_bytes = int64_t{1} << 30;  // address space
};

// Bounds alone, and no more rights by any program that it becomes. Errors: kIo.
Result<void> bound_process(const Bounds& bounds);

// Afterwards it computes, reads and writes what is open, gets memory and ends: nothing else, no
// file is opened, no process made, no socket. What is refused fails with EPERM. Errors:
// kUnsupported, where the kernel or the processor has no such filter.
Result<void> leave_only_computing();

// For a program that is loaded afterwards: no sockets, no file is opened to be written, nothing
// that changes other processes, mounts or modules. It also leaves the machine's network, where the
// kernel lets it. Errors: as above.
Result<void> leave_network_and_writing();

}  // namespace pelton::media
