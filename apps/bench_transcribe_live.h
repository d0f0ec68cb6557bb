// bench transcribe --live: files as streams of live sound over a server's WebSocket, in real time.
// Main thread, and one for each stream.
#pragma once

#include <vector>

#include "base/result.h"
#include "cli/command_line.h"
#include "cli/interrupt.h"

namespace pelton::apps {

std::vector<cli::Flag> live_flags();
Result<void> bench_live(const cli::Arguments& arguments, const cli::Interrupt& interrupt);

}  // namespace pelton::apps
