#include "telemetry/process_usage.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <vector>

#include <dirent.h>
#include <fcntl.h>
#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

namespace pelton::telemetry {
namespace {

// A file of /proc, whose size is not known beforehand and small.
std::string read_proc(const std::string& path) {
  std::string text;
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return text;
  std::array<char, 4096> buffer;
  for (;;) {
    const ssize_t got = read(file, buffer.data(), buffer.size());
    if (got <= 0) break;
    text.append(buffer.data(), static_cast<size_t>(got));
  }
  close(file);
  return text;
}

template <typename Visit>
void for_each_entry(const char* folder, const Visit& visit) {
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(opendir(folder), closedir);
  if (entries == nullptr) return;
  const std::string own = std::to_string(dirfd(entries.get()));
  while (const dirent* entry = readdir(entries.get())) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != ".." && name != own) visit(std::string(name));
  }
}

// "socket:[123]", "anon_inode:[eventpoll]", "/path", "pipe:[5]".
std::string kind_of(std::string_view target) {
  constexpr std::string_view kAnonymous = "anon_inode:";
  if (target.starts_with('/')) return target.starts_with("/dev/") ? "device" : "file";
  if (target.starts_with(kAnonymous)) {
    target.remove_prefix(kAnonymous.size());
    if (target.starts_with('[')) target = target.substr(1, target.size() - 2);
    return std::string(target);
  }
  return std::string(target.substr(0, target.find(':')));
}

void read_descriptors(ProcessUsage& usage) {
  for_each_entry("/proc/self/fd", [&](const std::string& name) {
    std::array<char, 4096> target;
    const ssize_t length =
        readlink(("/proc/self/fd/" + name).c_str(), target.data(), target.size());
    if (length <= 0) return;  // closed since
    ++usage.descriptors[kind_of(std::string_view(target.data(), static_cast<size_t>(length)))];
  });
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    usage.descriptors_max = static_cast<int64_t>(limit.rlim_cur);
  }
}

void read_threads(ProcessUsage& usage) {
  for_each_entry("/proc/self/task", [&](const std::string& id) {
    std::string name = read_proc("/proc/self/task/" + id + "/comm");
    if (name.empty()) return;  // ended since
    if (name.back() == '\n') name.pop_back();
    ++usage.threads[name];
  });
}

// "VmRSS:     123 kB"
int64_t kilobytes(std::string_view status, std::string_view key) {
  const size_t at = status.find(key);
  if (at == std::string_view::npos) return 0;
  status.remove_prefix(at + key.size());
  status.remove_prefix(std::min(status.find_first_of("0123456789"), status.size()));
  int64_t value = 0;
  std::from_chars(status.data(), status.data() + status.size(), value);
  return value * 1024;
}

// Field 22 of /proc/self/stat: ticks after boot; the name before it may hold blanks.
double start_time() {
  const std::string stat = read_proc("/proc/self/stat");
  const std::string boot = read_proc("/proc/stat");
  const size_t name_end = stat.rfind(')');
  const size_t boot_at = boot.find("btime ");
  if (name_end == std::string::npos || boot_at == std::string::npos) return 0.0;
  size_t at = name_end;
  constexpr int kFieldsBetween = 20;
  for (int i = 0; i < kFieldsBetween && at != std::string::npos; ++i) at = stat.find(' ', at + 1);
  if (at == std::string::npos) return 0.0;
  const double ticks = std::strtod(stat.c_str() + at, nullptr);
  return std::strtod(boot.c_str() + boot_at + 6, nullptr) +
         ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}

double cpu_time() {
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) != 0) return 0.0;
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Of all its arenas.
void read_heap(ProcessUsage& usage) {
  const struct mallinfo2 heap = mallinfo2();
  usage.heap_mapped_bytes = static_cast<int64_t>(heap.hblkhd);
  usage.heap_used_bytes = static_cast<int64_t>(heap.uordblks) + usage.heap_mapped_bytes;
  usage.heap_free_bytes = static_cast<int64_t>(heap.fordblks);
}

int total(const std::map<std::string, int>& counts) {
  int sum = 0;
  for (const auto& [name, count] : counts) sum += count;
  return sum;
}

}  // namespace

int ProcessUsage::descriptor_count() const {
  return total(descriptors);
}

int ProcessUsage::thread_count() const {
  return total(threads);
}

ProcessUsage process_usage() {
  ProcessUsage usage;
  read_descriptors(usage);
  read_threads(usage);
  const std::string status = read_proc("/proc/self/status");
  usage.resident_bytes = kilobytes(status, "VmRSS:");
  usage.resident_peak_bytes = kilobytes(status, "VmHWM:");
  read_heap(usage);
  usage.cpu_seconds = cpu_time();
  usage.start_time_seconds = start_time();
  return usage;
}

namespace {

void write_counts(base::JsonWriter& json, const std::map<std::string, int>& counts) {
  json.begin_object();
  for (const auto& [name, count] : counts) json.key(name).integer(count);
  json.end_object();
}

}  // namespace

void write_process(base::JsonWriter& json) {
  const ProcessUsage usage = process_usage();
  json.begin_object().key("descriptors").begin_object();
  json.key("count").integer(usage.descriptor_count());
  json.key("max").integer(usage.descriptors_max);
  json.key("by_kind");
  write_counts(json, usage.descriptors);
  json.end_object();
  json.key("threads").begin_object();
  json.key("count").integer(usage.thread_count());
  json.key("by_name");
  write_counts(json, usage.threads);
  json.end_object();
  json.key("resident_bytes").integer(usage.resident_bytes);
  json.key("resident_peak_bytes").integer(usage.resident_peak_bytes);
  json.key("heap").begin_object();
  json.key("used_bytes").integer(usage.heap_used_bytes);
  json.key("mapped_bytes").integer(usage.heap_mapped_bytes);
  json.key("free_bytes").integer(usage.heap_free_bytes).end_object();
  json.end_object();
}

}  // namespace pelton::telemetry
