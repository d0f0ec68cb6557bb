#include "base/cgroup.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <span>
#include <string_view>
#include <vector>

namespace pelton::base {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// A positive whole number in front of a space or the end; "max", -1 and nonsense are no limit.
std::optional<int64_t> positive(std::string_view text) {
  int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stopped, failure] = std::from_chars(text.data(), end, value);
  if (failure != std::errc{} || (stopped != end && *stopped != ' ') || value <= 0) {
    return std::nullopt;
  }
  return value;
}

// Whether `controller` is in a list as "cpu,cpuacct".
bool lists(std::string_view controllers, std::string_view controller) {
  while (!controllers.empty()) {
    const size_t comma = std::min(controllers.find(','), controllers.size());
    if (controllers.substr(0, comma) == controller) return true;
    controllers.remove_prefix(std::min(comma + 1, controllers.size()));
  }
  return false;
}

// A line of /proc/self/cgroup: "0::/path" (version 2) or "4:memory:/path" (version 1).
struct Membership {
  std::string controllers;  // empty: version 2
  std::string path;
};

std::vector<Membership> memberships(const CgroupFiles& files) {
  std::ifstream file(files.of_process);
  std::vector<Membership> found;
  std::string line;
  while (std::getline(file, line)) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    found.push_back({line.substr(first + 1, second - first - 1), line.substr(second + 1)});
  }
  return found;
}

// The folder itself and those above it up to `root`. In a container the process's path is often
// the host's and not there; then the root is the container's own. A path that leads out of the
// root is left alone.
void add_folders(const std::string& root, std::string path, std::vector<std::string>& folders) {
  if (!path.starts_with('/') || path.find("..") != std::string::npos) path.clear();
  while (!path.empty() && path != "/") {
    folders.push_back(root + path);
    path.resize(std::min(path.find_last_of('/'), path.size() - 1));
  }
  folders.push_back(root);
}

struct Folders {
  std::vector<std::string> v2;
  std::vector<std::string> v1;  // of the controller asked for
};

Folders folders_of(const CgroupFiles& files, std::string_view controller) {
  Folders folders;
  for (const Membership& member : memberships(files)) {
    if (member.controllers.empty()) {
      add_folders(files.root, member.path, folders.v2);
    } else if (lists(member.controllers, controller)) {
      // Mounted by the list's name, with a link of the controller's own beside it.
      add_folders(files.root + "/" + member.controllers, member.path, folders.v1);
      if (member.controllers != controller) {
        add_folders(files.root + "/" + std::string(controller), member.path, folders.v1);
      }
    }
  }
  if (folders.v2.empty()) folders.v2.push_back(files.root);
  return folders;
}

template <typename T>
void lower(std::optional<T>& least, std::optional<T> value) {
  if (value && (!least || *value < *least)) least = value;
}

struct MemoryFiles {
  const char* limit;
  const char* used;
  std::array<std::string_view, 2> cached;  // lines of memory.stat
};

// Of "name value" lines.
int64_t sum_of_lines(const std::string& path, std::span<const std::string_view> names) {
  std::ifstream file(path);
  int64_t sum = 0;
  for (std::string line; std::getline(file, line);) {
    const size_t space = std::min(line.find(' '), line.size());
    const std::string_view name = std::string_view(line).substr(0, space);
    if (std::find(names.begin(), names.end(), name) == names.end()) continue;
    sum += positive(std::string_view(line).substr(std::min(space + 1, line.size()))).value_or(0);
  }
  return sum;
}

}  // namespace

std::optional<int64_t> cgroup_memory_limit(const CgroupFiles& files) {
  const Folders folders = folders_of(files, "memory");
  std::optional<int64_t> limit;
  for (const std::string& folder : folders.v2) {
    lower(limit, positive(first_line(folder + "/memory.max")));
  }
  for (const std::string& folder : folders.v1) {
    lower(limit, positive(first_line(folder + "/memory.limit_in_bytes")));
  }
  return limit;
}

std::optional<int64_t> cgroup_memory_available(const CgroupFiles& files) {
  const Folders folders = folders_of(files, "memory");
  std::optional<int64_t> least;
  const auto add = [&](const std::string& folder, const MemoryFiles& names) {
    const std::optional<int64_t> limit = positive(first_line(folder + names.limit));
    const std::optional<int64_t> used = positive(first_line(folder + names.used));
    if (!limit || !used) return;
    const int64_t cached = sum_of_lines(folder + "/memory.stat", names.cached);
    lower(least, std::optional(std::max<int64_t>(0, *limit - *used + std::min(cached, *used))));
  };
  for (const std::string& folder : folders.v2) {
    add(folder, {.limit = "/memory.max",
                 .used = "/memory.current",
                 .cached = {"inactive_file", "active_file"}});
  }
  for (const std::string& folder : folders.v1) {
    add(folder, {.limit = "/memory.limit_in_bytes",
                 .used = "/memory.usage_in_bytes",
                 .cached = {"total_inactive_file", "total_active_file"}});
  }
  return least;
}

std::optional<double> cgroup_cpu_quota(const CgroupFiles& files) {
  const Folders folders = folders_of(files, "cpu");
  std::optional<double> quota;
  const auto add = [&](std::optional<int64_t> allowed, std::optional<int64_t> period) {
    if (!allowed || !period) return;
    lower(quota, std::optional(static_cast<double>(*allowed) / static_cast<double>(*period)));
  };
  for (const std::string& folder : folders.v2) {
    const std::string line = first_line(folder + "/cpu.max");  // "150000 100000"
    const size_t space = std::min(line.find(' '), line.size());
    add(positive(line), positive(std::string_view(line).substr(std::min(space + 1, line.size()))));
  }
  for (const std::string& folder : folders.v1) {
    add(positive(first_line(folder + "/cpu.cfs_quota_us")),
        positive(first_line(folder + "/cpu.cfs_period_us")));
  }
  return quota;
}

}  // namespace pelton::base
