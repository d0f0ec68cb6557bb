// Ranks that somebody else starts, one process each, on one host or several: by hand (--nnodes), by
// a launcher that says who is who in the environment (--rank-launcher env, mpi, slurm). `serve`'s.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/result.h"
#include "cli/command_line.h"
#include "executor/ranked_model.h"
#include "parallel/rendezvous.h"

namespace pelton::apps {

std::vector<cli::Flag> rank_flags();

// Which of how many a process is, and likewise among those on its host.
struct RankPlace {
  int rank = 0;
  int ranks = 1;
  int local_rank = 0;
  int local_ranks = 1;
};

// As a launcher says it: "env" (RANK, WORLD_SIZE; LOCAL_RANK and LOCAL_WORLD_SIZE where they are),
// "mpi" (OMPI_COMM_WORLD_..., PMI_...), "slurm" (SLURM_PROCID, SLURM_NTASKS, ...). `variable` gives
// null of one that is not set. Errors: kInvalidArgument naming the variable.
using Variable = std::function<const char*(const char* name)>;
Result<RankPlace> place_of(const std::string& launcher, const Variable& variable);
// For a verb that is one process: an error where mpirun has started several of it.
Result<void> refuse_launched(const std::string& verb);

// What the flags say of this process; empty: the leader starts its ranks itself, or there are none.
struct StartedRank {
  RankPlace place;
  parallel::Meeting meeting;
  std::vector<int> processors;  // this rank's own
};
Result<std::optional<StartedRank>> started_rank(const cli::Arguments& arguments);

// Of rank 0: the model's others are those who come.
Result<void> read_rank_flags(const cli::Arguments& arguments, executor::RankOptions& ranks);

// Of all hosts together, each taken to have what this one has.
int64_t memory_of_ranks(const cli::Arguments& arguments);

// What a rank above 0 does instead of serving: takes part until the group ends, which is true; or
// false: this is no such rank.
Result<bool> follow_leader(const cli::Arguments& arguments, const std::string& model,
                           base::Log& log);

}  // namespace pelton::apps
