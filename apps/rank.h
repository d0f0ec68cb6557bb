// A follower of a group of ranks (`pelton rank`), which the leader starts with its ends of their
// connections (parallel/group.h). No verb: nobody types it, and it has neither flags nor help.
#pragma once

namespace pelton::apps {

// Whether the words are those of a follower.
bool is_rank(int count, char** words);
// Until the group ends. The exit code.
int run_rank(int count, char** words);

}  // namespace pelton::apps
