#include "cuda/emulation/device_memory.h"

#include <csignal>
#include <cstdint>
#include <cstring>
#include <map>

#include <sys/mman.h>
#include <unistd.h>

#include "cuda/emulation/fibers.h"

namespace pelton::cuda::emulation {
namespace {

constexpr size_t kPoisonedMax = size_t{64} << 20;  // more would be touched for nothing

struct Area {
  char* begin;  // of the mapping
  char* other;  // of the second mapping; null: pinned
  size_t room;  // without the page that nobody may touch
  size_t used;
  size_t weights;  // of what was handed out, from its begin; all of it if nothing was declared
};

struct Memory {
  std::mutex areas_mutex;
  std::map<uintptr_t, Area> areas;  // by what was handed out
  std::mutex in_use;
  struct sigaction usual = {};
};

Memory& memory() {
  static Memory* const the_memory = new Memory;  // handed out until the process ends
  return *the_memory;
}

size_t page() {
  return static_cast<size_t>(::sysconf(_SC_PAGESIZE));
}

// With an inaccessible page behind it. `file`: -1 for memory of its own.
char* map(size_t room, int file) {
  const int flags = file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED;
  void* const whole =
      ::mmap(nullptr, room + page(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (whole == MAP_FAILED) return nullptr;
  void* const got = ::mmap(whole, room, PROT_READ | PROT_WRITE, flags | MAP_FIXED, file, 0);
  if (got != MAP_FAILED) return static_cast<char*>(got);
  ::munmap(whole, room + page());
  return nullptr;
}

void* hand_out(Area area) {
  char* const handed = area.begin + area.room - area.used;
  if (area.used <= kPoisonedMax) std::memset(handed, 0xFF, area.used);
  const std::lock_guard lock(memory().areas_mutex);
  memory().areas[reinterpret_cast<uintptr_t>(handed)] = area;
  return handed;
}

Area area_for(size_t bytes) {
  const size_t used = (bytes + 15) / 16 * 16;
  return {.begin = nullptr,
          .other = nullptr,
          .room = (used + page() - 1) / page() * page(),
          .used = used,
          .weights = used};
}

// The area around an address, or none. The lock is held.
const Area* area_around(uintptr_t address) {
  const auto& areas = memory().areas;
  auto after = areas.upper_bound(address);
  if (after == areas.begin()) return nullptr;
  const auto& [handed, area] = *--after;
  return address < handed + area.used ? &area : nullptr;
}

void set_protection(int protection) {
  const std::lock_guard lock(memory().areas_mutex);
  for (const auto& [handed, area] : memory().areas) {
    if (area.other != nullptr) ::mprotect(area.begin, area.room, protection);
  }
}

void when_touched(int signal, siginfo_t* info, void*) {
  // No lock: the process ends, or the fault happens again as it would have without us.
  if (area_around(reinterpret_cast<uintptr_t>(info->si_addr)) != nullptr) {
    kernel_fault("the step's memory is touched before the wait for the kernels before");
  }
  ::sigaction(signal, &memory().usual, nullptr);
}

}  // namespace

void* take_memory(size_t bytes) {
  Area area = area_for(bytes);
  const int file = ::memfd_create("emulated device memory", MFD_CLOEXEC);
  if (file < 0 || ::ftruncate(file, static_cast<off_t>(area.room)) != 0) {
    if (file >= 0) ::close(file);
    return nullptr;
  }
  area.begin = map(area.room, file);
  area.other = map(area.room, file);
  ::close(file);
  if (area.begin == nullptr || area.other == nullptr) {
    if (area.begin != nullptr) ::munmap(area.begin, area.room + page());
    return nullptr;
  }
  return hand_out(area);
}

void* take_open_memory(size_t bytes) {
  Area area = area_for(bytes);
  area.begin = map(area.room, -1);
  return area.begin != nullptr ? hand_out(area) : nullptr;
}

void give_memory(void* handed) {
  const std::lock_guard lock(memory().areas_mutex);
  const auto found = memory().areas.find(reinterpret_cast<uintptr_t>(handed));
  if (found == memory().areas.end()) return;
  const Area& area = found->second;
  ::munmap(area.begin, area.room + page());
  if (area.other != nullptr) ::munmap(area.other, area.room + page());
  memory().areas.erase(found);
}

void declare_weights(const void* handed, size_t bytes) {
  const std::lock_guard lock(memory().areas_mutex);
  const auto found = memory().areas.find(reinterpret_cast<uintptr_t>(handed));
  if (found != memory().areas.end()) found->second.weights = bytes;
}

std::mutex& memory_in_use() {
  return memory().in_use;
}

void close_memory() {
  struct sigaction action = {};
  action.sa_sigaction = when_touched;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGSEGV, &action, &memory().usual);
  set_protection(PROT_NONE);
}

void open_memory() {
  set_protection(PROT_READ | PROT_WRITE);
  ::sigaction(SIGSEGV, &memory().usual, nullptr);
}

size_t closable_bytes() {
  const std::lock_guard lock(memory().areas_mutex);
  size_t bytes = 0;
  for (const auto& [handed, area] : memory().areas) bytes += area.other != nullptr ? area.room : 0;
  return bytes;
}

const void* weights_behind(const void* address) {
  const std::lock_guard lock(memory().areas_mutex);
  const auto* const at = static_cast<const char*>(address);
  const Area* const area = area_around(reinterpret_cast<uintptr_t>(address));
  if (area == nullptr || area->other == nullptr) return address;
  const char* const handed = area->begin + area->room - area->used;
  if (static_cast<size_t>(at - handed) >= area->weights) {
    kernel_fault("what is read as weights before the wait is none: a step writes it");
  }
  return area->other + (at - area->begin);
}

}  // namespace pelton::cuda::emulation
