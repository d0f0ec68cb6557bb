#include "base/mapping_fault.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>

#include <signal.h>
#include <unistd.h>

#include "base/check.h"

namespace pelton::base {
namespace {

constexpr int kMappingsMax = 4096;
constexpr size_t kPathBytesMax = 240;  // the rest of a longer path is not shown

// A signal handler can reach nothing but globals, and may call next to nothing: so a table of
// plain bytes, in which a slot counts once its `begin` is set.
struct Slot {
  std::atomic<bool> taken{false};
  std::atomic<uintptr_t> begin{0};
  std::atomic<uintptr_t> end{0};
  char path[kPathBytesMax + 1] = "";
};
std::array<Slot, kMappingsMax> slots;
std::atomic<int> slots_used{0};  // no slot from here on was ever taken
std::atomic<int> fault_exit_code{1};

void say(const char* text) {
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text, std::strlen(text));
}

void on_bus_error(int signal, siginfo_t* info, void* /*context*/) {
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  const int used = slots_used.load(std::memory_order_acquire);
  for (int i = 0; i < used; ++i) {
    const uintptr_t begin = slots[i].begin.load(std::memory_order_acquire);
    if (begin == 0 || address < begin || address >= slots[i].end.load(std::memory_order_relaxed)) {
      continue;
    }
    say("pelton: ");
    say(slots[i].path);
    say(": became unreadable while it was in use (was it cut short or replaced?)\n");
    _exit(fault_exit_code);
  }
  // Not a file of ours: die of it, as without this handler.
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

}  // namespace

void end_on_mapping_fault(int exit_code) {
  fault_exit_code = exit_code;
  struct sigaction action {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  CHECK(sigaction(SIGBUS, &action, nullptr) == 0);
}

void list_mapping(const std::string& path, const void* data, size_t size) {
  for (int i = 0; i < kMappingsMax; ++i) {
    if (slots[i].taken.exchange(true, std::memory_order_acquire)) continue;
    const size_t length = std::min(path.size(), kPathBytesMax);
    std::memcpy(slots[i].path, path.data(), length);
    slots[i].path[length] = '\0';
    const auto begin = reinterpret_cast<uintptr_t>(data);
    slots[i].end.store(begin + size, std::memory_order_relaxed);
    slots[i].begin.store(begin, std::memory_order_release);
    int used = slots_used.load();
    while (used <= i && !slots_used.compare_exchange_weak(used, i + 1)) {
    }
    return;
  }
}

void unlist_mapping(const void* data) {
  auto begin = reinterpret_cast<uintptr_t>(data);
  const int used = slots_used.load();
  for (int i = 0; i < used; ++i) {
    // Two mappings never begin at one address, so only its owner clears a slot.
    if (slots[i].begin.load(std::memory_order_acquire) != begin) continue;
    slots[i].begin.store(0, std::memory_order_release);
    slots[i].taken.store(false, std::memory_order_release);
    return;
  }
}

}  // namespace pelton::base
