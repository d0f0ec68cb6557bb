// What the shell is told. One table for every verb; users' scripts rely on it.
#pragma once

#include "base/result.h"

namespace pelton::cli {

enum ExitCode : int {
  kExitOk = 0,             // also after a clean stop by SIGTERM
  kExitFailure = 1,        // something failed while running
  kExitUsage = 2,          // the command line is wrong
  kExitBadConfig = 3,      // a configuration file is wrong
  kExitNoModel = 4,        // model not found or unreadable
  kExitDoesNotFit = 5,     // not enough memory
  kExitAddressInUse = 6,   // somebody else listens there
  kExitStuck = 7,          // serve --watchdog-action exit: a step did not end, damaged weights
  kExitInterrupted = 130,  // Ctrl-C
};

ExitCode exit_code(const Error& error);

}  // namespace pelton::cli
