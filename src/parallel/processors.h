// Which rank computes on which processors of one host, so that no two stand on the same. Pure, but
// for the scope, which is the calling thread's.
#pragma once

#include <cstdint>
#include <vector>

#include <sched.h>

namespace pelton::parallel {

// Neighbours for each rank, none in two of them; of fewer processors than ranks one for each, which
// several share.
std::vector<std::vector<int>> share_processors(const std::vector<int>& processors, int ranks);

// How long a rank spins for another one before it sleeps: not at all where they share processors.
int64_t spin_ns_for(const std::vector<std::vector<int>>& shares);

// The thread may run on these alone, as long as this lives; so may threads that it starts
// meanwhile. Of none: nothing changes.
class ProcessorScope {
 public:
  explicit ProcessorScope(const std::vector<int>& processors);
  ~ProcessorScope();
  ProcessorScope(const ProcessorScope&) = delete;
  ProcessorScope& operator=(const ProcessorScope&) = delete;

 private:
  bool narrowed_ = false;
  cpu_set_t before_;
};

}  // namespace pelton::parallel
