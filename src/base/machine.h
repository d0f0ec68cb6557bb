// What this process may use of the machine: processors by affinity and cgroup quota, memory by
// cgroup limit and RAM. Read once at start.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace pelton::base {

// The processors this process may run on, by number; cut to the cgroup's CPU quota (rounded up), so
// a container with "2 CPUs" on a 64-core host gets 2. Never empty.
std::vector<int> usable_cpus();

// min(cgroup limits, RAM).
int64_t memory_limit_bytes();

// What could be given to this process now without taking what others use: by the system as a whole
// (MemAvailable) and by its cgroups. Empty: the system does not say.
std::optional<int64_t> available_memory_bytes();

// Whether memory is given in huge pages to who asks for them (madvise), or to everybody.
bool has_huge_pages_on_request();

// Whether all memory is as near to each processor (one NUMA node), as far as the system says.
bool has_one_memory_node();

// The highest resident set of this process so far.
int64_t peak_rss_bytes();

// Processor time this thread has used: what a limit on work is measured by when others use the
// machine too.
int64_t thread_cpu_ns();

// This thread would rather run soon than long: when it wakes it need not wait until somebody who
// computes has had his turn, which is 3 ms as a rule. For threads that wait for others and then do
// little. Needs no rights. Linux 6.12 and later; false elsewhere, where nothing changes.
bool ask_for_short_turns();

// Raises the soft limit of this process's open files to its hard one, where that is allowed. How
// many it may have open then.
int64_t raise_descriptor_limit();

// The same for the memory that it may lock, in bytes. INT64_MAX: there is no limit, or the process
// need not obey it (CAP_IPC_LOCK; in a user namespace the kernel may see that differently).
int64_t raise_lock_limit();

}  // namespace pelton::base
