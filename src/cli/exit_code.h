// Exit codes. One table for every verb; users' scripts rely on it.
#pragma once

#include <array>
#include <string_view>

#include "base/result.h"

namespace pelton::cli {

enum ExitCode : int {
  kExitOk = 0,             // also after a clean stop by SIGTERM
  kExitFailure = 1,        // something failed while running
  kExitUsage = 2,          // the command line is wrong
  kExitBadConfig = 3,      // a configuration file is wrong
  kExitNoModel = 4,        // model not found or unreadable
  kExitDoesNotFit = 5,     // not enough memory; plan: no layout meets the objectives
  kExitAddressInUse = 6,   // somebody else listens there
  kExitStuck = 7,          // serve --watchdog-action exit: a step did not end, damaged weights
  kExitSuperseded = 8,     // autoscale: another one is obeyed; a restart would end likewise
  kExitInterrupted = 130,  // Ctrl-C
};

// The field of an error (kUnavailable) that is that one.
inline constexpr std::string_view kSuperseded = "superseded";

ExitCode exit_code(const Error& error);

// All of them, for help and manual pages.
struct ExitMeaning {
  ExitCode code;
  std::string_view meaning;
};
inline constexpr std::array<ExitMeaning, 10> kExitMeanings = {{
    {kExitOk, "fine"},
    {kExitFailure, "failed while running"},
    {kExitUsage, "wrong usage"},
    {kExitBadConfig, "bad configuration"},
    {kExitNoModel, "model not found or unreadable"},
    {kExitDoesNotFit, "does not fit in memory, or no layout meets plan's objectives"},
    {kExitAddressInUse, "address in use"},
    {kExitStuck, "serve gave up: a step did not end, or weights are damaged"},
    {kExitSuperseded, "another autoscaler is obeyed"},
    {kExitInterrupted, "Ctrl-C"},
}};

}  // namespace pelton::cli
