#include "base/machine.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <optional>

#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/cgroup.h"
#include "base/file.h"

namespace pelton::base {
namespace {

// As sched_setattr(2) has it; glibc 2.36 has not.
struct SchedulingAttributes {
  uint32_t size = sizeof(SchedulingAttributes);
  uint32_t policy = 0;
  uint64_t flags = 0;
  int32_t nice = 0;
  uint32_t priority = 0;
  uint64_t runtime_ns = 0;  // of ordinary threads since Linux 6.12: how long a turn is
  uint64_t deadline_ns = 0;
  uint64_t period_ns = 0;
};

bool read_scheduling(SchedulingAttributes& attributes) {
  return ::syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) == 0;
}

// RLIM_INFINITY becomes INT64_MAX.
int64_t raise_limit(__rlimit_resource which) {
  rlimit limit{};
  if (getrlimit(which, &limit) != 0) return 0;
  const rlim_t before = limit.rlim_cur;
  limit.rlim_cur = limit.rlim_max;
  if (setrlimit(which, &limit) != 0) limit.rlim_cur = before;
  return static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, INT64_MAX));
}

bool may_lock_anything() {
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {};
  if (::syscall(SYS_capget, &header, data) != 0) return false;
  return (data[CAP_TO_INDEX(CAP_IPC_LOCK)].effective & CAP_TO_MASK(CAP_IPC_LOCK)) != 0;
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

std::optional<int64_t> available_memory_bytes() {
  // By hand: base/file reads files of a known size, and this one says 0.
  const int file = ::open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
  if (file < 0) return std::nullopt;
  std::array<char, 512> text{};  // it is among the first lines
  const ssize_t got = ::read(file, text.data(), text.size() - 1);
  ::close(file);
  const char* line = got > 0 ? std::strstr(text.data(), "MemAvailable:") : nullptr;
  long long kilobytes = 0;
  if (line == nullptr || std::sscanf(line, "MemAvailable: %lld kB", &kilobytes) != 1) {
    return std::nullopt;
  }
  const int64_t system = int64_t{kilobytes} * 1024;
  return std::min(system, cgroup_memory_available({}).value_or(system));
}

bool ask_for_short_turns() {
  constexpr uint64_t kTurnNs = 100'000;  // the least there is
  SchedulingAttributes attributes;
  if (!read_scheduling(attributes) || attributes.policy != SCHED_OTHER) return false;
  attributes.size = sizeof attributes;
  attributes.runtime_ns = kTurnNs;
  if (::syscall(SYS_sched_setattr, 0, &attributes, 0) != 0) return false;
  return read_scheduling(attributes) && attributes.runtime_ns == kTurnNs;
}

bool has_huge_pages_on_request() {
  const Result<std::string> modes = read_file("/sys/kernel/mm/transparent_hugepage/enabled", 4096);
  return modes.ok() && !modes->empty() && modes->find("[never]") == std::string::npos;
}

bool has_one_memory_node() {
  const Result<std::string> nodes = read_file("/sys/devices/system/node/has_memory", 4096);
  return !nodes.ok() || nodes->find_first_of(",-") == std::string::npos;  // "0", or "0-1", "0,2"
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
  return raise_limit(RLIMIT_NOFILE);
}

int64_t raise_lock_limit() {
  return may_lock_anything() ? INT64_MAX : raise_limit(RLIMIT_MEMLOCK);
}

}  // namespace pelton::base
