// What the control groups of this process allow, version 2 and version 1: each folder from the
// process's own up to the root may set a limit, and the smallest counts. Reads files only; any
// thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace pelton::base {

// Where the kernel says so. Other places in tests.
struct CgroupFiles {
  std::string of_process = "/proc/self/cgroup";
  std::string root = "/sys/fs/cgroup";
};

// Empty: no limit is set, or none can be read.
std::optional<int64_t> cgroup_memory_limit(const CgroupFiles& files);
// What is left of such limits, where what is cached of files counts as left.
std::optional<int64_t> cgroup_memory_available(const CgroupFiles& files);
std::optional<double> cgroup_cpu_quota(const CgroupFiles& files);  // processors, as 1.5

}  // namespace pelton::base
