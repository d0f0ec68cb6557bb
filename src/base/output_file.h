// A file that something is written to for as long as the process runs. Opening it never waits: a
// pipe that nobody reads is an error, not a start that hangs. One owner.
#pragma once

#include <cstdio>
#include <memory>
#include <string>

#include "base/result.h"

namespace pelton::base {

struct CloseOutputFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using OutputFile = std::unique_ptr<std::FILE, CloseOutputFile>;

enum class OutputMode { kAppend, kReplace };

// Errors: kIo.
Result<OutputFile> open_output(const std::string& path, OutputMode mode);

// The same path again, where somebody has moved the file away (logrotate): what is written to
// `file` goes there from now on, also by other threads. All stays as it is if it cannot be opened:
// kIo.
Result<void> reopen_output(std::FILE* file, const std::string& path);

}  // namespace pelton::base
