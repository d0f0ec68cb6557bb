#include "base/machine.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include <sched.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/cgroup.h"

namespace pelton::base {

std::vector<int> usable_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
    }
  }
  if (cpus.empty()) cpus.push_back(0);
  const std::optional<double> quota = cgroup_cpu_quota({});
  if (quota && std::ceil(*quota) < static_cast<double>(cpus.size())) {
    cpus.resize(std::max<size_t>(1, static_cast<size_t>(std::ceil(*quota))));
  }
  return cpus;
}

int64_t memory_limit_bytes() {
  const auto ram =
      static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<int64_t>(sysconf(_SC_PAGESIZE));
  return std::min(ram, cgroup_memory_limit({}).value_or(ram));
}

int64_t peak_rss_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<int64_t>(usage.ru_maxrss) * 1024;
}

int64_t thread_cpu_ns() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return time.tv_sec * int64_t{1'000'000'000} + time.tv_nsec;
}

int64_t raise_descriptor_limit() {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return 0;
  const rlim_t before = files.rlim_cur;
  files.rlim_cur = files.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &files) != 0) files.rlim_cur = before;
  return static_cast<int64_t>(std::min<rlim_t>(files.rlim_cur, INT64_MAX));
}

}  // namespace pelton::base
