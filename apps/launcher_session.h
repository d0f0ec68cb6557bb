// That a launcher of processes (mpirun, srun, one that sets RANK and WORLD_SIZE) has started this
// one among several, as its environment says, and what ranks of a measurement then need no flags
// for: who is who, where they meet, the secret they know each other by. Main thread.
#pragma once

#include <optional>
#include <string>

#include "apps/rank_flags.h"
#include "base/result.h"

namespace pelton::apps {

struct LauncherSession {
  std::string launcher;  // as --rank-launcher names it: "mpi", "slurm", "env"
  RankPlace place;
  std::string job;  // the same for its processes, another one's for others at the same time
};

// Empty: nobody has started several. A batch script's own shell is not one of srun's. Errors:
// kInvalidArgument naming the variable that makes no sense.
Result<std::optional<LauncherSession>> launcher_session(const Variable& variable);

// "mpirun has started 2 of it".
std::string describe(const LauncherSession& session);

// For a verb that is one process: an error where several have been started.
Result<void> refuse_launched(const std::string& verb);

// A port from 20000 to 29999 of the job's own.
int meeting_port(const LauncherSession& session);

// Of the job, by a key that only this user's processes can read: `folder`/rank_key, which the first
// to ask makes. Errors: kIo; kBadConfig of a key that others could have read.
Result<std::string> session_secret(const LauncherSession& session, const std::string& folder);

}  // namespace pelton::apps
