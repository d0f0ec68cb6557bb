// A follower of a group of ranks (`pelton rank`), which the leader starts with its ends of their
// connections (parallel/group.h). No verb: nobody types it, and it has neither flags nor help.
#pragma once

#include "base/clock.h"
#include "base/log.h"
#include "executor/rank_follower.h"

namespace pelton::apps {

// Whether the words are those of a follower.
bool is_rank(int count, char** words);
// Until the group ends. The exit code.
int run_rank(int count, char** words);

// How a follower looks whether the weights that it computes with are still what they were: one
// line, and this process ends, with which the group does. `clock` and `log` outlive it.
executor::FollowerOptions::Watch weight_scrubber_of(int rank, const base::Clock& clock,
                                                    base::Log& log);

}  // namespace pelton::apps
