// Ranks that somebody else starts, one process each, on one host or several: by hand (--nnodes), by
// a launcher that says who is who in the environment (--rank-launcher env, mpi, slurm). Of `serve`,
// and of `bench latency`, which finds the launcher by itself.
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

std::vector<cli::Flag> rank_flags();  // serve's
// Of them, those by which ranks find each other: a measurement's.
std::vector<cli::Flag> meeting_flags();

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

// What the flags say of this process; empty: the leader starts its ranks itself, or there are none.
struct StartedRank {
  RankPlace place;
  parallel::Meeting meeting;
  std::vector<int> processors;  // this rank's own
};
Result<std::optional<StartedRank>> started_rank(const cli::Arguments& arguments);
// Of a measurement: without --rank-launcher too where a launcher has started several processes, as
// many ranks as those; without --rank-token-file they know each other by a key of this user's.
Result<std::optional<StartedRank>> measuring_rank(const cli::Arguments& arguments);

// Whether somebody else starts the ranks, and says in their environment who is who.
bool has_launcher(const cli::Arguments& arguments);

// Of rank 0: the model's others are those who come.
Result<void> read_rank_flags(const cli::Arguments& arguments, executor::RankOptions& ranks);
void lead_started(const cli::Arguments& arguments, StartedRank started,
                  executor::RankOptions& ranks);

// Of all hosts together, each taken to have what this one has.
int64_t memory_of_ranks(const cli::Arguments& arguments);

// What a rank above 0 does instead of serving or measuring: takes part until the group ends, which
// is true; or false: this is no such rank.
Result<bool> follow_leader(const cli::Arguments& arguments, const std::string& model,
                           const std::optional<StartedRank>& started, base::Log& log);

}  // namespace pelton::apps
