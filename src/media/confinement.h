// What a process that reads foreign bytes gives up before it does: processor time, memory, files,
// and by seccomp filters all system calls that it does not need. For good; of the calling process,
// which has one thread. Linux.
#pragma once

#include <cstdint>
#include <string>

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

// For a program that is loaded afterwards, as ffmpeg: it reads what is open and what programs are
// made of (/usr, /lib, /etc/ld.so.cache and the like), by Landlock, and `program_folder`,
// where it lies itself; nothing else is opened, nothing
// written but what is open; it makes threads and no processes, no sockets, and acts on no other
// process, mount or module. Errors: as above, also where the kernel has no Landlock.
Result<void> leave_only_reading_programs(const std::string& program_folder);

}  // namespace pelton::media
