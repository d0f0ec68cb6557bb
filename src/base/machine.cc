#include "base/machine.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>

#include <sched.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

namespace pelton::base {
namespace {

// The folders of this process's cgroup v2, leaf first; each may set a limit.
std::vector<std::string> cgroup_folders() {
  std::ifstream file("/proc/self/cgroup");
  std::string line;
  std::vector<std::string> folders;
  while (std::getline(file, line)) {
    if (line.rfind("0::", 0) != 0) continue;
    std::string path = line.substr(3);
    while (!path.empty() && path != "/") {
      folders.push_back("/sys/fs/cgroup" + path);
      path.resize(path.find_last_of('/'));
    }
  }
  folders.emplace_back("/sys/fs/cgroup");
  return folders;
}

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

double cpu_quota() {
  double quota = std::numeric_limits<double>::infinity();
  for (const std::string& folder : cgroup_folders()) {
    std::istringstream words(first_line(folder + "/cpu.max"));
    std::string limit;
    double period = 0;
    if (words >> limit >> period && limit != "max" && period > 0) {
      quota = std::min(quota, std::strtod(limit.c_str(), nullptr) / period);
    }
  }
  return quota;
}

}  // namespace

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
  const double quota = std::ceil(cpu_quota());
  if (quota < static_cast<double>(cpus.size())) {
    cpus.resize(std::max<size_t>(1, static_cast<size_t>(quota)));
  }
  return cpus;
}

int64_t memory_limit_bytes() {
  int64_t limit =
      static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<int64_t>(sysconf(_SC_PAGESIZE));
  for (const std::string& folder : cgroup_folders()) {
    const std::string line = first_line(folder + "/memory.max");
    if (line.empty() || line == "max") continue;
    limit = std::min(limit, static_cast<int64_t>(std::strtoll(line.c_str(), nullptr, 10)));
  }
  return limit;
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

}  // namespace pelton::base
